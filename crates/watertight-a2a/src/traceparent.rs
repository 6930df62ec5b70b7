//! W3C trace context: reading `traceparent`, and writing the child's.

use std::fmt;

/// A valid `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace, never zero.
    pub trace_id: [u8; 16],
    /// The sender's span, never zero.
    pub span_id: [u8; 8],
    /// Bit 0: sampled.
    pub flags: u8,
}

impl TraceParent {
    /// Reads a header value; garbage is `None`. Later versions are read by the first four fields, as the standard says.
    pub fn parse(value: &str) -> Option<TraceParent> {
        let bytes = value.trim().as_bytes();
        let dash = |at: usize| bytes.get(at) == Some(&b'-');
        let [version] = hex(bytes.get(0..2)?)?;
        if version == 0xff || !(dash(2) && dash(35) && dash(52)) {
            return None;
        }
        if bytes.len() != 55 && (version == 0 || !dash(55)) {
            return None;
        }
        let trace_id: [u8; 16] = hex(bytes.get(3..35)?)?;
        let span_id: [u8; 8] = hex(bytes.get(36..52)?)?;
        let [flags] = hex(bytes.get(53..55)?)?;
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(TraceParent { trace_id, span_id, flags })
    }

    /// The same trace under a new span, whose id is eight random bytes of the caller's. Only the sampled flag is kept.
    pub fn child(&self, span_id: [u8; 8]) -> TraceParent {
        TraceParent { trace_id: self.trace_id, span_id: non_zero(span_id), flags: self.flags & 1 }
    }

    /// A new trace from random bytes of the caller's.
    pub fn root(trace_id: [u8; 16], span_id: [u8; 8], sampled: bool) -> TraceParent {
        TraceParent { trace_id: non_zero(trace_id), span_id: non_zero(span_id), flags: u8::from(sampled) }
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One goes out with every attempt: the formatter's own way, byte by byte, costs ten times as much.
        let digits = |byte: u8| [byte >> 4, byte & 0xf].map(|half| char::from(b"0123456789abcdef"[usize::from(half)]));
        let mut text = String::with_capacity(55);
        text.push_str("00-");
        text.extend(self.trace_id.into_iter().flat_map(digits));
        text.push('-');
        text.extend(self.span_id.into_iter().flat_map(digits));
        text.push('-');
        text.extend(digits(self.flags));
        f.write_str(&text)
    }
}

fn non_zero<const N: usize>(mut id: [u8; N]) -> [u8; N] {
    if id == [0; N] {
        id[N - 1] = 1;
    }
    id
}

/// Lower-case hex of exactly `N` bytes.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    let mut pairs = text.chunks_exact(2);
    for byte in &mut out {
        let pair = pairs.next()?;
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    pairs.next().is_none().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn good_ones_read_back() {
        assert_eq!(TraceParent::parse(GOOD).unwrap().to_string(), GOOD);
        let later = format!("{}-more", GOOD.replacen("00", "01", 1));
        assert_eq!(TraceParent::parse(&later).unwrap().to_string(), GOOD);
    }

    #[test]
    fn garbage_is_none() {
        for bad in [
            "",
            "garbage",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-é",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_child_keeps_the_trace_and_never_has_a_zero_span() {
        let child = TraceParent::parse(GOOD).unwrap().child([0; 8]);
        assert_eq!(child.to_string(), "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000001-01");
        assert_eq!(TraceParent::parse(&child.to_string()), Some(child));
    }
}
