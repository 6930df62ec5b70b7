//! `docs/config.md`: the reference, made from the table of keys.

use super::keys::{self, Key, Kind, Reload, SECTIONS};

const HEAD: &str = "# Configuration

One TOML file, `watertight.toml`, made by `watertight init` with every key in it. This page is made from the same table as that file and the
schema: `watertight config docs` prints it for the version at hand.

- **A length of time** is a number and a unit: `500ms`, `30s`, `5m`, `24h`, `7d`. **A size**: `64KiB`, `16MiB`, or the decimal `kB`, `MB`.
  **A share**: `50%`, `12.5%`. **Paths** are relative to the file.
- **A secret is never written in the file.** `env:NAME` or `file:PATH` says where it is; a scheme may go before it: `\"Bearer env:TOKEN\"`.
- **Mistakes are told all at once**, each with its line, by `serve`, `check` and a reload alike. An unknown key is one. Of a file that is no TOML only
  the first is told: a missing quote leaves nothing to go by.
- **Looking before leaping**: `watertight check` reads the file, asks every agent for its card, shows what is in force and what has no effect;
  `watertight check --without hotels` says what it costs when that agent fails.
- **Reload**: SIGHUP, or `POST /v1/config/reload` with an operator's token. A file with mistakes changes nothing. *live* keys apply at once: what
  runs goes on, what is new follows the new file; an agent that is no longer in it finishes what it has, and takes nothing new (`agent_draining`).
  *restart* keys wait for the next start, and the answer, the log and `GET /v1/config` name those that do. In containers the file must be replaced
  where it is looked up at a reload; a token in an environment variable cannot change while the process runs, one in a file can.
- **Editors**: `watertight config schema > watertight.schema.json` prints a JSON Schema (the same as `docs/watertight.schema.json`). With
  [taplo](https://taplo.tamasfe.dev) (Even Better TOML in VS Code) a first line `#:schema ./watertight.schema.json` gives completion, the
  sentences below, and marks for what does not fit.
";

/// The whole page.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    for section in SECTIONS {
        let title = match section.path {
            "" => "Top of the file".to_owned(),
            path => format!("[{}]", path.replace('*', "NAME")),
        };
        out.push_str(
            &format!("\n## `{title}`\n\n{}\n\n", section.doc).replace("## `Top of the file`", "## Top of the file"),
        );
        out.push_str(
            "| key | value | without it | what it is | when to change it | reload |\n|---|---|---|---|---|---|\n",
        );
        for key in keys::of(section.path) {
            out.push_str(&row(key));
        }
    }
    out
}

fn row(key: &Key) -> String {
    let reload = match key.reload {
        Reload::Live => "live",
        Reload::Restart => "restart",
    };
    let cells = [format!("`{}`", key.name()), value(key), without(key), key.doc.to_owned(), key.more.to_owned()];
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} | {reload} |\n", cells.join(" | "))
}

fn value(key: &Key) -> String {
    let least = match key.least {
        "" => String::new(),
        ">0" => ", not zero".to_owned(),
        least => format!(", at least `{}`", least.trim_matches('"')),
    };
    let kind = match key.kind {
        Kind::Duration => "time",
        Kind::Size => "size",
        Kind::Share => "share",
        Kind::Count => "number",
        Kind::Flag => "`true`, `false`",
        Kind::Word(words) => return words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", "),
        Kind::Url => "URL",
        Kind::Address => "HOST:PORT",
        Kind::Path => "path",
        Kind::Name => "name",
        Kind::Names => "list of agents",
        Kind::Command => "list: a program and its arguments",
        Kind::Nets => "list of addresses and networks",
        Kind::Secret => "place of a secret",
        Kind::Headers => "table: header = place of a secret",
    };
    format!("{kind}{least}")
}

fn without(key: &Key) -> String {
    let default = key.default.map(|default| format!("`{}`", default.trim_matches('"')));
    match (default, key.otherwise) {
        _ if key.required => "**required**".to_owned(),
        (Some(default), "") => default,
        (Some(default), otherwise) if otherwise.starts_with("or ") => format!("{default}, {otherwise}"),
        (Some(default), otherwise) => format!("{default}; {otherwise}"),
        (None, otherwise) => otherwise.to_owned(),
    }
}
