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

    /// Joins header and query: both may be given if they agree, else the header's word stands as unsupported.
    pub fn of_request(header: Option<&str>, query: Option<&str>) -> Version {
        let given = |value: &&str| !value.trim().is_empty();
        match (header.filter(given), query.filter(given)) {
            (Some(header), Some(query)) if Version::parse(Some(header)) != Version::parse(Some(query)) => {
                Version::Unsupported(crate::text::clean(&format!("{header} and {query}"), 64))
            }
            (header, query) => Version::parse(header.or(query)),
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
    fn header_and_query_must_agree() {
        assert_eq!(Version::of_request(Some("1.0"), Some("1.0.2")), Version::V1);
        assert_eq!(Version::of_request(None, Some("1.0")), Version::V1);
        assert_eq!(Version::of_request(Some(""), Some("1.0")), Version::V1);
        assert_eq!(Version::of_request(Some("1.0"), Some("0.3")), Version::Unsupported("1.0 and 0.3".to_owned()));
    }
}
