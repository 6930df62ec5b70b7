//! `watertight init`: a configuration to begin with, and the instance key.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use watertight_gateway::config::InstanceKey;

use super::args::InitArgs;
use super::exit::{Code, Failure};
use super::output;

const CONFIG: &str = include_str!("init.toml");

pub(super) fn run(args: &InitArgs) -> Result<Code, Failure> {
    let (config, key) = (args.dir.join("watertight.toml"), args.dir.join("watertight.key"));
    fs::create_dir_all(&args.dir).map_err(|e| failed(&args.dir, &e))?;
    if let Some(there) = [&config, &key].into_iter().find(|path| path.exists()) {
        return Err(Failure::usage(format!(
            "{} is there already, and nothing is overwritten: name another directory",
            there.display()
        )));
    }
    let new = InstanceKey::generate().map_err(|e| failed(&key, &e))?;
    new.write_new(&key).map_err(|e| failed(&key, &e))?;
    write_new(&config).map_err(|e| failed(&config, &e))?;
    output::line(&config.display().to_string());
    output::line(&key.display().to_string());
    output::note(&format!("Name your agents in {}, then run: watertight serve --config {0}", config.display()));
    Ok(Code::Ok)
}

fn write_new(path: &Path) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(CONFIG.as_bytes())?;
    file.sync_all()
}

fn failed(path: &Path, e: &io::Error) -> Failure {
    Failure::new(Code::Failed, format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use watertight_gateway::config::Config;

    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn what_is_written_is_a_valid_configuration_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let args = InitArgs { dir: dir.path().join("new") };
        assert_eq!(run(&args).unwrap(), Code::Ok);
        let config = Config::load(&args.dir.join("watertight.toml"), None, &nothing).unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:7420");
        assert!(InstanceKey::load(&config.key.path).is_ok());
        assert_eq!(run(&args).unwrap_err().code, Code::Usage);
    }

    #[test]
    fn what_is_commented_out_is_valid_too() {
        let uncommented: Vec<&str> = CONFIG.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line)).collect();
        let env = |_: &str| Some("a secret".to_owned());
        let config = Config::parse("init.toml", &uncommented.join("\n"), Path::new(""), None, &env).unwrap();
        assert_eq!((config.agents.len(), config.callers.len()), (1, 1));
    }
}
