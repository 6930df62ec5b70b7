//! `watertight demo`: real agents, a real gateway, and one agent that turns slow.
//!
//! A travel orchestrator in this process answers four trips per second by asking three agents. Before, all is well;
//! during the fault the hotels agent takes 30 s instead of 1.5 s; afterwards it recovers. With walls, the calls go through
//! a gateway, and only the hotels part of an answer suffers. `--without-walls` shows the same fault with one shared
//! pool of calls and no gateway.
//!
//! Agents and gateway are child processes of this one and end with it (see `children`). The demo ends with a report
//! and a verdict per claim; `Ending::exit_code` says what becomes of the verdicts.

pub(crate) mod agent;
mod children;
mod client;
mod clock;
mod conduct;
mod metrics;
mod model;
mod orchestrator;
mod output;
mod report;
mod stats;
mod verdicts;
mod view;
mod watcher;

use std::fmt;
use std::io;

use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use model::Agent;
use model::{Schedule, TRIPS_PER_SECOND};

/// How calls reach the agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Through a gateway.
    Walls,
    /// Straight to the agents through one pool of 64.
    WithoutWalls,
    /// Straight to the agents without any limit: the verdicts on walls must fail then.
    Direct,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Walls => "with walls",
            Mode::WithoutWalls => "without walls",
            Mode::Direct => "straight to the agents",
        })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The whole run, without the start of the processes and up to 6 s for the last answers.
    pub(crate) seconds: u64,
    pub(crate) mode: Mode,
    /// One JSON object on stdout, and no view.
    pub(crate) json: bool,
    /// The gateway's port; 0 takes any free one.
    pub(crate) port: u16,
    /// Whether stdout is a terminal that takes colour.
    pub(crate) color: bool,
    /// Whether stdout is a terminal to draw on.
    pub(crate) view: bool,
}

/// How a demo ended that could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    AllHold,
    SomeDoNotHold,
    Interrupted,
}

impl Ending {
    /// 0: every verdict is PASS. 1: at least one is FAIL. 130: interrupted.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Ending::AllHold => 0,
            Ending::SomeDoNotHold => 1,
            Ending::Interrupted => 130,
        }
    }
}

/// Why a demo could not run.
#[derive(Debug)]
pub(crate) enum Error {
    TooShort { seconds: u64, least: u64, why: &'static str },
    TooLong { most: u64 },
    Start { child: String, why: String },
    Died { child: String, why: String },
    Broken(String),
    Io(io::Error),
}

impl Error {
    /// 2: the command makes no sense. 3: the demo could not be run to its end.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Error::TooShort { .. } | Error::TooLong { .. } => 2,
            Error::Start { .. } | Error::Died { .. } | Error::Broken(_) | Error::Io(_) => 3,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::TooShort { seconds, least, why } => {
                write!(f, "--seconds {seconds} is too short: {why}; at least {least} are needed")
            }
            Error::TooLong { most } => write!(f, "--seconds may be at most {most}"),
            Error::Start { child, why } => write!(f, "cannot start {child}: {why}"),
            Error::Died { child, why } => write!(f, "{child} ended during the demo: {why}"),
            Error::Broken(why) => f.write_str(why),
            Error::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Io(e)
    }
}

/// Runs the demo until its report, an error, or a signal to stop; all children have ended when it returns.
pub(crate) async fn run(options: Options) -> Result<Ending, Error> {
    let schedule = schedule(options.mode, options.seconds)?;
    let home = tempfile::Builder::new().prefix("watertight-demo-").tempdir()?;
    let mut children = children::Children::new(std::env::current_exe()?, home.path());
    let ending = tokio::select! {
        report = conduct::run(&options, schedule, &mut children, home.path()) => report.map(Some),
        () = stop_signal() => Ok(None),
    };
    if let Ok(None) = ending {
        output::progress("interrupted: ending the agents and the gateway");
    }
    children.end().await;
    let Some(report) = ending? else { return Ok(Ending::Interrupted) };
    output::out(&if options.json { report.json() } else { report.text(options.color) });
    Ok(if report.pass { Ending::AllHold } else { Ending::SomeDoNotHold })
}

const LEAST_SECONDS: u64 = 40;
const MOST_SECONDS: u64 = 3_600;

/// A fifth before the fault, half or more during it, the rest after it.
fn schedule(mode: Mode, seconds: u64) -> Result<Schedule, Error> {
    let why = match mode {
        Mode::WithoutWalls => "the collapse shows only 16 s into the fault",
        Mode::Walls | Mode::Direct => "hotels must be ejected, probed and re-admitted",
    };
    if seconds < LEAST_SECONDS {
        return Err(Error::TooShort { seconds, least: LEAST_SECONDS, why });
    }
    if seconds > MOST_SECONDS {
        return Err(Error::TooLong { most: MOST_SECONDS });
    }
    let before = seconds / 5;
    let after = match mode {
        Mode::WithoutWalls => seconds / 5,
        // The last failed probe can end 5.7 s after the fault, and the longest ejection is 10 s.
        Mode::Walls | Mode::Direct => 18.max(seconds * 3 / 10),
    };
    let trips = |seconds: u64| seconds * TRIPS_PER_SECOND;
    Ok(Schedule { trips: trips(seconds), fault_from: trips(before), fault_to: trips(seconds - after) })
}

/// Ctrl-C, SIGTERM, or the terminal going away.
pub(crate) async fn stop_signal() {
    let one = async |kind| match signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = one(SignalKind::interrupt()) => {}
        () = one(SignalKind::terminate()) => {}
        () = one(SignalKind::hangup()) => {}
    }
}

/// Resolves at the end of stdin: how a child learns that its parent is gone, however the parent went.
pub(crate) async fn stdin_closed() {
    let (open, closed) = tokio::sync::oneshot::channel::<()>();
    // A thread of its own, because the runtime would wait for its own blocking reads when it shuts down.
    std::thread::spawn(move || {
        let _end_or_error = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(open);
    });
    let _closed = closed.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_fit_the_run() {
        let walls = schedule(Mode::Walls, 60).unwrap();
        assert_eq!(walls, Schedule { trips: 240, fault_from: 48, fault_to: 168 });
        let shortest = schedule(Mode::Walls, 40).unwrap();
        assert_eq!(shortest, Schedule { trips: 160, fault_from: 32, fault_to: 88 });
        let bare = schedule(Mode::WithoutWalls, 40).unwrap();
        assert_eq!(bare, Schedule { trips: 160, fault_from: 32, fault_to: 128 });
    }

    #[test]
    fn a_run_that_cannot_show_anything_is_refused() {
        let said = schedule(Mode::WithoutWalls, 39).unwrap_err();
        assert_eq!(
            said.to_string(),
            "--seconds 39 is too short: the collapse shows only 16 s into the fault; at least 40 are needed"
        );
        assert_eq!(said.exit_code(), 2);
        assert!(schedule(Mode::Walls, 0).is_err());
        assert!(schedule(Mode::Walls, u64::MAX).is_err());
    }
}
