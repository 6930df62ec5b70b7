//! What can be said about results that wait.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Gateway;

pub(super) const OUTBOX_HELP: &str = "Examples:
  watertight outbox                      what came of what was delegated, oldest first
  watertight outbox --ack 3              everything up to 3 has been read
  watertight outbox --follow --json      a line of JSON for each, as it comes, until Ctrl-C

Results wait until they are acknowledged. What agents said stands between two lines with a number that they could not know. \
The token says whose outbox it is; with `--json` nothing is framed: the fields are data.";

pub(super) const RELAY_HELP: &str = "Example:
  watertight relay --agent lead --token-file lead.token --file /run/lead/results.txt

Takes the results of an agent's outbox to a file, for an agent that reads files. The file appears whole; whoever reads it \
takes it away by renaming it, and only then its results are acknowledged and the next file appears. Keep what was taken until the \
turn that used it is over, and look for it first after a restart. If anything dies in between, the same results come again, with \
the same numbers. The first line says up to which.";

pub(super) const MCP_HELP: &str = "Example, in the configuration of an MCP client:
  {\"command\": \"watertight\", \"args\": [\"mcp\", \"--token-file\", \"/etc/lead.token\"]}

The tools are list_peers, delegate_task, delegate_task_async, check_task_status, cancel_task and read_delegation_results. \
The gateway has to run; clients that speak MCP over HTTP use its /mcp themselves. The token says who calls.";

#[derive(Debug, Args)]
pub(in crate::cli) struct McpArgs {
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct OutboxArgs {
    /// Everything up to this number has been read, and waits no longer.
    #[arg(long, value_name = "N", conflicts_with_all = ["follow", "after", "limit"])]
    pub(in crate::cli) ack: Option<u64>,
    /// Wait for more, until Ctrl-C.
    #[arg(long)]
    pub(in crate::cli) follow: bool,
    /// Only those behind this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(in crate::cli) after: u64,
    /// At most so many; with --follow, at a time.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(in crate::cli) limit: u32,
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct RelayArgs {
    /// Whose outbox it has to be: another one is refused.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) agent: Option<String>,
    /// The file that appears, and is taken away by its reader.
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) file: PathBuf,
    /// How it is written.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(in crate::cli) format: Format,
    /// Results in one file at most.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(in crate::cli) limit: u32,
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

/// How results are written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Format {
    /// For a model: what agents said is framed.
    Text,
    /// For a program: a line of JSON each, with the framed text beside the fields.
    Jsonl,
}
