//! Lengths of time, sizes and shares as people write them. Every function says in its error what would have been right.

use watertight_policy::time::Span;

/// `500ms`, `30s`, `1.5m`, `24h`: a number and a unit, without a sign.
pub(super) fn span(text: &str) -> Result<Span, String> {
    let (number, unit) = split(text);
    let scale = match unit {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" | "min" => 60e6,
        "h" => 3_600e6,
        "d" => 86_400e6,
        _ => {
            return Err(format!(
                "`{text}` is no length of time: write a number and a unit, such as 500ms, 30s, 5m or 24h"
            ));
        }
    };
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Span::from_secs_f64(number * scale / 1e6)),
        Ok(_) | Err(_) => Err(format!("`{text}` is no length of time: `{number}` is not a number")),
    }
}

/// `512B`, `64KiB`, `16MiB`, `1GiB`, and the decimal `kB`, `MB`, `GB`: a whole number and a unit.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let scale: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => {
            return Err(format!("`{text}` is no size: write a whole number and a unit, such as 512B, 256KiB or 16MiB"));
        }
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no size: `{number}` is not a whole number"))?;
    number.checked_mul(scale).ok_or_else(|| format!("`{text}` is more bytes than can be counted"))
}

/// `50%`, `12.5%`: basis points, of at most 100 %.
pub(super) fn share(text: &str) -> Result<u16, String> {
    let wrong = || format!("`{text}` is no share: write a percentage from 0% to 100%, such as 50%");
    let number: f64 = text.trim().strip_suffix('%').ok_or_else(wrong)?.trim().parse().map_err(|_| wrong())?;
    // In range, so the cast is exact to the nearest basis point.
    if (0.0..=100.0).contains(&number) { Ok((number * 100.0).round() as u16) } else { Err(wrong()) }
}

/// A length of time as a file would hold it: the largest unit that it is a whole number of.
pub(super) fn write_span(span: Span) -> String {
    let micros = span.as_micros();
    let units = [("d", 86_400_000_000, 2), ("h", 3_600_000_000, 1), ("m", 60_000_000, 2), ("s", 1_000_000, 0)];
    let fits = |(_, unit, least): &&(&str, u64, u64)| micros.is_multiple_of(*unit) && micros >= unit * least;
    match units.iter().find(fits) {
        Some((name, unit, _)) => format!("{}{name}", micros / unit),
        None if micros.is_multiple_of(1_000) => format!("{}ms", micros / 1_000),
        None => format!("{micros}us"),
    }
}

/// A size as a file would hold it.
pub(super) fn write_size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// A share as a file would hold it.
pub(super) fn write_share(basis_points: u32) -> String {
    format!("{}%", f64::from(basis_points) / 100.0)
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    (number, unit.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        let micros = |text| span(text).map(Span::as_micros);
        assert_eq!(micros("500ms"), Ok(500_000));
        assert_eq!(micros("0.5s"), Ok(500_000));
        assert_eq!(micros("30 s"), Ok(30_000_000));
        assert_eq!(micros("5m"), Ok(300_000_000));
        assert_eq!(micros("24h"), Ok(86_400_000_000));
        assert_eq!(micros("0s"), Ok(0));
        for bad in ["", "30", "s", "-1s", "1e9s", "1.2.3s", "five s", "30sec", "s30", "ms"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for text in ["500ms", "30s", "60s", "5m", "90m", "24h", "7d", "0s", "1500us", "1h"] {
            assert_eq!(write_span(span(text).unwrap()), text);
        }
        for text in ["0B", "1000B", "256KiB", "16MiB", "3GiB", "1025KiB"] {
            assert_eq!(write_size(size(text).unwrap()), text);
        }
        for text in ["0%", "12.5%", "100%", "0.01%"] {
            assert_eq!(write_share(u32::from(share(text).unwrap())), text);
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(size("256KiB"), Ok(262_144));
        assert_eq!(size("16 MiB"), Ok(16 << 20));
        assert_eq!(size("1kB"), Ok(1_000));
        assert_eq!(size("0B"), Ok(0));
        for bad in ["", "12", "1.5MiB", "-1B", "1kib", "99999999999GiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(share("50%"), Ok(5_000));
        assert_eq!(share("12.5 %"), Ok(1_250));
        assert_eq!(share("100%"), Ok(10_000));
        for bad in ["", "50", "-1%", "101%", "NaN%", "half"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }
}
