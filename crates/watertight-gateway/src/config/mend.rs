//! Reads the file's shape past its mistakes: what does not fit is told, taken out, and the rest is read again, so that
//! one misspelled key does not hide the other mistakes.
//!
//! Assumes that the parser says where a mistake is. Leaves out what is no TOML at all: there the first one is all that
//! can be said, and nothing is known of the rest.

use std::ops::Range;

use serde::Deserialize;
use toml::de::{DeTable, DeValue, Deserializer};

use super::report::Problem;
use super::{shape, written};

/// One file is read again at most so often; more mistakes of shape than this are not told in one go.
const MISTAKES: usize = 100;

/// A file of which everything was read that fits.
#[derive(Debug)]
pub(super) struct Mended {
    pub(super) file: written::File,
    pub(super) problems: Vec<Problem>,
    taken: Vec<Taken>,
}

/// What was taken out.
#[derive(Debug)]
struct Taken {
    name: String,
    /// Where the name of its table stands.
    table: Range<usize>,
}

impl Mended {
    /// All mistakes, when the rest was judged too. What was taken out is not told to be missing as well.
    pub(super) fn with(self, mut judged: Vec<Problem>) -> Vec<Problem> {
        judged.retain(|problem| {
            !self.taken.iter().any(|taken| problem.span == taken.table && problem.message == missing(&taken.name))
        });
        judged.extend(self.problems);
        judged.sort_by_key(|problem| problem.span.start);
        judged
    }
}

/// What is said of a table without a key that it must have.
pub(super) fn missing(name: &str) -> String {
    format!("`{name}` is missing")
}

/// Reads it. An error holds what can be told when nothing can be read past it.
pub(super) fn read(source: &str) -> Result<Mended, Vec<Problem>> {
    let mut root = DeTable::parse(source).map_err(|e| vec![problem(&e)])?;
    let (mut problems, mut taken) = (Vec::new(), Vec::new());
    loop {
        let e = match written::File::deserialize(Deserializer::from(root.clone())) {
            Ok(file) => return Ok(Mended { file, problems, taken }),
            Err(e) => e,
        };
        let out = e.span().and_then(|span| take_out(root.get_mut(), &(0..0), &span));
        problems.push(problem(&e));
        match out {
            Some(out) if problems.len() < MISTAKES => taken.push(out),
            Some(_) | None => return Err(problems),
        }
    }
}

fn problem(e: &toml::de::Error) -> Problem {
    Problem { span: e.span().unwrap_or(0..0), message: shape::in_words(e.message()), help: None, hide: false }
}

/// Takes out the innermost key that stands at `span`, or whose value does.
fn take_out(table: &mut DeTable<'_>, named: &Range<usize>, span: &Range<usize>) -> Option<Taken> {
    let within = |place: Range<usize>| place.start <= span.start && span.end <= place.end;
    for (name, value) in table.iter_mut() {
        if let DeValue::Table(inner) = value.get_mut()
            && let Some(taken) = take_out(inner, &name.span(), span)
        {
            return Some(taken);
        }
    }
    let found = table.iter().find(|(name, value)| within(name.span()) || within(value.span()));
    let key = found.map(|(name, _)| name.clone())?;
    table.remove(&key);
    Some(Taken { name: key.get_ref().to_string(), table: named.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_and_the_rest_is_read() {
        let source = "listn = \"x\"\nserver = 3\n[agents.a]\nurl = 1\nbreaker.windw = \"1s\"\nheaders = { a = 1 }\n\
            [agents.b]\nmax_wait = \"1s\"\n[serv]\nx = 1\n";
        let mended = read(source).unwrap();
        let told: Vec<usize> =
            mended.problems.iter().map(|p| source[..p.span.start].matches('\n').count() + 1).collect();
        assert_eq!(told.len(), 6, "{told:?}");
        for line in [1, 2, 4, 5, 6, 9] {
            assert!(told.contains(&line), "line {line} is not told: {told:?}");
        }
        let names: Vec<&str> = mended.file.agents.keys().map(|name| name.as_ref().as_str()).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn there_is_an_end() {
        let lines: String = (0..300).map(|n| format!("k{n} = 1\n")).collect();
        assert_eq!(read(&lines).unwrap_err().len(), MISTAKES);
        assert_eq!(read("a = \nb = \n").unwrap_err().len(), 1);
    }
}
