//! What can be said to an agent: parts in the order in which they are given, and what goes with them.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use watertight_gateway::config;

use super::Gateway;

pub(super) const SEND_HELP: &str = "Examples:
  watertight send hotels \"two nights in Lisbon\"
  watertight send hotels --data '{\"nights\": 2}' --stream
  watertight send scans \"what is this?\" --file photo.jpg --file map.png \"and where?\"
  echo \"two nights\" | watertight send hotels -
  watertight send hotels \"the cheaper one\" --task ID
  watertight send hotels \"quickly\" --budget 5 --fanout 2
  watertight send hotels \"when there is time\" --no-wait --priority 10 --ttl 2h

Exit codes: 0 the agent answered; 1 the task failed; 3 refused, the message says the reason; 5 the task asks back, or is \
still at work. With --no-wait 0 means accepted.";

#[derive(Debug, Args)]
pub(in crate::cli) struct SendArgs {
    /// The agent's name.
    pub(in crate::cli) agent: String,
    #[command(flatten)]
    pub(in crate::cli) parts: Parts,
    /// Go on with this task.
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) task: Option<String>,
    /// In this context.
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) context: Option<String>,
    /// The message's id. The same one again joins the first one's task instead of doing it twice.
    #[arg(long, value_name = "ID")]
    pub(in crate::cli) message_id: Option<String>,
    /// How long the whole tree of delegations may take.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(in crate::cli) budget: Option<f64>,
    /// How many hops it may go down.
    #[arg(long, value_name = "N")]
    pub(in crate::cli) depth: Option<u32>,
    /// How many delegations the agent may start.
    #[arg(long, value_name = "N")]
    pub(in crate::cli) fanout: Option<u32>,
    /// 0 to 100: of what waits for the agent, more goes first. Without it, 50.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(in crate::cli) priority: Option<u8>,
    /// How long it may wait for its start, such as 10s or 2h; then it has expired.
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    pub(in crate::cli) ttl: Option<u64>,
    /// Print the answer as it comes. A line that breaks is joined again where it was left.
    #[arg(long, conflicts_with = "no_wait")]
    pub(in crate::cli) stream: bool,
    /// Only hand it over, and print the task's id.
    #[arg(long)]
    pub(in crate::cli) no_wait: bool,
    #[command(flatten)]
    pub(in crate::cli) gateway: Gateway,
}

fn whole_seconds(said: &str) -> Result<u64, String> {
    let micros = config::length_of_time(said)?.as_micros();
    match micros % 1_000_000 == 0 && micros > 0 {
        true => Ok(micros / 1_000_000),
        false => Err("whole seconds, at least one".to_owned()),
    }
}

/// One part of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Part {
    Text(String),
    Data(String),
    DataFile(PathBuf),
    File(PathBuf),
}

/// All of them, in the order of the command line, which derived arguments do not keep.
#[derive(Debug)]
pub(in crate::cli) struct Parts(pub(in crate::cli) Vec<Part>);

const KINDS: [&str; 4] = ["text", "data", "data_file", "file"];

impl Args for Parts {
    fn augment_args(command: Command) -> Command {
        let many = |name: &'static str| Arg::new(name).action(ArgAction::Append);
        let path = |name: &'static str| many(name).value_name("FILE").value_parser(clap::value_parser!(PathBuf));
        command
            .arg(
                many("text")
                    .num_args(1)
                    .required_unless_present_any(["data", "data_file", "file"])
                    .help("What to say; `-` reads it from stdin. Parts are sent in the order in which they are given"),
            )
            .arg(many("data").long("data").value_name("JSON").help("A JSON value to send as a data part"))
            .arg(path("data_file").long("data-file").help("The same, from a file"))
            .arg(
                path("file").long("file").help("A file to send along, with its name and the type that its ending says"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Parts::augment_args(command)
    }
}

impl FromArgMatches for Parts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Parts, clap::Error> {
        let mut all: Vec<(usize, Part)> = Vec::new();
        for kind in KINDS {
            let Some(places) = matches.indices_of(kind) else { continue };
            let texts = || matches.get_many::<String>(kind).into_iter().flatten().cloned();
            let paths = || matches.get_many::<PathBuf>(kind).into_iter().flatten().cloned();
            match kind {
                "text" => all.extend(places.zip(texts().map(Part::Text))),
                "data" => all.extend(places.zip(texts().map(Part::Data))),
                "data_file" => all.extend(places.zip(paths().map(Part::DataFile))),
                _ => all.extend(places.zip(paths().map(Part::File))),
            }
        }
        all.sort_by_key(|(place, _)| *place);
        Ok(Parts(all.into_iter().map(|(_, part)| part).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Parts::from_arg_matches(matches)?;
        Ok(())
    }
}

fn seconds(said: &str) -> Result<f64, String> {
    match said.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds.is_finite() => Ok(seconds),
        Ok(_) | Err(_) => Err("a number of seconds above zero, such as 6 or 0.5".to_owned()),
    }
}
