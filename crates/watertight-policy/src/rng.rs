//! Randomness as a value: SplitMix64, a named algorithm whose numbers are the same on every machine and release.
//!
//! Assumes that randomness here only spreads load and drives simulations. It is predictable on purpose: nonces, tokens
//! and ids come from the operating system and never from this module. Leaves out distributions other than uniform.

/// A stream of pseudo-random numbers, fully determined by its seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rng {
    seed: u64,
    state: u64,
}

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

impl Rng {
    /// The stream of `seed`. Every seed is as good as any other, zero too.
    pub const fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// The next number, uniform over all of `u64`.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        mix(self.state)
    }

    /// A number below `n`; zero when `n` is zero. The bias is below `n / 2^64`.
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// The stream of one concern. It depends on the seed and the label alone, not on what was drawn before: one more
    /// draw in one place does not shift the numbers of any other.
    pub fn split(&self, label: &str) -> Self {
        Self::new(mix(self.seed ^ mix(fnv1a(label.bytes()))))
    }
}

/// SplitMix64's finaliser: every bit of the input reaches every bit of the output.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// FNV-1a over bytes, 64 bits: the same stable number for a name everywhere, such as
/// [`Breaker::record`](crate::breaker::Breaker::record) wants for a caller. Whoever chooses the bytes can make two names collide.
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    bytes.into_iter().fold(0xCBF2_9CE4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published reference values of SplitMix64: a change here changes every recorded simulation.
    #[test]
    fn golden_values() {
        let draw = |seed, count: usize| {
            let mut rng = Rng::new(seed);
            (0..count).map(|_| rng.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(0, 3), [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]);
        assert_eq!(
            draw(1_234_567, 3),
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
        assert_eq!(Rng::new(7).split("backoff").next_u64(), 0x00A2_2608_4889_FAE5);
        assert_eq!(fnv1a([]), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv1a(*b"foobar"), 0x8594_4171_F739_67E8);
    }

    #[test]
    fn splits_do_not_depend_on_draws() {
        let fresh = Rng::new(7);
        let mut drawn = Rng::new(7);
        drawn.next_u64();
        assert_eq!(fresh.split("backoff"), drawn.split("backoff"));
        assert_ne!(fresh.split("backoff").next_u64(), fresh.split("agents").next_u64());
        assert_ne!(fresh.split("").next_u64(), fresh.clone().next_u64());
    }

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 6];
        for _ in 0..6_000 {
            seen[rng.below(6) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1_200).contains(n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }
}
