//! What can be said on the command line.

mod config;
mod operate;
mod results;
mod send;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::exit::TABLE;
use crate::demo;
pub(super) use config::{CheckArgs, ConfigArgs, ConfigCommand, InitArgs};
pub(super) use operate::{
    AgentsArgs, AgentsCommand, AuditArgs, BreakerArgs, BreakerCommand, CompletionsArgs, ManArgs, NewToken, QueueArgs,
    QueueCommand, RegisterArgs, TokenArgs, TokenCommand,
};
pub(super) use results::{Format, McpArgs, OutboxArgs, RelayArgs};
pub(super) use send::{Part, SendArgs};

#[derive(Debug, Parser)]
#[command(
    version,
    about = "An A2A gateway that keeps one agent's failure from sinking the others.",
    after_help = TABLE,
    disable_help_subcommand = true
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the gateway.
    ///
    /// Prints one line, `listening on http://ADDR`, when it is ready. SIGTERM or SIGINT drains it; a second one ends it
    /// at once. SIGHUP reads the configuration again: what can change while it runs changes, and nothing is dropped.
    #[command(after_help = TABLE)]
    Serve(ServeArgs),
    /// Write a commented configuration and an instance key. Nothing is overwritten.
    ///
    /// With --agent the gateway can be started right away.
    #[command(after_help = TABLE)]
    Init(InitArgs),
    /// Say what a configuration means: mistakes, agents' cards, values in force, settings without effect.
    ///
    /// Sends no message and changes nothing. Exit codes: 0 nothing is wrong (there may be warnings), 1 something will not
    /// work, or with --strict there are warnings, 2 the file itself makes no sense.
    #[command(after_help = TABLE)]
    Check(CheckArgs),
    /// What can be configured: the reference, and a schema for editors.
    #[command(after_help = TABLE)]
    Config(ConfigArgs),
    /// Send a message to an agent through a running gateway, and print its answer.
    #[command(after_help = send::SEND_HELP)]
    Send(SendArgs),
    /// See, follow and cancel tasks of a running gateway.
    #[command(after_help = operate::TASKS_HELP)]
    Tasks(TasksArgs),
    /// See the agents: what traffic meets, slots, latencies, and how many slots they need.
    #[command(after_help = operate::AGENTS_HELP)]
    Agents(AgentsArgs),
    /// See what waits for the agents, in its order, and take one of it out.
    #[command(after_help = operate::QUEUE_HELP)]
    Queue(QueueArgs),
    /// Write a record of each delegation that is over, one JSON object a line.
    #[command(after_help = operate::AUDIT_HELP)]
    Audit(AuditArgs),
    /// See the results that wait for whoever delegated, and say that they have been read.
    #[command(after_help = results::OUTBOX_HELP)]
    Outbox(OutboxArgs),
    /// Take an agent's results to a file that it reads.
    #[command(after_help = results::RELAY_HELP)]
    Relay(RelayArgs),
    /// Be an MCP server on standard input and output, with the tools of a running gateway.
    #[command(after_help = results::MCP_HELP)]
    Mcp(McpArgs),
    /// Let traffic through to an agent again.
    #[command(after_help = operate::BREAKER_HELP)]
    Breaker(BreakerArgs),
    /// Give out tokens, list them, take them back. A running gateway follows within a second.
    #[command(after_help = operate::TOKEN_HELP)]
    Token(TokenArgs),
    /// Show what the walls do: three agents, one turns slow.
    ///
    /// Exit codes: 0 every verdict is PASS; 1 at least one is FAIL; 2 the command makes no sense; 3 the demo could not
    /// be run to its end; 130 interrupted.
    Demo(DemoArgs),
    /// Play the engine in virtual time, and check its invariants.
    #[command(after_help = TABLE)]
    Simulate(SimulateArgs),
    /// Print what a shell needs to complete these commands.
    #[command(after_help = operate::COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
    /// Print the manual, or write a page for each command.
    Man(ManArgs),
    /// Run one of the demo's agents, to try a gateway with.
    #[command(after_help = TABLE)]
    DemoAgent(AgentArgs),
}

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = "watertight.toml")]
    pub(super) config: PathBuf,
    /// Listen here instead of where the configuration says.
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) listen: Option<SocketAddr>,
    /// How log lines look on stderr.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
    /// What is logged, such as `info` or `watertight_gateway=debug`. Without it RUST_LOG counts, then `info`.
    #[arg(long, value_name = "FILTER")]
    pub(super) log: Option<String>,
    /// End when stdin closes.
    #[arg(long, hide = true)]
    pub(super) exit_with_stdin: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

