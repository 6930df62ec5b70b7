//! Logs: to stderr, as text or JSON. What peers said is cleaned before it is logged.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use super::args::LogFormat;
use super::exit::Failure;

/// The library behind `/mcp` logs every request, and at finer levels all that agents said.
const SILENT: &str = "rmcp";

/// Starts logging for the life of the process.
pub(super) fn start(format: LogFormat, filter: Option<&str>) -> Result<(), Failure> {
    let said = filter.map(str::to_owned).or_else(from_environment).unwrap_or_else(|| "info".to_owned());
    let quiet = if said.contains(SILENT) { said.clone() } else { format!("{said},{SILENT}=off") };
    let filter = EnvFilter::try_new(quiet).map_err(|e| Failure::usage(format!("`{said}` is no log filter: {e}")))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|e| Failure::usage(e.to_string()))
}

#[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
fn from_environment() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty())
}
