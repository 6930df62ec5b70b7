//! The built binary as a process of its own: configured, started, asked whether it is ready, stopped, killed, started again on the same store.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::client::Client;
use crate::clock::{eventually, ms, now};

/// A configuration in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    agents: String,
    top: String,
    store: String,
    last: String,
    files: Vec<(String, String)>,
}

impl Config {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// An agent with these settings of its own, one a line; a breaker that tests must not meet by accident, unless they set one.
    pub(crate) fn agent(mut self, name: &str, url: &str, settings: &[&str]) -> Self {
        let (breaker, own): (Vec<&str>, Vec<&str>) = settings.iter().partition(|line| line.starts_with("breaker."));
        writeln!(self.agents, "[agents.{name}]\nurl = \"{url}\"").unwrap();
        own.iter().for_each(|line| writeln!(self.agents, "{line}").unwrap());
        writeln!(self.agents, "[agents.{name}.breaker]").unwrap();
        if breaker.is_empty() {
            writeln!(self.agents, "consecutive_failures = 100000\nfailure_rate = \"0%\"\nslow_call_rate = \"0%\"")
                .unwrap();
        }
        breaker.iter().for_each(|line| writeln!(self.agents, "{}", &line["breaker.".len()..]).unwrap());
        self
    }

    /// A setting of the gateway itself, by its full name.
    pub(crate) fn top(mut self, line: &str) -> Self {
        writeln!(self.top, "{line}").unwrap();
        self
    }

    /// A table of its own.
    pub(crate) fn last(mut self, table: &str) -> Self {
        writeln!(self.last, "{table}").unwrap();
        self
    }

    /// A file beside the configuration.
    pub(crate) fn with_file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    /// A setting of its store.
    pub(crate) fn store(mut self, line: &str) -> Self {
        writeln!(self.store, "{line}").unwrap();
        self
    }

    /// Tables of their own, as they are.
    pub(crate) fn tables(mut self, text: &str) -> Self {
        self.agents.push_str(text);
        self
    }

    pub(crate) fn start(self) -> Gateway {
        self.start_on(|_| {})
    }

    /// On a store that is filled before the process starts.
    pub(crate) fn start_on(self, fill: impl FnOnce(&Path)) -> Gateway {
        let dir = TempDir::new().unwrap();
        let store = dir.path().join("store");
        fill(&store);
        let Config { agents, top, store: settings, last, files } = self;
        let text = format!("listen = \"127.0.0.1:0\"\n{top}\n[store]\npath = {store:?}\n{settings}\n{agents}\n{last}");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        fs::write(dir.path().join("watertight.toml"), text).unwrap();
        let key = dir.path().join("watertight.key");
        fs::write(&key, format!("watertight-key 1\ntest {}\n", "5f".repeat(32))).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let mut gateway = Gateway { dir, running: None, log: Arc::default() };
        gateway.start();
        gateway
    }
}

/// A gateway with a directory of its own. Dropping it kills the process that it started, and no other.
pub(crate) struct Gateway {
    dir: TempDir,
    running: Option<(Child, SocketAddr)>,
    log: Arc<Mutex<String>>,
}

impl Gateway {
    /// Starts the process, and waits until it says where it listens and that it is ready.
    pub(crate) fn start(&mut self) {
        assert!(self.running.is_none(), "already running");
        let mut child = Command::new(env!("CARGO_BIN_EXE_watertight"))
            .arg("serve")
            .arg("--config")
            .arg(self.dir.path().join("watertight.toml"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (log, mut stderr) = (self.log.clone(), child.stderr.take().unwrap());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = stderr.read(&mut bytes) {
                log.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        let lines = lines(&mut child);
        let listening = eventually(Duration::from_secs(20), "the gateway says where it listens", || {
            while let Ok(line) = lines.try_recv() {
                if let Some(addr) = line.strip_prefix("listening on http://") {
                    return Some(addr.trim_end_matches('/').parse().unwrap());
                }
            }
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the gateway ended with {status}:\n{}", self.log());
            }
            None
        });
        self.running = Some((child, listening));
        let client = self.client();
        eventually(Duration::from_secs(10), "the gateway is ready", || {
            (client.http("GET", "/readyz", &[], b"").ok()?.status == 200).then_some(())
        });
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.addr())
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.running.as_ref().expect("the gateway is running").1
    }

    /// A file in its directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Everything that it wrote to its log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.running.as_mut().is_some_and(|(child, _)| child.try_wait().unwrap().is_none())
    }

