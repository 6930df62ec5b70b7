//! Addresses of networks: `10.0.0.0/8`, `fd00::/8`, or one address alone.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Net {
    address: IpAddr,
    bits: u32,
}

impl Net {
    /// Whether the address is one of them. An IPv4 address that came in over IPv6 is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(one)) => {
                net.to_bits() & mask(self.bits, 32) as u32 == one.to_bits() & mask(self.bits, 32) as u32
            }
            (IpAddr::V6(net), IpAddr::V6(one)) => {
                net.to_bits() & mask(self.bits, 128) == one.to_bits() & mask(self.bits, 128)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The first `bits` of `width` bits.
fn mask(bits: u32, width: u32) -> u128 {
    let ones = if width == 128 { u128::MAX } else { (1 << width) - 1 };
    let hidden = width.saturating_sub(bits);
    if hidden >= 128 { 0 } else { ones >> hidden << hidden }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Net, String> {
        let wrong = || format!("`{text}` is neither an address nor a network: write 127.0.0.1, 10.0.0.0/8 or fd00::/8");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) if bits.bytes().all(|b| b.is_ascii_digit()) => bits.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
        };
        if bits > width {
            return Err(format!("`{text}`: an address of this kind has {width} bits"));
        }
        Ok(Net { address, bits })
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        let width = if self.address.is_ipv4() { 32 } else { 128 };
        if self.bits == width { Ok(()) } else { write!(f, "/{}", self.bits) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members() {
        for (net, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.1.2.3/8", "10.255.0.1", "11.0.0.1"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
            ("0.0.0.0/0", "203.0.113.9", "::1"),
            ("192.168.4.0/22", "192.168.7.255", "192.168.8.0"),
            ("fd00::/8", "fdab::1", "fe00::1"),
            ("::/0", "2001:db8::1", "127.0.0.1"),
            ("::1", "::1", "::2"),
        ] {
            let parsed: Net = net.parse().unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{inside} in {net}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{outside} in {net}");
            assert_eq!(parsed.to_string(), net);
        }
    }

    #[test]
    fn what_is_none() {
        for wrong in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "::1/129",
            "localhost",
            "10.0.0/8",
            "1.2.3.4/99999999999",
        ] {
            assert!(wrong.parse::<Net>().is_err(), "{wrong}");
        }
    }
}
