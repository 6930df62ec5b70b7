//! The `watertight` command.

mod cli;
mod demo;

use std::process::ExitCode;

/// Gives memory back after a peak, which the system's allocator does not.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    cli::run().await
}
