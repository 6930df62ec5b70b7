//! The binary's other commands, run to their end against a gateway, with what they print and how they end.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

use crate::clock::now;
use crate::gateway::Gateway;

/// Longer than any command takes that is not watching.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Stdout as JSON, one value a line.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        let parsed = self.out.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        parsed.unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The only JSON value on stdout.
    #[track_caller]
    pub(crate) fn only_json(&self) -> Value {
        let [value] = <[Value; 1]>::try_from(self.json()).unwrap_or_else(|_| panic!("not one value: {self:?}"));
        value
    }
}

/// `watertight ARGS` against this gateway.
pub(crate) fn watertight(gateway: &Gateway, args: &[&str]) -> Ran {
    end(start(gateway, args))
}

/// The same, begun and not waited for.
pub(crate) fn start(gateway: &Gateway, args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_watertight"))
        .args(args)
        .env("WATERTIGHT_URL", format!("http://{}", gateway.addr()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The same to its end, with a terminal of so many columns for stdout; what it showed there.
pub(crate) fn in_terminal(gateway: &Gateway, columns: u16, args: &[&str]) -> String {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    tcsetwinsize(&theirs, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_watertight"))
        .args(args)
        .env("WATERTIGHT_URL", format!("http://{}", gateway.addr()))
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(theirs)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // What it shows fits into the terminal's buffer or is read meanwhile; the end of the last writer is an error here.
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    let mut ours = File::from(ours);
    while let Ok(read @ 1..) = ours.read(&mut piece) {
        shown.extend_from_slice(&piece[..read]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(shown).unwrap().replace("\r\n", "\n")
}

/// Waits for its end; one that takes too long is killed, and fails the test.
#[track_caller]
pub(crate) fn end(mut child: Child) -> Ran {
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let out = thread::spawn(move || read(&mut stdout));
    let err = thread::spawn(move || read(&mut stderr));
    let start = now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() > PATIENCE => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it did not end: {}{}", out.join().unwrap(), err.join().unwrap());
            }
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    Ran { code: status.code().unwrap_or(-1), out: out.join().unwrap(), err: err.join().unwrap() }
}

/// Ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    let sent = Command::new("sh").arg("-c").arg(format!("kill -INT {}", child.id())).status().unwrap();
    assert!(sent.success());
}

fn read(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}
