//! What the parser says of a file's shape, in the words of whoever wrote the file.
//!
//! Assumes serde's own phrases; one that is not known goes through as it is.

/// The message for people.
pub(super) fn in_words(said: &str) -> String {
    if let Some(unknown) = unknown_field(said) {
        return unknown;
    }
    if said == "duplicate key" {
        return "this name stands here for the second time".to_owned();
    }
    let Some((_, expected)) = said.split_once(", expected ").filter(|_| said.starts_with("invalid ")) else {
        return said.to_owned();
    };
    let belongs = match expected {
        "u32" => "a whole number belongs here, without quotes and sign, such as 8",
        "a string" => "a text in quotes belongs here; times and sizes have a unit, such as \"500ms\" or \"16MiB\"",
        "a boolean" => "true or false belongs here, without quotes",
        "a sequence" => "a list belongs here, such as [\"hotels\"]",
        "a map" => "tables with names belong here, such as [agents.hotels]",
        table if table.starts_with("struct ") => "a table belongs here, such as [server] or [agents.hotels]",
        _ => return said.to_owned(),
    };
    belongs.to_owned()
}

/// ``unknown field `x`, expected one of `a`, `b` ``, with the one that was meant, or with all.
fn unknown_field(said: &str) -> Option<String> {
    let (unknown, known) = said.strip_prefix("unknown field `")?.split_once("`, expected ")?;
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let near = known.iter().map(|name| (distance(unknown, name), *name)).min();
    Some(match near {
        Some((far, name)) if far <= 1 + name.len() / 4 => {
            format!("unknown field `{unknown}`: did you mean `{name}`?")
        }
        Some(_) | None => format!("unknown field `{unknown}`: there are {}", known.join(", ")),
    })
}

/// How many letters have to be added, left out or changed. Both are short: one is a key of ours, the other a file's line.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().take(64).enumerate() {
        let mut before = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let next = (before + usize::from(!x.eq_ignore_ascii_case(&y))).min(left + 1).min(*cell + 1);
            before = std::mem::replace(cell, next);
            left = next;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_between_words() {
        for (a, b, far) in
            [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("URL", "url", 0), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), far, "{a} {b}");
        }
    }

    #[test]
    fn what_was_meant() {
        let said = |unknown| format!("unknown field `{unknown}`, expected one of `url`, `max_in_flight`, `max_wait`");
        assert_eq!(in_words(&said("max_inflight")), "unknown field `max_inflight`: did you mean `max_in_flight`?");
        assert_eq!(in_words(&said("uri")), "unknown field `uri`: did you mean `url`?");
        let all = "unknown field `timeout`: there are url, max_in_flight, max_wait";
        assert_eq!(in_words(&said("timeout")), all);
        assert_eq!(in_words("unknown field `a`, expected `limit`"), "unknown field `a`: there are limit");
        assert_eq!(in_words("something else, expected by nobody"), "something else, expected by nobody");
    }
}
