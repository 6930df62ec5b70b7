//! What operators can say: agents, breakers, tokens, and what their shells and manuals need.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use watertight_gateway::config;
use watertight_gateway::tokens::Scope;
use watertight_policy::time::Span;

use super::Gateway;

pub(super) const AGENTS_HELP: &str = "Examples:
  watertight agents                      one line per agent, and how many slots each needs
  watertight agents hotels               everything about one
  watertight agents --watch              the same, redrawn every two seconds until Ctrl-C
  watertight agents --watch 10 --json    a line of JSON every ten seconds
  watertight agents drain hotels --wait  it is about to be restarted: deliver nothing, wait until nothing runs
  watertight agents resume hotels        it is back
  watertight agents register --id hotels --agent-url http://10.0.0.7:9000/ --secret-file crew.secret > hotels.token
  watertight agents register --id hotels --agent-url http://10.0.0.8:9000/ --token-file hotels.token
  watertight agents remove hotels --token-file hotels.token

STATE is what traffic meets: admitting, ejected (the breaker keeps traffic away), probing (one trial is out), pacing \
(the agent asked for a pause), draining (about to be restarted, or no longer configured), \
asleep (nobody answers, and its wake hook is called). P50, P99 and STRANDED are of the last five minutes. \
It needs the token of an operator where the gateway has callers.";

pub(super) const TASKS_HELP: &str = "Examples:
  watertight tasks list --status WORKING
  watertight tasks list --all --limit 50     an operator: every caller's, newest first
  watertight tasks show ID                   what it said, or why it failed
  watertight tasks watch ID                  its stream, until it ends
  watertight tasks watch                     the list, as it changes
  watertight tasks tree ID                   the delegations above and below it
  watertight tasks cancel ID
  watertight tasks redrive ID                what failed is run again, as a new task

A task that is over ends show with 0, and watch as it ended: 0 completed, 1 failed, 5 still at work or waiting for you.";

pub(super) const QUEUE_HELP: &str = "Examples:
  watertight queue                                   what waits at each agent, in the order in which it goes
  watertight queue hotels --limit 100
  watertight queue drop ID --reason \"sent twice\"    it is failed (dropped), and its caller is told why

WAITS FOR is the reason that the record says. What has waited for the agent's `ageing` goes before all. It needs the token of \
an operator where the gateway has callers; what other tenants have waiting counts in the places and is not shown.";

pub(super) const BREAKER_HELP: &str = "Example:
  watertight breaker reset hotels        it is known to be well again: do not wait for the trial

It needs the token of an operator where the gateway has callers.";

pub(super) const TOKEN_HELP: &str = "Examples:
  watertight token new trips --tenant acme --agents hotels,flights --expires 90d > trips.token
  watertight token new ops --tenant acme --scope operator
  watertight token new hotels --agent hotels > hotels.token
  watertight token list
  watertight token revoke 3f9a1c2b

A token is printed once, on stdout; only a hash under the instance key is kept. Where there is a token, the gateway asks \
every caller for one, and may listen on other addresses than loopback.";

pub(super) const COMPLETIONS_HELP: &str = "Examples:
  watertight completions bash > ~/.local/share/bash-completion/completions/watertight
  watertight completions zsh > \"${fpath[1]}/_watertight\"
  watertight completions fish > ~/.config/fish/completions/watertight.fish";

