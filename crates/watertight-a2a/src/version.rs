//! The `A2A-Version` header or query value.

/// The protocol version that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    /// 1.0; patch numbers play no part.
    V1,
    /// 0.3, also when nothing is said.
    V03,
    /// Anything else; holds what was asked for, cleaned and bounded.
    Unsupported(String),
    /// Several that differ; holds two of them, cleaned and bounded.
    Differing(String),
}

impl Version {
    /// Reads the value of the header or query parameter.
    pub fn parse(value: Option<&str>) -> Version {
        let text = value.unwrap_or("").trim();
        let mut numbers = text.split('.');
        let (major, minor, patch) = (numbers.next().unwrap_or(""), numbers.next(), numbers.next());
        let is_patch = patch.is_none_or(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()));
        match (major, minor) {
            ("", None) => Version::V03,
            ("1", None | Some("0")) if is_patch && numbers.next().is_none() => Version::V1,
            ("0", Some("3")) if is_patch && numbers.next().is_none() => Version::V03,
            _ => Version::Unsupported(crate::text::clean(text, 32)),
        }
    }

    /// What a request asks for in all the places where it may say so: headers, and the query. A list in one value, as
    /// proxies make of repeated headers, is as many values; all of them have to agree.
    pub fn of_request<'a>(said: impl IntoIterator<Item = &'a str>) -> Version {
        let all: Vec<&str> =
            said.into_iter().flat_map(|value| value.split(',')).map(str::trim).filter(|one| !one.is_empty()).collect();
        let version = Version::parse(all.first().copied());
        match all.iter().find(|other| Version::parse(Some(other)) != version) {
            None => version,
            Some(other) => {
                Version::Differing(crate::text::clean(&format!("{} and {other}", all.first().unwrap_or(other)), 64))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let unsupported = |text: &str| Version::Unsupported(text.to_owned());
        for (value, version) in [
            (None, Version::V03),
            (Some(""), Version::V03),
            (Some("  "), Version::V03),
            (Some("0.3"), Version::V03),
            (Some("0.3.0"), Version::V03),
            (Some("1.0"), Version::V1),
            (Some(" 1.0 "), Version::V1),
            (Some("1.0.3"), Version::V1),
            (Some("1"), Version::V1),
            (Some("1.7"), unsupported("1.7")),
            (Some("99.0"), unsupported("99.0")),
            (Some("1.0."), unsupported("1.0.")),
            (Some("1.0.x"), unsupported("1.0.x")),
            (Some("1.0.0.0"), unsupported("1.0.0.0")),
            (Some("0.2"), unsupported("0.2")),
            (Some("v1.0"), unsupported("v1.0")),
            (Some("1.0\u{7}"), unsupported("1.0\u{fffd}")),
        ] {
            assert_eq!(Version::parse(value), version, "{value:?}");
        }
    }

    #[test]
    fn what_is_said_several_times_must_agree() {
        let differing = |text: &str| Version::Differing(text.to_owned());
        for (said, version) in [
            (&[][..], Version::V03),
            (&["", " , "], Version::V03),
            (&["1.0", "1.0.2"], Version::V1),
            (&["1.0, 1.0", "1"], Version::V1),
            (&["", "1.0"], Version::V1),
            (&["0.3", "0.3.1"], Version::V03),
            (&["2.0", "2.0"], Version::Unsupported("2.0".to_owned())),
            (&["1.0", "0.3"], differing("1.0 and 0.3")),
            (&["1.0, 1.0,9\u{7}"], differing("1.0 and 9\u{fffd}")),
        ] {
            assert_eq!(Version::of_request(said.iter().copied()), version, "{said:?}");
        }
    }
}
