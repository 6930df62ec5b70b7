//! The only place that prints. A reader that has gone away (`watertight tasks list | head`) is no reason to fail.

use std::io::{self, IsTerminal, Write};

/// Writes to stdout and flushes, so that who reads a pipe sees it now.
pub(super) fn out(text: &str) {
    let mut stdout = io::stdout().lock();
    let _reader_gone = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// One line to stdout.
pub(super) fn line(text: &str) {
    out(&format!("{text}\n"));
}

/// One line about what is going on, to stderr.
pub(super) fn note(text: &str) {
    let mut stderr = io::stderr().lock();
    let _reader_gone = writeln!(stderr, "{text}");
}

/// How it stands, on stderr, in place of what was said so before.
pub(super) fn progress(text: &str) {
    let mut stderr = io::stderr().lock();
    let _reader_gone = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
}

/// Why it did not work, to stderr. A report that points at lines of a file has its own beginning.
pub(super) fn complain(text: &str) {
    let is_report = text.starts_with("error: ");
    note(&if is_report { text.to_owned() } else { format!("watertight: {text}") });
}

/// What somebody else wrote, made safe for a terminal: line breaks and tabs stay, other control characters and those
/// that turn the direction of text are shown as what they are.
pub(super) fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        let turns = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
        if letter == '\n' || letter == '\t' || !(letter.is_control() || turns) {
            out.push(letter);
        } else {
            out.extend(letter.escape_unicode());
        }
    }
    out
}

/// The same, on one line.
pub(super) fn safe_line(text: &str) -> String {
    safe(text).replace('\n', "\\n").replace('\t', " ")
}

/// Whether stdout is a terminal that wants colors.
#[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
pub(super) fn wants_color() -> bool {
    std::env::var("NO_COLOR").map_or(true, |value| value.is_empty()) && is_screen()
}

/// How many lines the terminal at stdout shows, if it says so.
pub(super) fn rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

/// How many letters a line of the terminal at stdout takes. Where no terminal is, nothing is too long.
pub(super) fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Whether what is going on can be shown in place on stderr.
#[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
pub(super) fn shows_progress() -> bool {
    io::stderr().is_terminal() && std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb")
}

/// Whether stdout is a terminal on which a cursor can be moved.
#[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
pub(super) fn is_screen() -> bool {
    io::stdout().is_terminal() && std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_cannot_drive_the_terminal() {
        assert_eq!(safe("a\u{1b}[2Jb\tc\nd"), "a\\u{1b}[2Jb\tc\nd");
        assert_eq!(safe_line("x\nlevel=error"), "x\\nlevel=error");
        assert_eq!(safe("\u{202e}abc\r"), "\\u{202e}abc\\u{d}");
        assert_eq!(safe("é 👩‍🚀"), "é 👩‍🚀");
    }
}
