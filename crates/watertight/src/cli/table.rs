//! Columns as wide as what stands in them, and lengths of time for people.

/// One cell: what it says, and in which color where there is any. The color only repeats what a word says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), tone: Tone::Plain }
    }
}

impl Cell {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone }
    }
}

impl Tone {
    pub(super) fn paint(self, text: &str, color: bool) -> String {
        let code = match self {
            Tone::Plain => "",
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
        };
        if !color || code.is_empty() { text.to_owned() } else { format!("\x1b[{code}m{text}\x1b[0m") }
    }
}

/// A head and rows. The cells are safe already: nothing here is escaped.
pub(super) fn table<const N: usize>(head: [&str; N], rows: Vec<[Cell; N]>, color: bool) -> String {
    let mut widths = head.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.text.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&head.map(Cell::from)).chain(&rows) {
        let mut line = String::new();
        let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or(0);
        for (at, (cell, width)) in row.iter().zip(widths).enumerate().take(last + 1) {
            let fill = if at == last { 0 } else { width + 2 - cell.text.chars().count() };
            line += &format!("{}{:fill$}", cell.tone.paint(&cell.text, color), "");
        }
        text += &line;
        text.push('\n');
    }
    text
}

/// `85 ms`, `1.5 s`, `25 s`, `3 min 10 s`, `2 h 5 min`, `9 d`: at most two parts, none of them zero.
pub(super) fn duration(millis: f64) -> String {
    let secs = millis / 1e3;
    let whole = secs.round() as u64;
    let parts = |large: u64, name: &str, small: u64, small_name: &str| match small {
        0 => format!("{large} {name}"),
        _ => format!("{large} {name} {small} {small_name}"),
    };
    match secs {
        s if s < 0.000_05 => "0 ms".to_owned(),
        s if s < 0.009_5 => format!("{millis:.1} ms"),
        s if s < 0.999_5 => format!("{millis:.0} ms"),
        s if s < 9.95 => format!("{s:.1} s"),
        _ if whole < 120 => format!("{whole} s"),
        _ if whole < 3_600 => parts(whole / 60, "min", whole % 60, "s"),
        _ if whole < 172_800 => parts(whole / 3_600, "h", whole % 3_600 / 60, "min"),
        _ => parts(whole / 86_400, "d", whole % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_head_and_columns_that_fit() {
        let rows = vec![["1", "COMPLETED", ""], ["12345", "FAILED", "agent_reset"]].into_iter();
        let text = table(["TASK", "STATE", "REASON"], rows.map(|row| row.map(Cell::from)).collect(), true);
        assert_eq!(text, "TASK   STATE      REASON\n1      COMPLETED\n12345  FAILED     agent_reset\n");
    }

    #[test]
    fn color_does_not_move_columns() {
        let row = || [Cell::toned("ejected", Tone::Bad), "9".into()];
        assert_eq!(table(["S", "N"], vec![row()], true), "S        N\n\x1b[31mejected\x1b[0m  9\n");
        assert_eq!(table(["S", "N"], vec![row()], false), "S        N\nejected  9\n");
    }

    #[test]
    fn lengths_of_time() {
        let said =
            [0.0, 0.4, 85.2, 1_500.0, 24_600.0, 190_000.0, 3_600_000.0, 7_500_000.0, 777_600_000.0].map(duration);
        assert_eq!(said, ["0 ms", "0.4 ms", "85 ms", "1.5 s", "25 s", "3 min 10 s", "1 h", "2 h 5 min", "9 d"]);
    }
}
