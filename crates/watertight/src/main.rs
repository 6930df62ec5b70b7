//! The `watertight` command.

mod demo;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(version, about = "An A2A gateway that keeps one agent's failure from sinking the others.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the walls do: three agents, one turns slow.
    ///
    /// Exit codes: 0 every verdict is PASS; 1 at least one is FAIL; 2 the command makes no sense; 3 the demo could not
    /// be run to its end; 130 interrupted.
    Demo(DemoArgs),
    /// One of the demo's agents.
    #[command(hide = true)]
    DemoAgent(AgentArgs),
    /// Serve the gateway.
    Serve {
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// End when stdin closes.
        #[arg(long, hide = true)]
        exit_with_stdin: bool,
    },
}

#[derive(Debug, clap::Args)]
struct DemoArgs {
    /// How long the whole run takes.
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
    /// No gateway: one shared pool of 64 calls, as without isolation.
    #[arg(long)]
    without_walls: bool,
    /// Straight to the agents without any limit, to see the verdicts fail.
    #[arg(long, hide = true, conflicts_with = "without_walls")]
    direct: bool,
    /// One JSON object on stdout instead of the view and the table.
    #[arg(long)]
    json: bool,
    /// The gateway's port; 0 takes any free one.
    #[arg(long, default_value_t = 0, value_name = "P")]
    port: u16,
}

#[derive(Debug, clap::Args)]
struct AgentArgs {
    #[arg(long)]
    name: demo::Agent,
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[arg(long, default_value_t = 200)]
    latency_ms: u64,
    /// End when stdin closes.
    #[arg(long)]
    exit_with_stdin: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Demo(args) => run_demo(args).await,
        Command::DemoAgent(args) => {
            let options = demo::agent::Options {
                name: args.name,
                port: args.port,
                latency: Duration::from_millis(args.latency_ms),
                exit_with_stdin: args.exit_with_stdin,
            };
            exit(demo::agent::run(options).await.map(|()| 0).map_err(|e| (e.to_string(), 3)))
        }
        Command::Serve { config, exit_with_stdin: _ } => {
            exit(Err((format!("not built yet: serving {}", config.display()), 3)))
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the binary reads the environment")]
fn wants_color() -> bool {
    std::env::var("NO_COLOR").map_or(true, |value| value.is_empty()) && std::io::stdout().is_terminal()
}

async fn run_demo(args: DemoArgs) -> ExitCode {
    let mode = match (args.without_walls, args.direct) {
        (true, _) => demo::Mode::WithoutWalls,
        (false, true) => demo::Mode::Direct,
        (false, false) => demo::Mode::Walls,
    };
    let options = demo::Options { seconds: args.seconds, mode, json: args.json, port: args.port, color: wants_color() };
    let ending = demo::run(options).await;
    exit(ending.map(demo::Ending::exit_code).map_err(|e| (e.to_string(), e.exit_code())))
}

fn exit(ending: Result<u8, (String, u8)>) -> ExitCode {
    match ending {
        Ok(code) => ExitCode::from(code),
        Err((why, code)) => {
            eprintln!("watertight: {why}");
            ExitCode::from(code)
        }
    }
}
