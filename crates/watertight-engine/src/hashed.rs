//! Maps by long names that hold 16 bytes of each: a keyed hash. There are as many names as delegations, and each of them
//! is in its delegation's row already.
//!
//! Assumes that whoever chooses names does not know the key, which is drawn anew for each cell: then two names of 128
//! bits do not meet by chance, and cannot be made to (SipHash-2-4 with 128 bits).

use std::collections::BTreeMap;

use watertight_policy::rng::Rng;

use crate::ids::{ContextKey, Key, Principal};

/// What stands for a name.
pub(crate) type Hash = [u64; 2];

/// A name of several parts.
pub(crate) trait Name {
    fn parts(&self) -> [&str; 4];
}

impl Name for Key {
    fn parts(&self) -> [&str; 4] {
        let Principal { tenant, caller } = &self.principal;
        [tenant, caller, self.agent.as_str(), &self.message_id]
    }
}

impl Name for ContextKey {
    fn parts(&self) -> [&str; 4] {
        let Principal { tenant, caller } = &self.principal;
        [tenant, caller, self.agent.as_str(), &self.context]
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Hashed<V> {
    key: [u64; 2],
    map: BTreeMap<Hash, V>,
}

impl<V> Hashed<V> {
    pub(crate) fn new(rng: &mut Rng) -> Hashed<V> {
        Hashed { key: [rng.next_u64(), rng.next_u64()], map: BTreeMap::new() }
    }

    pub(crate) fn hash(&self, name: &impl Name) -> Hash {
        let mut sip = Sip::new(self.key);
        for part in name.parts() {
            // Where a part ends counts: "a", "bc" is another name than "ab", "c".
            sip.write(&(part.len() as u64).to_le_bytes());
            sip.write(part.as_bytes());
        }
        sip.end()
    }

    pub(crate) fn get(&self, name: &impl Name) -> Option<&V> {
        self.map.get(&self.hash(name))
    }

    pub(crate) fn get_mut(&mut self, name: &impl Name) -> Option<&mut V> {
        let hash = self.hash(name);
        self.map.get_mut(&hash)
    }

    pub(crate) fn at(&self, hash: Hash) -> Option<&V> {
        self.map.get(&hash)
    }

    pub(crate) fn insert(&mut self, hash: Hash, value: V) {
        self.map.insert(hash, value);
    }

    pub(crate) fn remove(&mut self, hash: Hash) {
        self.map.remove(&hash);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Hash, &V)> {
        self.map.iter().map(|(hash, value)| (*hash, value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.map.values()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.map.values_mut()
    }
}

impl<V: Default> Hashed<V> {
    pub(crate) fn of(&mut self, name: &impl Name) -> &mut V {
        let hash = self.hash(name);
        self.map.entry(hash).or_default()
    }
}

/// SipHash-2-4, 128 bits.
struct Sip {
    v: [u64; 4],
    tail: u64,
    filled: u32,
    length: u64,
}

impl Sip {
    fn new([k0, k1]: [u64; 2]) -> Sip {
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Sip { v, tail: 0, filled: 0, length: 0 }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            // What is there, and the first bytes of the word; the others are there for the next.
            let (word, bits) = (u64::from_le_bytes(*word), 8 * self.filled);
            self.tail |= word << bits;
            self.take();
            self.tail = word.checked_shr(64 - bits).unwrap_or(0);
        }
        for byte in rest {
            self.tail |= u64::from(*byte) << (8 * self.filled);
            self.filled += 1;
            if self.filled == 8 {
                self.take();
                (self.tail, self.filled) = (0, 0);
            }
        }
    }

    fn take(&mut self) {
        self.v[3] ^= self.tail;
        self.rounds(2);
        self.v[0] ^= self.tail;
    }

    fn end(mut self) -> Hash {
        self.tail |= self.length << 56;
        self.take();
        self.v[2] ^= 0xee;
        self.rounds(4);
        let first = self.folded();
        self.v[1] ^= 0xdd;
        self.rounds(4);
        [first, self.folded()]
    }

    fn folded(&self) -> u64 {
        self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3]
    }

    fn rounds(&mut self, rounds: u32) {
        let [mut a, mut b, mut c, mut d] = self.v;
        for _ in 0..rounds {
            a = a.wrapping_add(b);
            b = b.rotate_left(13) ^ a;
            a = a.rotate_left(32);
            c = c.wrapping_add(d);
            d = d.rotate_left(16) ^ c;
            a = a.wrapping_add(d);
            d = d.rotate_left(21) ^ a;
            c = c.wrapping_add(b);
            b = b.rotate_left(17) ^ c;
            c = c.rotate_left(32);
        }
        self.v = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that SipHash's authors publish: the key 00 01 … 0f, the messages "", 00, 00 01, …
    #[test]
    fn it_is_siphash() {
        let of = |message: &[u8]| {
            let mut sip = Sip::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
            sip.write(message);
            sip.end().map(u64::to_le_bytes).concat()
        };
        assert_eq!(of(&[])[..], 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128.to_be_bytes());
        let more: Vec<u8> = (0..15).collect();
        assert_eq!(of(&more)[..], 0x5493_e999_33b0_a811_7e08_ec0f_97cf_c3d9_u128.to_be_bytes());
        assert_eq!(of(&[0])[..], 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45_u128.to_be_bytes());
        // However it comes.
        let long: Vec<u8> = (0..63).collect();
        for cut in 0..long.len() {
            let mut sip = Sip::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
            [&long[..cut / 2], &long[cut / 2..cut], &long[cut..]].iter().for_each(|part| sip.write(part));
            assert_eq!(sip.end().map(u64::to_le_bytes).concat(), of(&long), "{cut}");
        }
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let map: Hashed<u8> = Hashed::new(&mut Rng::new(1));
        let of = |caller: &str, message: &str| {
            let principal = Principal { tenant: "t".into(), caller: caller.into() };
            map.hash(&Key { principal, agent: crate::ids::AgentId::new("a"), message_id: message.into() })
        };
        assert_ne!(of("ab", "c"), of("a", "bc"));
        assert_eq!(of("ab", "c"), of("ab", "c"));
        let other: Hashed<u8> = Hashed::new(&mut Rng::new(2));
        let principal = Principal { tenant: "t".into(), caller: "ab".into() };
        let key = Key { principal, agent: crate::ids::AgentId::new("a"), message_id: "c".into() };
        assert_ne!(map.hash(&key), other.hash(&key));
    }
}