    /// The id of its process.
    pub(crate) fn process(&self) -> u32 {
        self.running.as_ref().expect("the gateway is running").0.id()
    }

    /// Kills it as a power cut would.
    pub(crate) fn kill(&mut self) {
        let (mut child, _) = self.running.take().expect("the gateway is running");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Where its configuration is.
    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("watertight.toml")
    }

    /// Changes its file: every `from` becomes `to`.
    #[track_caller]
    pub(crate) fn rewrite(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.config()).unwrap();
        assert!(text.contains(from), "{from} is not in it:\n{text}");
        fs::write(self.config(), text.replace(from, to)).unwrap();
    }

    /// Tells it to read its configuration again, without waiting.
    pub(crate) fn hang_up(&self) {
        self.signal("HUP");
    }

    /// Stops the process for a while, as a frozen machine would.
    pub(crate) fn freeze(&self, time: Duration) {
        self.signal("STOP");
        std::thread::sleep(time);
        self.signal("CONT");
    }

    /// Asks it to stop, without waiting.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    fn signal(&self, name: &str) {
        let id = self.running.as_ref().expect("the gateway is running").0.id();
        let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {id}")).status().unwrap();
        assert!(sent.success(), "kill -{name} {id}: {sent}");
    }

    /// Waits until it has ended, and says how and after how long.
    pub(crate) fn ended(&mut self, limit: Duration) -> (ExitStatus, Duration) {
        let start = now();
        let (mut child, addr) = self.running.take().expect("the gateway is running");
        while start.elapsed() < limit {
            if let Some(status) = child.try_wait().unwrap() {
                return (status, start.elapsed());
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.running = Some((child, addr));
        panic!("still running after {limit:?}");
    }

    /// Memory in use, in KiB, as the operating system counts it.
    pub(crate) fn resident(&self) -> u64 {
        let id = self.running.as_ref().expect("the gateway is running").0.id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("");
        line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// The sum of an agent's metrics whose name ends so, or `None` where there is no such metric.
    pub(crate) fn metric(&self, name: &str, agent: &str) -> Option<f64> {
        let page = self.client().http("GET", "/metrics", &[], b"").unwrap();
        let page = String::from_utf8_lossy(&page.body).into_owned();
        let label = format!("agent=\"{agent}\"");
        page.lines()
            .filter(|line| line.split('{').next().is_some_and(|n| n.ends_with(name)) && line.contains(&label))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .reduce(|a, b| a + b)
    }

    /// A metric comes to have this value: most are up to date only a moment after what they count.
    #[track_caller]
    pub(crate) fn counts(&self, name: &str, agent: &str, value: f64) {
        let counted = || (self.metric(name, agent) == Some(value)).then_some(());
        eventually(ms(5_000), &format!("{name} of {agent} is {value}"), counted);
    }

    /// Fails the test unless the agent's slots and places in the line are all free again.
    #[track_caller]
    pub(crate) fn assert_drains(&self, agent: &str, limit: Duration) {
        for gauge in ["in_flight", "waiting"] {
            eventually(limit, &format!("{gauge} of {agent} is back at zero"), || {
                (self.metric(gauge, agent).expect("the gauge exists") == 0.0).then_some(())
            });
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.running.take() {
            child.kill().ok();
            child.wait().ok();
        }
        if thread::panicking() {
            eprintln!("--- the gateway's log ---\n{}", self.log());
        }
    }
}

fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let stdout = child.stdout.take().unwrap();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            sender.send(line).ok();
        }
    });
    receiver
}
