//! The ways a call can take to the agent, each as processes with a configuration of their own, on loopback.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::process::Process;

/// What stands between the caller and the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Direct,
    Nginx,
    Memory,
    Durable,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::Nginx => "nginx",
            Kind::Memory => "memory",
            Kind::Durable => "durable",
        }
    }
}

/// The binaries, and where their files go.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) gateway: PathBuf,
    pub(crate) nginx: Option<PathBuf>,
    pub(crate) dir: PathBuf,
}

/// A way that is ready for calls.
pub(crate) struct Route {
    pub(crate) addr: SocketAddr,
    pub(crate) path: &'static str,
    /// What is measured: what stands between, or the agent where nothing does.
    pub(crate) under_test: Process,
    /// The agent behind it.
    _agent: Option<Process>,
}

/// The agent by itself.
pub(crate) fn agent(place: &Place) -> Result<(Process, SocketAddr), Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    Process::listening(command.arg("echo"), &place.dir.join("echo.log"))
}

/// A route with an agent of its own.
pub(crate) fn open(kind: Kind, place: &Place) -> Result<Route, Failure> {
    let (agent, addr) = agent(place)?;
    match kind {
        Kind::Direct => Ok(Route { addr, path: "/", under_test: agent, _agent: None }),
        Kind::Nginx => {
            let (under_test, addr) = nginx(place, addr)?;
            Ok(Route { addr, path: "/", under_test, _agent: Some(agent) })
        }
        Kind::Memory | Kind::Durable => {
            let dir = fresh(place, kind.as_str())?;
            let (under_test, addr) = gateway(place, &dir, &agents(kind, addr))?;
            Ok(Route { addr, path: "/agents/echo", under_test, _agent: Some(agent) })
        }
    }
}

/// The configuration of the agent `echo`: enough slots for every caller here, and every wall up.
pub(crate) fn agents(kind: Kind, agent: SocketAddr) -> String {
    let durability = if kind == Kind::Memory { "durability = \"memory\"\n" } else { "" };
    format!(
        "[agents.echo]\nurl = \"http://{agent}/\"\nmode = \"blocking\"\nmax_in_flight = 256\nmax_waiting = 256\n{durability}"
    )
}

/// The gateway with these agents, on the store in this directory.
pub(crate) fn gateway(place: &Place, dir: &Path, agents: &str) -> Result<(Process, SocketAddr), Failure> {
    let config = dir.join("watertight.toml");
    let store = dir.join("store");
    fs::write(&config, format!("listen = \"127.0.0.1:0\"\n\n[store]\npath = {store:?}\n\n{agents}"))?;
    let mut command = Command::new(&place.gateway);
    command.arg("serve").arg("--config").arg(&config).args(["--exit-with-stdin", "--log", "warn"]);
    Process::listening(&mut command, &dir.join("gateway.log"))
}

/// nginx as a reverse proxy is usually set up for speed: keep-alive on both sides, two workers, no logs.
fn nginx(place: &Place, agent: SocketAddr) -> Result<(Process, SocketAddr), Failure> {
    let binary = place.nginx.as_ref().ok_or("no nginx was named")?;
    let dir = fresh(place, "nginx")?;
    // A port that was free a moment ago.
    let addr = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?.local_addr()?;
    // As root it would change to a user that this machine may not have.
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {};\n", dir.join(name).display()))
        .concat();
    let config = format!(
        "{user}worker_processes 2;\ndaemon off;\npid {pid};\nerror_log stderr warn;\nevents {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  tcp_nodelay on;\n  keepalive_timeout 1h;\n  keepalive_requests 1000000000;\n{temp}\
         \x20 upstream agent {{ server {agent}; keepalive 256; keepalive_requests 1000000000; }}\n\
         \x20 server {{\n    listen {addr};\n    location / {{\n      proxy_pass http://agent;\n      proxy_http_version 1.1;\n\
         \x20     proxy_set_header Connection \"\";\n    }}\n  }}\n}}\n",
        pid = dir.join("nginx.pid").display(),
    );
    let file = dir.join("nginx.conf");
    fs::write(&file, config)?;
    let mut command = Command::new(binary);
    command.arg("-p").arg(&dir).arg("-e").arg("stderr").arg("-c").arg(&file);
    let mut process = Process::start(&mut command, &dir.join("nginx.log"))?;
    process.accepts(addr)?;
    Ok((process, addr))
}

/// An empty directory of this name.
pub(crate) fn fresh(place: &Place, name: &str) -> Result<PathBuf, Failure> {
    let dir = place.dir.join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    Ok(dir.canonicalize()?)
}
