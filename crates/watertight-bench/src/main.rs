//! What a call through Watertight costs, beside the same call made directly, through nginx, and beside SQLite alone.
//!
//! Knows the gateway only from outside: the built binary, its configuration, its sockets, `/proc`. Assumes Linux for CPU
//! and memory. `BENCH.md` says what each figure means; nothing here is part of the product.

mod ask;
mod backlog;
mod call;
mod cell;
mod clock;
mod echo;
mod figures;
mod floor;
mod load;
mod model;
mod process;
mod route;
mod run;
mod stop;
mod table;
mod waiting;

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Whatever keeps a measurement from coming to its end; it is told to a person.
type Failure = Box<dyn Error + Send + Sync>;

#[derive(Debug, Parser)]
#[command(about = "What a call through Watertight costs.", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure, print the table, and write it as JSON.
    Run(RunArgs),
    /// Print the table of an earlier run.
    Table {
        /// What `run` wrote.
        json: PathBuf,
    },
    /// Put the table of an earlier run into a document, between its two marks.
    Record {
        /// What `run` wrote.
        json: PathBuf,
        /// The document.
        document: PathBuf,
    },
    /// The agent behind all paths, by itself; ends when stdin closes.
    Echo,
    /// Send load to one URL, and print what came of it: for a profiler beside it.
    Load {
        /// The agent's URL, such as http://127.0.0.1:7420/agents/echo.
        url: String,
        #[arg(long, default_value_t = 16)]
        conns: usize,
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
    },
}

/// What is measured, and how long.
#[derive(Clone, Debug, Args)]
struct RunArgs {
    /// The gateway's binary.
    #[arg(long, value_name = "FILE")]
    gateway: PathBuf,
    /// nginx's binary; without it that path is left out.
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,
    /// Where the JSON goes, and a directory for the time of the run.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
    /// Only these parts: direct, nginx, memory, durable, sqlite, refusal, footprint, list, backlog, waiting.
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<run::Part>,
    /// Connections, each with one call at a time.
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,16,64,128")]
    conns: Vec<usize>,
    /// How often every cell is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long a cell is measured.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// How long its load runs before that.
    #[arg(long, default_value_t = 0.7)]
    warm_up: f64,
    /// Tasks in the store that is started on and listed.
    #[arg(long, default_value_t = 10_000)]
    tasks: usize,
    /// Tasks that wait in the long queue.
    #[arg(long, default_value_t = 100_000)]
    backlog: usize,
    /// Callers that wait for results.
    #[arg(long, default_value_t = 1_000)]
    waiting: usize,
    /// What was built, for the record.
    #[arg(long, default_value = "release")]
    profile: String,
}

fn main() -> ExitCode {
    match obey(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "bench: {failure}");
            if stop::asked() { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}

fn obey(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => {
            stop::listen()?;
            let report = run::all(&args)?;
            let json = args.out.join("bench.json");
            std::fs::write(&json, serde_json::to_vec_pretty(&report)?)?;
            print(&table::of(&report))?;
            print(&format!("\n{}\n", json.display()))
        }
        Command::Table { json } => print(&table::of(&read(&json)?)),
        Command::Record { json, document } => {
            let text = std::fs::read_to_string(&document).map_err(|e| format!("{}: {e}", document.display()))?;
            let text =
                table::put(&text, &table::of(&read(&json)?)).map_err(|e| format!("{}: {e}", document.display()))?;
            Ok(std::fs::write(&document, text)?)
        }
        Command::Echo => echo::run(),
        Command::Load { url, conns, seconds } => {
            stop::listen()?;
            print(&format!("{}\n", load::alone(&url, conns, seconds)?))
        }
    }
}

fn read(json: &PathBuf) -> Result<model::Report, Failure> {
    let bytes = std::fs::read(json).map_err(|e| format!("{}: {e}", json.display()))?;
    serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", json.display()).into())
}

fn print(text: &str) -> Result<(), Failure> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}
