//! Errors that point at the line.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// What is wrong with a configuration: one text for people, every mistake in it with its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Invalid(String);

impl Invalid {
    /// A mistake without a place in a file.
    pub(super) fn plain(text: String) -> Invalid {
        Invalid(text)
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

/// One mistake.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) span: Range<usize>,
    pub(super) message: String,
    pub(super) help: Option<&'static str>,
    /// What stands at the place is a secret: show where, not what.
    pub(super) hide: bool,
}

/// Renders them like a compiler would. `path` is the file's name as the user wrote it.
pub(super) fn render(path: &str, source: &str, problems: &[Problem]) -> Invalid {
    let mut shown = source.to_owned();
    for hidden in problems.iter().filter(|p| p.hide) {
        let stars: String = source.get(hidden.span.clone()).unwrap_or("").bytes().map(|_| '*').collect();
        if shown.get(hidden.span.clone()).is_some() {
            shown.replace_range(hidden.span.clone(), &stars);
        }
    }
    let texts: Vec<String> = problems.iter().map(|problem| one(path, &shown, problem)).collect();
    Invalid(texts.join("\n\n"))
}

fn one(path: &str, shown: &str, problem: &Problem) -> String {
    let (start, end) = (problem.span.start.min(shown.len()), problem.span.end.min(shown.len()));
    // A missing key has no place of its own: only the first line of its table is worth showing.
    let first_line = shown.get(start..end).and_then(|s| s.find('\n')).map_or(end, |n| start + n);
    let snippet = Snippet::source(shown).path(path).annotation(AnnotationKind::Primary.span(start..first_line));
    let mut group = Level::ERROR.primary_title(problem.message.as_str()).element(snippet);
    if let Some(help) = problem.help {
        group = group.element(Level::HELP.message(help));
    }
    Renderer::plain().render(&[group])
}