/// Which gateway, and as whom.
#[derive(Debug, Args)]
pub(super) struct Gateway {
    /// The gateway. Without it WATERTIGHT_URL counts, then http://127.0.0.1:7420.
    #[arg(long, value_name = "URL", global = true)]
    pub(super) url: Option<String>,
    /// A file that holds the bearer token.
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) token_file: Option<PathBuf>,
    /// Print JSON, as the gateway answered it.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct TasksArgs {
    #[command(subcommand)]
    pub(super) command: TasksCommand,
    #[command(flatten)]
    pub(super) gateway: Gateway,
}

const STATES: [&str; 8] =
    ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "AUTH_REQUIRED", "COMPLETED", "FAILED", "CANCELED", "REJECTED"];

/// A task's state as it is printed here, as A2A writes it, or in small letters with hyphens.
fn state(said: &str) -> Result<String, String> {
    let state = said.to_ascii_uppercase().replace('-', "_");
    let state = state.strip_prefix("TASK_STATE_").unwrap_or(&state);
    match STATES.contains(&state) {
        true => Ok(format!("TASK_STATE_{state}")),
        false => Err(format!("a task's state is one of {}", STATES.join(", "))),
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum TasksCommand {
    /// The latest tasks, of one agent or of all.
    List {
        /// Only this agent's.
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
        /// Only in this state, such as WORKING or INPUT_REQUIRED.
        #[arg(long, value_name = "STATE", value_parser = state)]
        status: Option<String>,
        /// At most so many.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
        limit: u32,
        /// Those of every caller of the tenant, where the token is an operator's.
        #[arg(long)]
        all: bool,
        /// The page that follows another one of --all, which says this.
        #[arg(long, value_name = "CURSOR")]
        cursor: Option<String>,
    },
    /// One task.
    Show {
        /// Its id.
        id: String,
        /// Whose it is; without it the gateway is asked.
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// Cancel a task.
    Cancel {
        /// Its id.
        id: String,
        /// Whose it is; without it the gateway is asked.
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// Follow a task until it ends or asks; without an id, the list as it changes.
    ///
    /// A line that breaks is joined again where it was left. The text of the answer goes to stdout, states to stderr.
    Watch {
        /// Its id.
        id: Option<String>,
        /// Whose it is; without it the gateway is asked. Of the list, only this agent's.
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// Run a task again that is over and did not complete, as a new one with a link to it.
    ///
    /// It has the same message and a budget of its own. Who asks twice gets one.
    Redrive {
        /// Its id.
        id: String,
    },
    /// The delegation tree that a task belongs to: who started what, how it stands, and what it may still spend.
    Tree {
        /// Its id.
        id: String,
        /// Draw it no wider than this. Without it, no wider than the terminal.
        #[arg(long, value_name = "N")]
        columns: Option<usize>,
    },
}

#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// How long the whole run takes.
    #[arg(long, default_value_t = 60, value_name = "N")]
    pub(super) seconds: u64,
    /// No gateway: one shared pool of 64 calls, as without isolation.
    #[arg(long)]
    pub(super) without_walls: bool,
    /// Straight to the agents without any limit, to see the verdicts fail.
    #[arg(long, hide = true, conflicts_with = "without_walls")]
    pub(super) direct: bool,
    /// One JSON object on stdout instead of the view and the table.
    #[arg(long)]
    pub(super) json: bool,
    /// The gateway's port; 0 takes any free one.
    #[arg(long, default_value_t = 0, value_name = "P")]
    pub(super) port: u16,
}

#[derive(Debug, Args)]
pub(super) struct SimulateArgs {
    #[command(subcommand)]
    pub(super) command: SimulateCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum SimulateCommand {
    /// Callers of every kind, agents of fifteen kinds (well, slow, moody, dead, flapping, lying, busy, delegating, …), disks that
    /// are slow and fail, and processes that die.
    ///
    /// The same seed is the same run. What must hold is looked at after every step. Exit code 1 if an invariant broke:
    /// then the delegation's last events are told, and the command that plays it again.
    World(SimulateWorld),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SimulatedFaults {
    /// Never: only the agents misbehave.
    None,
    /// Every twenty seconds of virtual time, in each cell.
    Some,
    /// Every half second of virtual time, in each cell.
    Many,
}

impl SimulatedFaults {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            SimulatedFaults::None => "none",
            SimulatedFaults::Some => "some",
            SimulatedFaults::Many => "many",
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct SimulateWorld {
    /// Of everything random in it.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,
    /// Messages that callers send. Agents that delegate send more.
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(super) delegations: u64,
    /// Agents. The load grows with them.
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(super) agents: u16,
    /// Cells: each has its own tenants, walls and disk, and all call the same agents.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) cells: u16,
    /// How often something goes wrong with ourselves: crashes, reloads, disks that fail or are slow, standstills, stops,
    /// other limits, agents that start anew.
    #[arg(long, default_value = "some", value_name = "LEVEL")]
    pub(super) faults: SimulatedFaults,
    /// Instead play a small world (three agents, one cell) with a crash before and after every commit in turn, with a reload
    /// after every one, and with every cancel sent twice. The work grows with the square of the delegations.
    #[arg(long, conflicts_with_all = ["agents", "cells", "faults"])]
    pub(super) sweep: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(super) struct AgentArgs {
    /// Which one: flights, hotels or fx.
    #[arg(long)]
    pub(super) name: demo::Agent,
    /// Its port; 0 takes any free one, and the line that is printed says which.
    #[arg(long, default_value_t = 0, value_name = "P")]
    pub(super) port: u16,
    /// How long it works on an answer.
    #[arg(long, default_value_t = 200, value_name = "MS")]
    pub(super) latency_ms: u64,
    /// End when stdin closes.
    #[arg(long, hide = true)]
    pub(super) exit_with_stdin: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_makes_sense() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_said_is_understood() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.command);
        assert!(matches!(parse("watertight serve"), Ok(Command::Serve(a)) if a.config.ends_with("watertight.toml")));
        assert!(
            matches!(parse("watertight send fx hello --json --url http://x"), Ok(Command::Send(a)) if a.gateway.json)
        );
        assert!(matches!(parse("watertight tasks show 1 --agent fx --json"), Ok(Command::Tasks(a)) if a.gateway.json));
        assert!(parse("watertight send fx").is_err());
        assert!(matches!(parse("watertight init x --agent a=http://b/?c=d --agent e=http://f"), Ok(Command::Init(a))
                if a.agents == [("a".to_owned(), "http://b/?c=d".to_owned()), ("e".to_owned(), "http://f".to_owned())]));
        assert!(parse("watertight init --agent nothing").is_err());
        assert!(parse("watertight send fx --data {}").is_ok());
        assert!(parse("watertight send fx hi --stream --no-wait").is_err());
        let Ok(Command::Send(a)) = parse("watertight send fx one --file a.png two --data {} --data-file b.json three")
        else {
            panic!("not understood")
        };
        let (text, path) = (|text: &str| Part::Text(text.into()), |path: &str| PathBuf::from(path));
        let (file, data) = (Part::File(path("a.png")), Part::DataFile(path("b.json")));
        assert_eq!(a.parts.0, [text("one"), file, text("two"), Part::Data("{}".into()), data, text("three")]);
        assert!(parse("watertight send fx hi --budget 0").is_err());
        assert!(parse("watertight tasks list --limit 101").is_err());
        assert!(parse("watertight tasks list --status input-required").is_ok());
        assert!(parse("watertight tasks list --status TASK_STATE_WORKING").is_ok());
        assert!(parse("watertight tasks list --status busy").is_err());
    }
}
