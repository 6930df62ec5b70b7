//! What is said about the configuration.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(in super::super) struct InitArgs {
    /// Where to write; it is made if it is missing.
    #[arg(default_value = ".")]
    pub(in super::super) dir: PathBuf,
    /// An agent to begin with; may be given several times.
    #[arg(long = "agent", value_name = "NAME=URL", value_parser = agent)]
    pub(in super::super) agents: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(in super::super) struct CheckArgs {
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = "watertight.toml")]
    pub(in super::super) config: PathBuf,
    /// Ask no agent for its card.
    #[arg(long)]
    pub(in super::super) offline: bool,
    /// Say what fails when this agent does, and the most that it can cost: nobody is asked.
    #[arg(long, value_name = "AGENT")]
    pub(in super::super) without: Option<String>,
    /// Say whom each caller and each token may call, and nothing else.
    #[arg(long, conflicts_with = "without")]
    pub(in super::super) access: bool,
    /// Warnings, settings without effect, and shared limits that the agent of --without can exhaust fail the check.
    #[arg(long)]
    pub(in super::super) strict: bool,
    /// Print JSON.
    #[arg(long)]
    pub(in super::super) json: bool,
}

#[derive(Debug, Args)]
pub(in super::super) struct ConfigArgs {
    #[command(subcommand)]
    pub(in super::super) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(in super::super) enum ConfigCommand {
    /// Print the reference of every key, as Markdown.
    Docs,
    /// Print the JSON Schema of the file, for editors and other tools.
    ///
    /// Editors with taplo read it if the file's first line is `#:schema ./watertight.schema.json`.
    Schema,
}

/// `NAME=URL`; both are judged with the file that they are written to.
fn agent(said: &str) -> Result<(String, String), String> {
    let (name, url) = said.split_once('=').ok_or("an agent is NAME=URL, such as hotels=http://127.0.0.1:9001/")?;
    Ok((name.to_owned(), url.to_owned()))
}
