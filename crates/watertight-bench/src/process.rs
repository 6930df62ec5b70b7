//! Processes that are measured: started, asked for CPU and memory through `/proc`, and always ended, by their own ids.
//!
//! The gateway and the agent also end when their stdin closes: with this process, however that goes.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock::now;
use crate::{Failure, stop};

/// How long a process may take to say where it listens.
const START: Duration = Duration::from_secs(30);
/// How long it may take to end when asked to.
const GRACE: Duration = Duration::from_secs(5);

/// A running process. Dropping it ends it, and waits for that.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
    /// What it said on stdout where it listens, and how long after its start.
    pub(crate) ready: Option<(SocketAddr, Duration)>,
}

/// What a process and its children used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// User and system time of all its threads.
    pub(crate) cpu: Duration,
    /// Resident memory.
    pub(crate) bytes: u64,
}

impl Process {
    /// Starts it; its stderr goes to the log.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Process, Failure> {
        let stderr = File::create(log).map_err(|e| format!("{}: {e}", log.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        // Ctrl-C is for this process, which then ends its children in order.
        command.process_group(0);
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().map_err(|e| format!("{program}: {e}"))?;
        Ok(Process { child, log: log.to_owned(), ready: None })
    }

    /// Starts one that says `listening on http://ADDR`, and waits for that.
    pub(crate) fn listening(command: &mut Command, log: &Path) -> Result<(Process, SocketAddr), Failure> {
        let began = now();
        let mut process = Process::start(command, log)?;
        let stdout = process.child.stdout.take().ok_or("a process without stdout")?;
        let (said, heard) = channel();
        thread::Builder::new().name("stdout".into()).spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // Whatever else it prints must not fill the pipe.
                if let Some((_, url)) = line.split_once("listening on http://") {
                    let _nobody_waits = said.send((url.trim().trim_end_matches('/').to_owned(), now()));
                }
            }
        })?;
        let (url, at) = match heard.recv_timeout(START) {
            Ok(heard) => heard,
            Err(RecvTimeoutError::Timeout) => return Err(process.failed("did not say where it listens").into()),
            Err(RecvTimeoutError::Disconnected) => return Err(process.failed("ended at once").into()),
        };
        let addr: SocketAddr = url.parse().map_err(|_| format!("{url} is no address"))?;
        process.ready = Some((addr, at - began));
        Ok((process, addr))
    }

    /// Waits until somebody accepts connections there.
    pub(crate) fn accepts(&mut self, addr: SocketAddr) -> Result<(), Failure> {
        let began = now();
        while began.elapsed() < START {
            stop::check()?;
            if std::net::TcpStream::connect(addr).is_ok() {
                return Ok(());
            }
            if self.child.try_wait()?.is_some() {
                return Err(self.failed("ended at once").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(self.failed("does not listen").into())
    }

    /// What it and its children used so far. All zero where there is no `/proc`.
    pub(crate) fn used(&self) -> Used {
        tree(self.child.id()).into_iter().fold(Used::default(), |sum, id| {
            let used = used(id).unwrap_or_default();
            Used { cpu: sum.cpu + used.cpu, bytes: sum.bytes + used.bytes }
        })
    }

    /// Its threads now. Zero where there is no `/proc`.
    pub(crate) fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.child.id())).map_or(0, Iterator::count)
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(mut self) {
        let _already_gone = self.child.kill();
        let _its_status = self.child.wait();
    }

    /// An error with the last lines of its log.
    fn failed(&self, how: &str) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines[lines.len().saturating_sub(6)..].join("\n  ");
        let name = self.log.file_stem().unwrap_or_default().to_string_lossy();
        format!("{name} {how}\n  {}", tail.escape_debug().to_string().replace("\\n", "\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has not been waited for: its id cannot be another's.
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id.filter(|_| matches!(self.child.try_wait(), Ok(None))) {
            let _already_gone = kill_process(id, Signal::TERM);
        }
        drop(self.child.stdin.take());
        let began = now();
        while began.elapsed() < GRACE {
            match self.child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _already_gone = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A process and all below it.
fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|id| Some((id, stat(id)?.get(1)?.parse().ok()?)))
        .collect();
    let mut all = vec![root];
    let mut at = 0;
    while let Some(&parent) = all.get(at) {
        all.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        at += 1;
    }
    all
}

fn used(id: u32) -> Option<Used> {
    let stat = stat(id)?;
    // Behind the name: state, ppid, …; user and system time are the 12th and 13th, resident pages the 22nd.
    let number = |at: usize| stat.get(at)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)?;
    let cpu = Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64);
    Some(Used { cpu, bytes: number(21)? * rustix::param::page_size() as u64 })
}

/// The fields of a process' `stat` that come behind its name, which may hold anything.
fn stat(id: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_ended_and_its_children_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo listening on http://127.0.0.1:9/; sleep 60 & wait"]);
        let (process, addr) = Process::listening(&mut command, &dir.path().join("sh.log")).unwrap();
        assert_eq!(addr.port(), 9);
        let began = now();
        while tree(process.child.id()).len() < 2 {
            assert!(began.elapsed() < Duration::from_secs(5), "the child is never seen");
        }
        assert!(process.used().bytes > 0);
        let (ids, sleeper) = (tree(process.child.id()), tree(process.child.id())[1]);
        drop(process);
        assert!(stat(ids[0]).is_none(), "it has ended, and was waited for");
        // The shell's child is not ours to end by name, and this test's to end by id.
        let _gone = kill_process(Pid::from_raw(sleeper as i32).unwrap(), Signal::TERM);
    }
}
