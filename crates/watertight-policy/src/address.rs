//! Addresses that a stranger may name: those of the public internet, and no others.
//!
//! Whoever lets others say where a request goes must look at the address that the socket is opened to, after the name was
//! resolved: a name may lead anywhere, and elsewhere the next time. An IPv6 address that carries an IPv4 address is judged by
//! that. Leaves out what an operator allows beside it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether it is an address of the public internet: not this machine's, not a private network's, not one with a meaning of
/// its own.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b, c) {
        // This network, loopback, and everything from multicast on.
        (0 | 127 | 224.., _, _) => true,
        // Between a provider and its customers; assignments of the IETF; relays of 6to4; measuring.
        (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _) => true,
        _ => false,
    };
    !(special || address.is_private() || address.is_link_local() || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let inner = |high: u16, low: u16| {
        let ([w, x], [y, z]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(w, x, y, z))
    };
    match (a, b, c, d, e, f) {
        // Mapped, and translated by NAT64.
        (0, 0, 0, 0, 0, 0xffff) | (0x64, 0xff9b, 0, 0, 0, 0) => inner(g, h),
        // 6to4.
        (0x2002, ..) => inner(b, c),
        // Teredo, documentation, benchmarks, and the like.
        (0x2001, 0..=0x1ff, ..) | (0x2001, 0xdb8, ..) | (0x3fff, 0..=0xfff, ..) => false,
        // What is given out is all in here.
        (0x2000..=0x3fff, ..) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet() {
        let of = |text: &str| is_public(text.parse().unwrap());
        for public in ["1.1.1.1", "93.184.216.34", "100.63.255.255", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]
        {
            assert!(of(public), "{public}");
        }
        for other in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.254",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "3fff::1",
            "4000::1",
        ] {
            assert!(!of(other), "{other}");
        }
        assert!(of("64:ff9b::808:808") && of("2002:808:808::1"));
    }
}
