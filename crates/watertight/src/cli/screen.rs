//! Looking again and again, until Ctrl-C: redrawn in place on a terminal, one after the other elsewhere.

use std::time::Duration;

use serde_json::{Value, json};

use super::exit::{Code, Failure};
use super::output;

/// What one look gives, for people and for machines.
pub(super) struct Frame {
    pub(super) text: String,
    pub(super) json: Value,
}

/// Looks every `pause`. The first look must succeed; a gateway that is away later is said to be, and waited for.
pub(super) async fn watch(
    pause: Duration,
    as_json: bool,
    mut look: impl AsyncFnMut() -> Result<Frame, Failure>,
) -> Result<Code, Failure> {
    let mut frame = look().await?;
    let screen = (!as_json && output::is_screen()).then(Screen::enter);
    let mut ticks = tokio::time::interval(pause);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        match &screen {
            Some(screen) => screen.draw(&frame.text),
            None if as_json => output::line(&frame.json.to_string()),
            None => output::line(&frame.text),
        }
        let next = async {
            ticks.tick().await;
            look().await
        };
        tokio::select! {
            next = next => frame = match next {
                Ok(frame) => frame,
                Err(failure) => Frame { json: json!({"error": {"message": failure.text}}), text: failure.text + "\n" },
            },
            stopped = tokio::signal::ctrl_c() => {
                stopped.map_err(|e| Failure::new(Code::Failed, format!("signals: {e}")))?;
                break;
            }
        }
    }
    if let Some(screen) = screen {
        // What was seen last stays to be read.
        drop(screen);
        output::out(&frame.text);
    }
    Ok(Code::Ok)
}

/// The terminal's other screen. It is given back when this is dropped.
struct Screen;

impl Screen {
    fn enter() -> Screen {
        output::out("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[J");
        Screen
    }

    fn draw(&self, text: &str) {
        let rows: Vec<String> = fitting(text, output::rows()).into_iter().map(|line| format!("{line}\x1b[K")).collect();
        output::out(&format!("\x1b[H{}\x1b[J", rows.join("\r\n")));
    }
}

/// As many lines as there is room for: one more would push the first ones out. What is left out is counted.
fn fitting(text: &str, room: Option<usize>) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if let Some(room) = room.filter(|room| (1..lines.len()).contains(room)) {
        let left_out = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(format!("({left_out} more lines than fit here)"));
    }
    lines
}

impl Drop for Screen {
    fn drop(&mut self) {
        output::out("\x1b[?7h\x1b[?25h\x1b[?1049l");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let text = "head\na\nb\nc\n";
        assert_eq!(fitting(text, Some(3)), ["head", "a", "(2 more lines than fit here)"]);
        for room in [Some(4), Some(50), Some(0), None] {
            assert_eq!(fitting(text, room), ["head", "a", "b", "c"]);
        }
    }
}
