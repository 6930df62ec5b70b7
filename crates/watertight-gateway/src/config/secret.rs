//! Secrets: never written in the configuration, only where to find them. Never printed.

use std::fmt;
use std::fs;
use std::path::Path;

/// Something that must not appear in a log, an error or a debugger's line.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret that came from somewhere safe.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The secret itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Reads the environment. Only the binary has the real one.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where a secret could not be had from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It was written inline; it must not be shown again.
    Inline,
    /// It is not where the configuration says.
    Missing(String),
}

/// Finds the secret that `env:NAME` or `file:PATH` stands for. An authentication scheme may go before it, as in
/// `Bearer env:NAME`.
pub(super) fn find(written: &str, env: Env<'_>, dir: &Path) -> Result<Secret, Wrong> {
    let (scheme, place) = match written.split_once(' ') {
        Some((scheme, place))
            if !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') =>
        {
            (Some(scheme), place.trim())
        }
        _ => (None, written.trim()),
    };
    let found = if let Some(name) = place.strip_prefix("env:") {
        env(name).ok_or_else(|| Wrong::Missing(format!("the environment variable {name} is not set")))?
    } else if let Some(path) = place.strip_prefix("file:") {
        let path = dir.join(path);
        let text = fs::read_to_string(&path).map_err(|e| Wrong::Missing(format!("{}: {e}", path.display())))?;
        text.trim_end_matches(['\r', '\n']).to_owned()
    } else {
        return Err(Wrong::Inline);
    };
    if found.is_empty() || found.contains(['\r', '\n', '\0']) {
        return Err(Wrong::Missing(format!("what {place} holds is empty, or has more than one line")));
    }
    Ok(Secret(scheme.map_or(found.clone(), |scheme| format!("{scheme} {found}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "KEY" => Some("s3cret".to_owned()),
            "EMPTY" => Some(String::new()),
            "LINES" => Some("a\nb".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn from_the_environment_or_a_file_and_nowhere_else() {
        let dir = std::env::temp_dir();
        let find = |written: &str| find(written, &env, &dir).map(|s| s.expose().to_owned());
        assert_eq!(find("env:KEY"), Ok("s3cret".to_owned()));
        assert_eq!(find("Bearer env:KEY"), Ok("Bearer s3cret".to_owned()));
        assert_eq!(find("s3cret"), Err(Wrong::Inline));
        assert_eq!(find("Bearer s3cret"), Err(Wrong::Inline));
        assert!(matches!(find("env:NONE"), Err(Wrong::Missing(text)) if text.contains("NONE")));
        assert!(matches!(find("env:EMPTY"), Err(Wrong::Missing(_))));
        assert!(matches!(find("env:LINES"), Err(Wrong::Missing(_))));
        assert!(matches!(find("file:/does/not/exist"), Err(Wrong::Missing(text)) if text.contains("/does/not/exist")));
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Secret::new("s3cret".to_owned())), "(secret)");
    }
}