#[derive(Debug, Args)]
pub(in crate::cli) struct CompletionsArgs {
    /// Which shell.
    pub(in crate::cli) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ManArgs {
    /// Write a page for each command into this directory; it is made if it is missing. Without it the first page goes to
    /// stdout.
    #[arg(long, value_name = "DIR")]
    pub(in crate::cli) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct AgentsArgs {
    #[command(subcommand)]
    pub(in crate::cli) command: Option<AgentsCommand>,
    /// Only this one, and everything about it.
    pub(in crate::cli) name: Option<String>,
    /// Look again every so many seconds, until Ctrl-C.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = false, default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(in crate::cli) watch: Option<u64>,
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AgentsCommand {
    /// It is about to be restarted: nothing new is delivered, what is accepted waits, what runs goes on.
    Drain {
        /// The agent's name.
        agent: String,
        /// How long what runs is given, such as 20s or 5m.
        #[arg(long, value_name = "TIME", default_value = "20s", value_parser = config::length_of_time)]
        timeout: Span,
        /// Follow until nothing runs there any more, or the time is over (exit code 5).
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        gateway: Gateway,
    },
    /// One line per agent.
    List {
        #[command(flatten)]
        gateway: Gateway,
    },
    /// An agent comes, beside those of the configuration, or says something else of itself.
    ///
    /// With the secret of an enrolment it gets a token, which is printed once. With that token (--token-file) it may say
    /// again where it is.
    Register(RegisterArgs),
    /// An agent that registered leaves: what it has goes on to its end. It needs the agent's own token, or an admin's.
    Remove {
        /// The agent's name.
        agent: String,
        #[command(flatten)]
        gateway: Gateway,
    },
    /// It is back: what waits is delivered, and what it had is looked for.
    Resume {
        /// The agent's name.
        agent: String,
        #[command(flatten)]
        gateway: Gateway,
    },
}

pub(super) const AUDIT_HELP: &str = "\
Each record says who delegated to whom, when, what came of it, and size and SHA-256 of the parts that were sent and that came
back: never what they say. What ended in the last three seconds comes with the next look.

Examples:
  watertight audit > audit.ndjson                            all that is kept
  watertight audit --since 2026-01-01T00:00:00Z --until 2026-02-01T00:00:00Z
  watertight audit --follow --after CURSOR                   on from where the last one ended, until Ctrl-C";

#[derive(Debug, Args)]
pub(in crate::cli) struct AuditArgs {
    /// What ended at this time or later.
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) since: Option<String>,
    /// What ended before this time.
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) until: Option<String>,
    /// Only what comes behind this place: a page's `next`, which is said at the end.
    #[arg(long, value_name = "CURSOR")]
    pub(in crate::cli) after: Option<String>,
    /// Go on as more ends, until Ctrl-C.
    #[arg(long)]
    pub(in crate::cli) follow: bool,
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct RegisterArgs {
    /// Its name.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(in crate::cli) id: String,
    /// Where it is called.
    #[arg(long, value_name = "URL", required_unless_present = "fetches", conflicts_with = "fetches")]
    pub(in crate::cli) agent_url: Option<String>,
    /// It is not called: its workers ask for work.
    #[arg(long)]
    pub(in crate::cli) fetches: bool,
    /// How long one of those may say nothing, such as 30s.
    #[arg(long, value_name = "TIME", requires = "fetches")]
    pub(in crate::cli) lease: Option<String>,
    /// Where its card is: a path at the URL's host.
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) card: Option<String>,
    /// How it is spoken to: auto, jsonrpc or http+json.
    #[arg(long, value_name = "BINDING")]
    pub(in crate::cli) binding: Option<String>,
    /// How it is asked: auto, stream, poll or blocking.
    #[arg(long, value_name = "MODE")]
    pub(in crate::cli) mode: Option<String>,
    /// Whether it is told that results wait for it: wait or wake.
    #[arg(long, value_name = "HOW")]
    pub(in crate::cli) results: Option<String>,
    /// The agent under which it stands.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) parent: Option<String>,
    /// Fewer messages at once than agents get where nothing is said.
    #[arg(long, value_name = "N")]
    pub(in crate::cli) max_in_flight: Option<u32>,
    /// A file that holds the enrolment's secret.
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    pub(in crate::cli) secret_file: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct QueueArgs {
    #[command(subcommand)]
    pub(in crate::cli) command: Option<QueueCommand>,
    /// Only this agent's.
    pub(in crate::cli) agent: Option<String>,
    /// How many of each agent's.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(in crate::cli) limit: u32,
    /// Leave out so many in front.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(in crate::cli) skip: u32,
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum QueueCommand {
    /// Take a task out before it begins, for good.
    Drop {
        /// The task's id.
        id: String,
        /// Why: its caller is told.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        gateway: Gateway,
    },
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

#[derive(Debug, Args)]
pub(in crate::cli) struct TokenArgs {
    #[command(subcommand)]
    pub(in crate::cli) command: TokenCommand,
    /// The gateway's configuration: it says where the instance key and the tokens are.
    #[arg(long, value_name = "FILE", default_value = "watertight.toml", global = true)]
    pub(in crate::cli) config: PathBuf,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(in crate::cli) json: bool,
}

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum TokenCommand {
    /// Make a token, and print it: it cannot be shown again.
    New(NewToken),
    /// All tokens, with everything but themselves.
    List,
    /// Take a token back.
    Revoke {
        /// Its id, from the list.
        id: String,
    },
}

#[derive(Debug, Args)]
pub(in crate::cli) struct NewToken {
    /// Whose it is: what keys and logs say. Two tokens of one name and tenant are the same caller's.
    #[arg(value_parser = name)]
    pub(in crate::cli) name: String,
    /// The tenant that it belongs to. Without it, one of the same name.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(in crate::cli) tenant: Option<String>,
    /// What it is good for; may be given several times. None implies another.
    #[arg(long = "scope", value_name = "SCOPE", value_enum, default_values_t = [ScopeName::Caller])]
    pub(in crate::cli) scopes: Vec<ScopeName>,
    /// The agents that may be called with it, separated by commas. Without it, all.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(in crate::cli) agents: Option<Vec<String>>,
    /// The agent that calls with it: what it sends is then known to come from that agent.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) agent: Option<String>,
    /// How long it is good, such as 90d or 12h. Without it, until it is revoked.
    #[arg(long, value_name = "TIME", value_parser = lasting)]
    pub(in crate::cli) expires: Option<Span>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ScopeName {
    /// Call agents, see own tasks.
    Caller,
    /// Metrics, agents, all tasks of the tenant, breakers.
    Operator,
    /// The configuration.
    Admin,
}

impl From<ScopeName> for Scope {
    fn from(name: ScopeName) -> Scope {
        match name {
            ScopeName::Caller => Scope::Caller,
            ScopeName::Operator => Scope::Operator,
            ScopeName::Admin => Scope::Admin,
        }
    }
}

fn name(said: &str) -> Result<String, String> {
    config::name(said).map(|()| said.to_owned()).map_err(|rule| format!("a name is {rule}"))
}

/// Ten years are as good as for ever, and a slip of the keyboard.
fn lasting(said: &str) -> Result<Span, String> {
    match config::length_of_time(said)? {
        span if span.is_zero() || span > Span::from_secs(3_660 * 86_400) => {
            Err("more than nothing and at most ten years; without --expires it is good until it is revoked".to_owned())
        }
        span => Ok(span),
    }
}
