//! The `watertight` command.

mod cli;
mod demo;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    cli::run().await
}
