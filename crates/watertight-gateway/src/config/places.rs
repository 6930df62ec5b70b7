//! Which keys a file says, and on which line: so that advice can tell what was chosen from what was left as it is.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The keys that were written. Empty for a file that cannot be read as TOML.
#[derive(Debug, Clone, Default)]
pub struct Places {
    lines: BTreeMap<Vec<String>, usize>,
}

impl Places {
    /// Finds them. However a key is written (a table, an inline table, dots), its path is the same.
    pub(super) fn of(source: &str) -> Places {
        let mut places = Places::default();
        if let Ok(table) = DeTable::parse(source) {
            places.collect(source, &mut Vec::new(), table.get_ref());
        }
        places
    }

    /// The line on which this key or table was written, if it was. The first line is 1.
    pub fn line(&self, path: &[String]) -> Option<usize> {
        self.lines.get(path).copied()
    }

    fn collect(&mut self, source: &str, path: &mut Vec<String>, table: &DeTable<'_>) {
        for (name, value) in table {
            path.push(name.get_ref().to_string());
            let before = source.get(..name.span().start).unwrap_or("");
            self.lines.insert(path.clone(), 1 + before.matches('\n').count());
            if let DeValue::Table(inner) = Spanned::get_ref(value) {
                self.collect(source, path, inner);
            }
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_however_it_is_written() {
        let places = Places::of(
            "listen = \"x\"\n[agents.a]\nurl = \"x\"\nbreaker.window = \"1s\"\n[agents.\"b.c\"]\nbreaker = { min_calls = 1 }\n",
        );
        let line = |path: &str| places.line(&path.split('/').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!((line("listen"), line("agents/a"), line("agents/a/url")), (Some(1), Some(2), Some(3)));
        assert_eq!((line("agents/a/breaker/window"), line("agents/b.c/breaker/min_calls")), (Some(4), Some(6)));
        assert_eq!((line("agents/a/card"), line("agents/b")), (None, None));
    }
}
