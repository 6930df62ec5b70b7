//! The command line: what was said, and what becomes of it. Stdout is for results, stderr for everything else.

mod agents;
mod args;
mod audit;
mod check;
mod client;
mod exit;
mod follow;
mod init;
mod log;
mod manual;
mod mcp;
mod outbox;
mod output;
mod queue;
mod relay;
mod results;
mod screen;
mod send;
mod serve;
mod simulate;
mod table;
mod tasks;
mod token;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use crate::demo;
use args::{AgentArgs, Cli, Command, ConfigCommand, DemoArgs, SimulateCommand};
use exit::{Code, Failure};

/// Runs what the command line says.
pub(crate) async fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(args).await,
        Command::Init(args) => init::run(&args),
        Command::Check(args) => check::run(args).await,
        Command::Config(args) => {
            output::out(&match args.command {
                ConfigCommand::Docs => watertight_gateway::config::reference(),
                ConfigCommand::Schema => watertight_gateway::config::schema(),
            });
            Ok(Code::Ok)
        }
        Command::Send(args) => send::run(args).await,
        Command::Tasks(args) => tasks::run(args).await,
        Command::Agents(args) => agents::run(args).await,
        Command::Breaker(args) => agents::breaker(args).await,
        Command::Audit(args) => audit::run(args).await,
        Command::Queue(args) => queue::run(args).await,
        Command::Outbox(args) => outbox::run(args).await,
        Command::Relay(args) => relay::run(args).await,
        Command::Mcp(args) => mcp::run(args).await,
        Command::Token(args) => token::run(args),
        Command::Completions(args) => Ok(manual::completions(&args)),
        Command::Man(args) => manual::man(&args),
        Command::Demo(args) => return run_demo(args).await,
        Command::Simulate(args) => match args.command {
            SimulateCommand::World(args) => simulate::world(args).await,
        },
        Command::DemoAgent(args) => run_demo_agent(args).await,
    };
    match done {
        Ok(code) => code.into(),
        Err(failure) => {
            output::complain(&failure.text);
            failure.code.into()
        }
    }
}

async fn run_demo(args: DemoArgs) -> ExitCode {
    let mode = match (args.without_walls, args.direct) {
        (true, _) => demo::Mode::WithoutWalls,
        (false, true) => demo::Mode::Direct,
        (false, false) => demo::Mode::Walls,
    };
    let color = output::wants_color();
    let view = output::is_screen() && !args.json;
    let options = demo::Options { seconds: args.seconds, mode, json: args.json, port: args.port, color, view };
    match demo::run(options).await {
        Ok(ending) => ExitCode::from(ending.exit_code()),
        Err(e) => {
            output::complain(&e.to_string());
            ExitCode::from(e.exit_code())
        }
    }
}

async fn run_demo_agent(args: AgentArgs) -> Result<Code, Failure> {
    let options = demo::agent::Options {
        name: args.name,
        port: args.port,
        latency: Duration::from_millis(args.latency_ms),
        exit_with_stdin: args.exit_with_stdin,
    };
    demo::agent::run(options).await.map(|()| Code::Ok).map_err(|e| Failure::new(Code::Failed, e.to_string()))
}
