//! `watertight init`: a configuration to begin with, and the instance key.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use watertight_gateway::config::{Config, InstanceKey, sample};

use super::args::InitArgs;
use super::exit::{Code, Failure};
use super::output;

pub(super) fn run(args: &InitArgs) -> Result<Code, Failure> {
    let text = sample(&args.agents);
    // What was said on the command line is judged like a file, and nothing is written if it is wrong.
    Config::parse("what would be written", &text, Path::new(""), None, &|_| None)
        .map_err(|e| Failure::usage(e.to_string()))?;
    let (config, key) = (args.dir.join("watertight.toml"), args.dir.join("watertight.key"));
    if let Some(there) = [&config, &key].into_iter().find(|path| path.exists()) {
        return Err(Failure::usage(format!(
            "{} is there already, and nothing is overwritten: name another directory",
            there.display()
        )));
    }
    fs::create_dir_all(&args.dir).map_err(|e| failed(&args.dir, &e))?;
    let new = InstanceKey::generate().map_err(|e| failed(&key, &e))?;
    new.write_new(&key).map_err(|e| failed(&key, &e))?;
    write_new(&config, &text).map_err(|e| failed(&config, &e))?;
    output::line(&config.display().to_string());
    output::line(&key.display().to_string());
    output::note(&next(args, &config));
    Ok(Code::Ok)
}

/// What to do now, as commands to copy.
fn next(args: &InitArgs, config: &Path) -> String {
    let config = config.display();
    let first = match args.agents.first() {
        None => format!("Next: name your agents in {config}, or begin again elsewhere with --agent NAME=URL. Then"),
        Some(_) => "Next".to_owned(),
    };
    let name = args.agents.first().map_or("NAME", |(name, _)| name.as_str());
    format!(
        "{first}:\n  watertight serve --config {config}\n  watertight send {name} \"hello\"\n\
         Callers reach it at http://127.0.0.1:7420/agents/{name}; its card is at /.well-known/agent-card.json below that."
    )
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn failed(path: &Path, e: &io::Error) -> Failure {
    Failure::new(Code::Failed, format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use watertight_engine::ids::AgentId;

    use super::*;

    #[test]
    fn what_is_written_is_a_valid_configuration_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut args = InitArgs { dir: dir.path().join("new"), agents: Vec::new() };
        assert_eq!(run(&args).unwrap(), Code::Ok);
        let config = Config::load(&args.dir.join("watertight.toml"), None, &|_| None).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:7420");
        assert!(InstanceKey::load(&config.key.path).is_ok());
        args.agents = vec![("fx".to_owned(), "http://fx/".to_owned())];
        assert_eq!(run(&args).unwrap_err().code, Code::Usage, "it is there already");
        assert!(Config::load(&args.dir.join("watertight.toml"), None, &|_| None).unwrap().agents.is_empty());
    }

    #[test]
    fn agents_are_ready_and_wrong_ones_write_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let agent = |name: &str, url: &str| (name.to_owned(), url.to_owned());
        for (wrong, part) in [
            (vec![agent("Fx", "http://fx/")], "an agent's name is"),
            (vec![agent("fx", "fx:80")], "is no http:// or https:// URL"),
            (vec![agent("fx", "http://a/"), agent("fx", "http://b/")], "for the second time"),
            (vec![agent("fx\"]\n[agents.x", "http://a/")], "what would be written"),
        ] {
            let args = InitArgs { dir: dir.path().join("wrong"), agents: wrong };
            let failure = run(&args).unwrap_err();
            assert!(failure.code == Code::Usage && failure.text.contains(part), "{failure:?}");
            assert!(!args.dir.exists());
        }
        let agents = vec![agent("fx", "http://127.0.0.1:1/"), agent("a.b", "https://b.example/?c=d")];
        let args = InitArgs { dir: dir.path().join("right"), agents };
        assert_eq!(run(&args).unwrap(), Code::Ok);
        let config = Config::load(&args.dir.join("watertight.toml"), None, &|_| None).unwrap();
        assert_eq!(config.agents.len(), 2);
        assert_eq!(config.agents[&AgentId::new("a.b")].wire.url, "https://b.example/?c=d");
    }
}
