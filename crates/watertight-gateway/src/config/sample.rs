//! The file that `watertight init` writes: every key with its default or an example, commented out, and a sentence.
//!
//! A line that begins with [`MARK`] becomes valid when the mark is taken from it, alone or together with all others.

use super::keys::{self, Key, SECTIONS, Section};

/// What a setting is commented out with. Prose begins with a plain `#`.
pub const MARK: &str = "#: ";

/// Where the explanation of a setting begins, and the longest line.
const COLUMN: usize = 40;
const WIDTH: usize = 120;
/// The names that stand in examples.
const NAMES: [(&str, &str); 3] = [("agents.*", "hotels"), ("callers.*", "travel"), ("enrolment.*", "crew")];
/// What is worth looking at first for an agent of one's own. Headers are not: an example of a secret would ask for it.
const FIRST: [&str; 4] = ["max_in_flight", "max_waiting", "max_wait", "budget"];

const HEAD: &str = "\
# Watertight's configuration. A line that begins with `#:` shows a default, or an example to take the mark from.
# Lengths of time are written 500ms, 30s, 5m, 24h; sizes 64KiB, 16MiB; shares 50%. Paths are relative to this file.
# A secret is never written here: env:NAME or file:PATH says where it is. `watertight config docs` says more of every
# key, `watertight check` what this file means. SIGHUP makes a running gateway read it again.
";

/// The commented file, with these agents (name, URL) in it. Names and URLs are taken to be valid.
pub fn sample(agents: &[(String, String)]) -> String {
    let mut out = HEAD.to_owned();
    for section in SECTIONS {
        if section.path == "agents.*" {
            out.push_str(&agents.iter().map(own).collect::<String>());
        }
        out.push_str(&table(section));
    }
    out
}

/// An agent's own table.
fn own((name, url): &(String, String)) -> String {
    let first = keys::of("agents.*").filter(|key| FIRST.contains(&key.name())).map(|key| line(key, MARK));
    let lines: String = first.collect();
    format!("\n[agents.{}]\nurl = {}\n{lines}", keys::dotted(std::slice::from_ref(name)), quoted(url))
}

/// A table with all its keys; those under chosen names as an example, commented out as a whole.
fn table(section: &Section) -> String {
    let example = NAMES.iter().find(|(path, _)| section.path.starts_with(path));
    let head = match (section.path, example) {
        ("", _) => String::new(),
        (path, Some((_, name))) => format!("{MARK}[{}]\n", path.replace('*', name)),
        (path, None) => format!("[{path}]\n"),
    };
    // Where it is reached and where it keeps things is worth saying, even where it is the default.
    // What names another agent has none here to name.
    let mark = |key: &Key| match key.path {
        "listen" | "store.path" => "",
        "agents.*.parent" => "# such as: ",
        _ => MARK,
    };
    let lines: String = keys::of(section.path).map(|key| line(key, mark(key))).collect();
    format!("\n{}{head}{lines}", prose(section.doc))
}

/// A setting with its sentence beside it, or above it where there is no room.
fn line(key: &Key, mark: &str) -> String {
    let setting = format!("{mark}{} = {}", key.name(), key.shown());
    let beside = format!("{setting:<COLUMN$}# {}", key.doc);
    if setting.len() < COLUMN && beside.chars().count() <= WIDTH {
        format!("{beside}\n")
    } else {
        format!("{}{setting}\n", prose(key.doc))
    }
}

/// A comment, broken into lines.
fn prose(text: &str) -> String {
    let mut out = String::new();
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + word.len() >= WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    format!("{out}{line}\n")
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
