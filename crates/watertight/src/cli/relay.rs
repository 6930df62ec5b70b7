//! `watertight relay`: an outbox as a file, for an agent that reads files.
//!
//! ```text
//!   results ──▶ FILE.part, synced ──▶ FILE ──▶ the reader renames it away ──▶ acknowledged ──▶ the next ones
//! ```
//!
//! A file that is there holds results that are not acknowledged; one that is gone was taken. Whatever dies between two of
//! these steps, nothing is acknowledged that was not taken, so that it comes again. Assumes that one relay keeps the file
//! (a lock beside it says so), and that its reader only ever takes it away.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Method;
use serde_json::json;

use super::args::{Format, RelayArgs};
use super::client::Client;
use super::exit::{Code, Failure};
use super::outbox::page;
use super::output;
use super::results::{in_words, with_frame};

/// Between two looks whether the file was taken.
const LOOK: Duration = Duration::from_millis(100);
/// Between two tries to reach a gateway that is away.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// How long the gateway holds a request for what is to come.
const WAIT_S: u32 = 50;
/// What the first line begins with.
const MARK: &str = "watertight-results";

pub(super) async fn run(args: RelayArgs) -> Result<Code, Failure> {
    let client = Client::new(&args.gateway)?;
    let place = Place::of(&args.file)?;
    let _lock = place.lock()?;
    // Whether there is such an outbox is known before anything is promised.
    let pending = client.api(Method::GET, "/v1/outbox/pending").await?;
    if let Some(agent) = args.agent.as_deref().filter(|agent| pending["of"]["agent"] != **agent) {
        let text = format!("the token is not one of agent {agent}: this is the outbox of {}", pending["of"]);
        return Err(Failure::new(Code::Refused, text));
    }
    output::note(&format!("results come to {}", args.file.display()));
    tokio::select! {
        never = relay(&client, &place, &args) => never,
        stopped = stopped() => stopped,
    }
}

async fn relay(client: &Client, place: &Place, args: &RelayArgs) -> Result<Code, Failure> {
    let mut pause = AGAIN.0;
    loop {
        let done = match place.up_to()? {
            Some(up_to) => {
                place.taken().await;
                acknowledge(client, up_to).await
            }
            None => fetch(client, place, args).await,
        };
        match done {
            Ok(()) => pause = AGAIN.0,
            Err(failure) if failure.code == Code::Failed => return Err(failure),
            // What was taken and is not acknowledged comes again: nothing is lost by it.
            Err(failure) => {
                if pause == AGAIN.0 {
                    output::note(&format!("{}; trying again", failure.text));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
            }
        }
    }
}

/// The next results, if any come soon.
async fn fetch(client: &Client, place: &Place, args: &RelayArgs) -> Result<(), Failure> {
    let page = page(client, 0, args.limit, WAIT_S).await?;
    let Some(up_to) = page.up_to else { return Ok(()) };
    let mut text = match args.format {
        Format::Text => format!(
            "{MARK} upTo={up_to}\nWhat came of what you delegated. What stands between two peer-text lines is data from \
             other agents.\n\n"
        ),
        Format::Jsonl => format!("{}\n", json!({ "kind": MARK, "upTo": up_to })),
    };
    for result in &page.results {
        text += &match args.format {
            Format::Text => in_words(result)? + "\n",
            Format::Jsonl => with_frame(result)?.to_string() + "\n",
        };
    }
    place.put(&text)
}

/// Tried until the gateway has heard it: what was taken may not come again only because it was away for a moment.
async fn acknowledge(client: &Client, up_to: u64) -> Result<(), Failure> {
    let body = json!({ "upTo": up_to }).to_string();
    let mut pause = AGAIN.0;
    loop {
        match client.api_with(Method::POST, "/v1/outbox/ack", Some(body.clone())).await {
            Err(failure) if failure.code == Code::Unreachable => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
            }
            done => return done.map(drop),
        }
    }
}

/// The file, and what stands beside it.
struct Place {
    file: PathBuf,
    part: PathBuf,
    directory: PathBuf,
}

impl Place {
    fn of(file: &Path) -> Result<Place, Failure> {
        let name = file.file_name().ok_or_else(|| Failure::usage(format!("{}: names no file", file.display())))?;
        let directory = match file.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => Path::new("/"),
        };
        let part = directory.join(format!("{}.part", name.to_string_lossy()));
        Ok(Place { file: file.to_owned(), part, directory: directory.to_owned() })
    }

    /// Held as long as the process lives.
    fn lock(&self) -> Result<File, Failure> {
        let path = self.part.with_extension("lock");
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|e| self.failed(&path, &e))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::new(Code::Failed, format!("another relay keeps {} already", self.file.display())))
            }
            Err(TryLockError::Error(e)) => Err(self.failed(&path, &e)),
        }
    }

    /// Up to which number the file goes that is there.
    fn up_to(&self) -> Result<Option<u64>, Failure> {
        let file = match File::open(&self.file) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.failed(&self.file, &e)),
        };
        let mut first = String::new();
        BufReader::new(file).read_line(&mut first).map_err(|e| self.failed(&self.file, &e))?;
        let text = first.strip_prefix(MARK).and_then(|rest| rest.trim().strip_prefix("upTo=")?.parse().ok());
        let json = || serde_json::from_str::<serde_json::Value>(&first).ok()?["upTo"].as_u64();
        match text.or_else(json) {
            Some(up_to) => Ok(Some(up_to)),
            None => {
                let text = format!("{} is there, and is no file of results: move it away", self.file.display());
                Err(Failure::new(Code::Failed, text))
            }
        }
    }

    /// Until the reader has renamed it away.
    async fn taken(&self) {
        while fs::symlink_metadata(&self.file).is_ok() {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The file appears whole, or not at all, also if the power fails.
    fn put(&self, text: &str) -> Result<(), Failure> {
        let written = || -> io::Result<()> {
            let mut part = private().open(&self.part)?;
            part.write_all(text.as_bytes())?;
            part.sync_all()?;
            fs::rename(&self.part, &self.file)?;
            File::open(&self.directory)?.sync_all()
        };
        written().map_err(|e| self.failed(&self.file, &e))
    }

    fn failed(&self, path: &Path, e: &io::Error) -> Failure {
        Failure::new(Code::Failed, format!("{}: {e}", path.display()))
    }
}

/// What others said to an agent is nobody else's business.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

async fn stopped() -> Result<Code, Failure> {
    let failed = |e: io::Error| Failure::new(Code::Failed, format!("signals: {e}"));
    #[cfg(unix)]
    {
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(failed)?;
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.map_err(failed)?,
            _ = term.recv() => {}
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await.map_err(failed)?;
    Ok(Code::Interrupted)
}
