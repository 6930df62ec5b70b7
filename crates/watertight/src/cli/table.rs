//! Columns as wide as what stands in them, or as the terminal allows; and lengths of time for people.

/// One cell: what it says, and in which color where there is any. The color only repeats what a word says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
    /// What it says where there is little room.
    brief: Option<String>,
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
        Cell::toned(text, Tone::Plain)
    }
}

impl Cell {
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone, brief: None }
    }

    /// With what it says where there is little room.
    pub(super) fn or(self, brief: impl Into<String>) -> Cell {
        Cell { brief: Some(brief.into()), ..self }
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

/// What is given up of a table that is too wide, the least important first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The column of this name.
    LeaveOut(&'static str),
    /// Its cells say the short form.
    Brief(&'static str),
    /// It may be cut down to so many letters.
    Cut(&'static str, usize),
}

/// A head and rows. The cells are safe already: nothing here is escaped.
pub(super) fn table<const N: usize>(head: [&str; N], rows: Vec<[Cell; N]>, color: bool) -> String {
    fitted(head, rows, color, None, &[])
}

/// The same in so many letters a line, if there are so few: as many steps are taken as that needs. What still does not fit
/// after all of them is the terminal's to break.
pub(super) fn fitted<const N: usize>(
    head: [&str; N],
    mut rows: Vec<[Cell; N]>,
    color: bool,
    room: Option<usize>,
    steps: &[Step],
) -> String {
    let column = |of: &str| head.iter().position(|name| *name == of);
    let measure = |rows: &[[Cell; N]], at: usize| {
        let cells = rows.iter().map(|row| row[at].text.chars().count());
        Some(cells.max().unwrap_or(0).max(head[at].chars().count()))
    };
    let mut shown: [Option<usize>; N] = std::array::from_fn(|at| measure(&rows, at));
    let needs = |shown: &[Option<usize>; N]| shown.iter().flatten().map(|width| width + GAP).sum::<usize>();
    // The last column has no gap behind it.
    let room = room.map(|room| room + GAP);
    let too_wide = |shown: &[Option<usize>; N]| room.is_some_and(|room| needs(shown) > room);
    let mut cut = Vec::new();
    for step in steps {
        if !too_wide(&shown) {
            break;
        }
        match *step {
            Step::LeaveOut(name) => {
                if let Some(at) = column(name) {
                    shown[at] = None;
                }
            }
            Step::Brief(name) => {
                let Some(at) = column(name).filter(|at| shown[*at].is_some()) else { continue };
                for row in &mut rows {
                    if let Some(brief) = row[at].brief.take() {
                        row[at].text = brief;
                    }
                }
                shown[at] = measure(&rows, at);
            }
            Step::Cut(name, least) => {
                let Some((at, width)) = column(name).and_then(|at| Some((at, shown[at]?))) else { continue };
                cut.push((at, width));
                shown[at] = Some(width.min(least.max(head[at].chars().count())));
            }
        }
    }
    // What a later step has won is given back.
    for (at, width) in cut.into_iter().rev() {
        let left = room.unwrap_or(0).saturating_sub(needs(&shown));
        shown[at] = shown[at].map(|least| width.min(least + left));
    }
    let mut text = String::new();
    for row in std::iter::once(&head.map(Cell::from)).chain(&rows) {
        text += line(row, &shown, color).as_str();
        text.push('\n');
    }
    text
}

/// Between two columns.
const GAP: usize = 2;

fn line<const N: usize>(row: &[Cell; N], shown: &[Option<usize>; N], color: bool) -> String {
    let cells: Vec<(&Cell, usize)> =
        row.iter().zip(shown).filter_map(|(cell, width)| width.map(|width| (cell, width))).collect();
    let last = cells.iter().rposition(|(cell, _)| !cell.text.is_empty()).unwrap_or(0);
    let mut line = String::new();
    for (at, (cell, width)) in cells.into_iter().enumerate().take(last + 1) {
        let text = shortened(&cell.text, width);
        let fill = if at == last { 0 } else { width + GAP - text.chars().count() };
        line += &format!("{}{:fill$}", cell.tone.paint(&text, color), "");
    }
    line
}

/// At most so many letters; what is missing is marked.
fn shortened(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// A text broken between words into lines of so many letters, all but the first behind an indent.
pub(super) fn wrapped(text: &str, room: Option<usize>, indent: usize) -> String {
    let Some(room) = room.filter(|room| *room > indent + 10) else { return text.to_owned() };
    let (mut out, mut used) = (String::new(), 0);
    for (at, word) in text.split(' ').enumerate() {
        let letters = word.chars().count();
        if at > 0 && used + 1 + letters > room {
            out += &format!("\n{:indent$}", "");
            used = indent;
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += letters;
    }
    out
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
    fn what_is_least_important_goes_first_and_no_more_of_it_than_has_to() {
        let steps = [Step::LeaveOut("C"), Step::Brief("B"), Step::Cut("A", 4), Step::LeaveOut("B")];
        let rows = || vec![["aaaaaaaaaa".into(), Cell::from("bbbbbb").or("bbb"), "cccc".into(), "dd".into()]];
        let drawn = |room: usize| {
            let text = fitted(["A", "B", "C", "D"], rows(), false, Some(room), &steps);
            text.lines().nth(1).unwrap().to_owned()
        };
        assert_eq!(drawn(28), "aaaaaaaaaa  bbbbbb  cccc  dd");
        assert_eq!(drawn(27), "aaaaaaaaaa  bbbbbb  dd");
        assert_eq!(drawn(21), "aaaaaaaaaa  bbb  dd");
        assert_eq!(drawn(18), "aaaaaaaa…  bbb  dd");
        assert_eq!(drawn(13), "aaa…  bbb  dd");
        assert_eq!(drawn(12), "aaaaaaa…  dd", "what leaving out has won is given back");
        assert_eq!(drawn(3), "aaa…  dd", "there is no more to give up");
        assert_eq!(fitted(["A"], vec![["a".into()]], false, None, &steps), "A\na\n");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three four five", Some(13), 2), "one two three\n  four five");
        assert_eq!(wrapped("one two", None, 2), "one two");
        assert_eq!(wrapped("a-word-that-is-far-too-long x", Some(13), 2), "a-word-that-is-far-too-long\n  x");
    }

    #[test]
    fn lengths_of_time() {
        let said =
            [0.0, 0.4, 85.2, 1_500.0, 24_600.0, 190_000.0, 3_600_000.0, 7_500_000.0, 777_600_000.0].map(duration);
        assert_eq!(said, ["0 ms", "0.4 ms", "85 ms", "1.5 s", "25 s", "3 min 10 s", "1 h", "2 h 5 min", "9 d"]);
    }
}
