//! `watertight completions` and `watertight man`: both made from the command line's own definition.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;

use super::args::{Cli, CompletionsArgs, ManArgs};
use super::exit::{Code, Failure};
use super::output;

pub(super) fn completions(args: &CompletionsArgs) -> Code {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "watertight", &mut script);
    output::out(&String::from_utf8_lossy(&script));
    Code::Ok
}

pub(super) fn man(args: &ManArgs) -> Result<Code, Failure> {
    let mut command = Cli::command();
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(|e| failed(Path::new("stdout"), &e))?;
        output::out(&String::from_utf8_lossy(&page));
        return Ok(Code::Ok);
    };
    fs::create_dir_all(dir).map_err(|e| failed(dir, &e))?;
    command.build();
    write(dir, "watertight", &command)?;
    Ok(Code::Ok)
}

/// A page for the command, and one for each below it.
fn write(dir: &Path, name: &str, command: &clap::Command) -> Result<(), Failure> {
    let path = dir.join(format!("{name}.1"));
    let mut page = Vec::new();
    let titled = command.clone().display_name(name.to_owned());
    let made = clap_mangen::Man::new(titled).title(name.to_owned()).render(&mut page);
    made.and_then(|()| fs::write(&path, page)).map_err(|e| failed(&path, &e))?;
    output::line(&path.display().to_string());
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write(dir, &format!("{name}-{}", below.get_name()), below)?;
    }
    Ok(())
}

fn failed(path: &Path, e: &io::Error) -> Failure {
    Failure::new(Code::Failed, format!("{}: {e}", path.display()))
}
