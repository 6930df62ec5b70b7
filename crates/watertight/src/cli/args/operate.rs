//! What operators can say: agents, breakers.

use clap::{Args, Subcommand};

use super::Gateway;

pub(super) const AGENTS_HELP: &str = "Examples:
  watertight agents                      one line per agent, and how many slots each needs
  watertight agents hotels               everything about one
  watertight agents --watch              the same, redrawn every two seconds until Ctrl-C
  watertight agents --watch 10 --json    a line of JSON every ten seconds

STATE is what traffic meets: admitting, ejected (the breaker keeps traffic away), probing (one trial is out), pacing
(the agent asked for a pause), draining (no longer configured). P50, P99 and STRANDED are of the last five minutes.
It needs the token of an operator where the gateway has callers.";

pub(super) const BREAKER_HELP: &str = "Example:
  watertight breaker reset hotels        it is known to be well again: do not wait for the trial

It needs the token of an operator where the gateway has callers.";

#[derive(Debug, Args)]
pub(in crate::cli) struct AgentsArgs {
    /// Only this one, and everything about it.
    pub(in crate::cli) name: Option<String>,
    /// Look again every so many seconds, until Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = false, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(in crate::cli) watch: Option<u64>,
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct BreakerArgs {
    #[command(subcommand)]
    pub(in crate::cli) command: BreakerCommand,
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum BreakerCommand {
    /// Forget its failures, and let traffic through at once.
    Reset {
        /// The agent's name.
        agent: String,
    },
}
