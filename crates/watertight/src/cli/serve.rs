//! `watertight serve`: the gateway as a process.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use watertight_gateway::Gateway;
use watertight_gateway::config::{Config, InstanceKey, KeyFile};
use watertight_gateway::http::live::{Common, Live};
use watertight_gateway::http::server;
use watertight_gateway::http::workers::Workers;
use watertight_gateway::tokens::Tokens;
use watertight_policy::time::Span;

use super::args::ServeArgs;
use super::exit::{Code, Failure};
use super::{log, output};
use crate::demo;

pub(super) async fn run(args: ServeArgs) -> Result<Code, Failure> {
    log::start(args.log_format, args.log.as_deref())?;
    let config = Config::load(&args.config, args.listen, &env).map_err(|e| Failure::usage(e.to_string()))?;
    let key = instance_key(&config.key)?;
    let no_signals = |e: io::Error| Failure::new(Code::Failed, format!("signals: {e}"));
    let mut signals = Signals::new().map_err(no_signals)?;
    let mut hangups = signal(SignalKind::hangup()).map_err(no_signals)?;
    // First the address, then the store: who cannot listen must not pick up work.
    let listener = TcpListener::bind(config.listen).await.map_err(|e| {
        let help = "; --listen HOST:PORT takes another address";
        Failure::new(Code::Failed, format!("{} cannot be listened on: {e}{help}", config.listen))
    })?;
    let addr = listener.local_addr().map_err(|e| Failure::new(Code::Failed, e.to_string()))?;
    // Before the store: what waits there is for callers that have to be known.
    let tokens = Tokens::follow(config.tokens.clone());
    let started = config.started(key.clone(), tokens.clone());
    let gateway = Gateway::start(started).await.map_err(|e| Failure::new(Code::Failed, e.to_string()))?;

    let (handle, draining) = (gateway.handle.clone(), CancellationToken::new());
    let (file, listen) = (args.config.clone(), args.listen);
    let source = Box::new(move || Config::load(&file, listen, &env).map_err(|e| e.to_string()));
    let (listening, draining_too) = (addr.to_string(), draining.clone());
    let common = Common { key, tokens, handle: handle.clone(), listening, since: began(), draining: draining_too };
    let live = Live::new(config.clone(), source, common);
    let workers = Workers::per_core().map_err(|e| Failure::new(Code::Failed, format!("threads: {e}")))?;
    let limits = config.server.clone();
    let door = server::serve(listener, limits, live.clone(), workers, draining.clone(), config.drain);
    let door = tokio::spawn(door);
    // On its own, so that a file which cannot be read just now holds up nothing else. What comes of it is in the log.
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let _logged = live.reload("SIGHUP").await;
        }
    });
    tracing::info!(%addr, agents = config.agents.len(), store = %config.store.display(), "serving");
    if config.agents.is_empty() {
        tracing::warn!(config = %args.config.display(), "no agent is configured: every call will be refused");
    }
    output::line(&format!("listening on http://{addr}"));

    tokio::select! {
        () = signals.next() => {}
        () = demo::stdin_closed(), if args.exit_with_stdin => {}
    }
    tracing::info!(limit_s = config.drain.as_secs(), "draining");
    draining.cancel();
    let limit = config.drain;
    let drained = async {
        handle.drain(Span::from_micros(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX))).await;
        door.await
    };
    tokio::select! {
        // Both keep to the limit themselves; this is for the case that one of them does not.
        ended = tokio::time::timeout(limit + Duration::from_millis(500), drained) => {
            tracing::info!(in_time = ended.is_ok(), "ended");
            Ok(Code::Ok)
        }
        () = signals.next() => end_now(),
    }
}

#[expect(clippy::disallowed_methods, reason = "a second signal means at once, whatever is still running")]
fn end_now() -> ! {
    std::process::exit(Code::Interrupted.into())
}

#[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
pub(super) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// When this process began to serve, for cards' Last-Modified.
#[expect(clippy::disallowed_methods, reason = "a wall-clock date for people, not for decisions")]
fn began() -> SystemTime {
    SystemTime::now()
}

/// The key from its file; one for this process alone where none was made and none is asked for.
fn instance_key(file: &KeyFile) -> Result<InstanceKey, Failure> {
    let wrong = |path: &Path, e: &io::Error| Failure::usage(format!("the instance key: {}: {e}", path.display()));
    match InstanceKey::load(&file.path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !file.required => {
            tracing::debug!("no instance key: one is made for this process; `watertight init` makes one that stays");
            InstanceKey::generate().map_err(|e| wrong(&file.path, &e))
        }
        loaded => loaded.map_err(|e| wrong(&file.path, &e)),
    }
}

/// The signal for a write beyond the limit of a file's size, as Linux numbers it on all but MIPS.
const FILE_TOO_LARGE: i32 = 25;

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Held, so that a store that may not grow gets an error like a full disk's, and the process is not killed for it.
    _too_large: Option<Signal>,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _too_large: signal(SignalKind::from_raw(FILE_TOO_LARGE)).ok(),
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
