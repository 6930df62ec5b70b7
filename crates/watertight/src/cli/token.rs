//! `watertight token`: given out, listed, taken back. Works on the file that the gateway follows; no gateway is needed.

use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use watertight_a2a::time;
use watertight_gateway::config::{Config, Files, InstanceKey, KeyFile};
use watertight_gateway::tokens::{self, Scope, Stored};

use super::args::{NewToken, TokenArgs, TokenCommand};
use super::exit::{Code, Failure};
use super::output::{self, safe_line};
use super::table::{Cell, Step, Tone, fitted};

pub(super) fn run(args: TokenArgs) -> Result<Code, Failure> {
    let files = Config::files(&args.config).map_err(|e| Failure::usage(e.to_string()))?;
    match args.command {
        TokenCommand::New(new) => make(&files, &new, args.json),
        TokenCommand::List => list(&files.tokens, args.json),
        TokenCommand::Revoke { id } => revoke(&files.tokens, &id, args.json),
    }
}

fn make(files: &Files, new: &NewToken, as_json: bool) -> Result<Code, Failure> {
    if let Some(agent) = new.agents.iter().flatten().chain(&new.agent).find(|agent| !files.agents.contains(agent)) {
        let there = if files.agents.is_empty() { "none".to_owned() } else { files.agents.join(", ") };
        return Err(Failure::usage(format!("no agent {} is configured; known: {there}", safe_line(agent))));
    }
    let key = instance_key(&files.key)?;
    let random = |e: getrandom::Error| Failure::new(Code::Failed, format!("no randomness: {e}"));
    let token = tokens::mint().map_err(random)?;
    let mut scopes: Vec<Scope> = new.scopes.iter().map(|scope| Scope::from(*scope)).collect();
    scopes.sort();
    scopes.dedup();
    let now = now_ms();
    let stored = Stored {
        id: tokens::mint_id().map_err(random)?,
        name: new.name.clone(),
        tenant: new.tenant.clone().unwrap_or_else(|| new.name.clone()),
        scopes,
        agents: new.agents.clone(),
        agent: new.agent.clone(),
        created: time::write(now),
        expires: new.expires.map(|span| time::write(now.saturating_add_unsigned(span.as_millis()))),
        enrolment: None,
        hash: tokens::hash(&key, &token),
    };
    let kept = stored.clone();
    let added = tokens::edit(&files.tokens, |all| match all.iter().any(|other| other.id == kept.id) {
        true => Err(io::Error::other("its id is taken; run it again")),
        false => {
            all.push(kept);
            Ok(all.len())
        }
    });
    let count = added.map_err(|e| unusable(&files.tokens, &e))?;
    if as_json {
        let mut shown = shown(&stored);
        shown["token"] = json!(token);
        output::line(&shown.to_string());
        return Ok(Code::Ok);
    }
    output::line(&token);
    let until = stored.expires.as_deref().unwrap_or("it is revoked");
    output::note(&format!(
        "token {} of {} in tenant {}, scopes {}, good until {until}. It is not shown again.",
        stored.id,
        stored.name,
        stored.tenant,
        words(&stored.scopes)
    ));
    if count == 1 {
        output::note("It is the first: from now on the gateway asks everybody for a token.");
    }
    Ok(Code::Ok)
}

fn list(path: &Path, as_json: bool) -> Result<Code, Failure> {
    let all = tokens::read(path).map_err(|e| unusable(path, &e))?;
    if as_json {
        let all: Vec<Value> = all.iter().map(shown).collect();
        output::line(&json!({ "tokens": all }).to_string());
        return Ok(Code::Ok);
    }
    if all.is_empty() {
        output::note("there are no tokens");
        return Ok(Code::Ok);
    }
    let now = u64::try_from(now_ms()).unwrap_or(0);
    let rows = all.iter().map(|token| {
        let expires = match (&token.expires, token.expires_ms()) {
            (Some(_), Some(at)) if at <= now => Cell::toned("expired", Tone::Warning),
            (Some(at), _) => Cell::from(day(at)),
            (None, _) => Cell::from("never"),
        };
        let agents = token.agents.as_ref().map_or_else(|| "all".to_owned(), |agents| agents.join(","));
        [
            Cell::from(safe_line(&token.id)),
            Cell::from(safe_line(&token.name)),
            Cell::from(safe_line(&token.tenant)),
            Cell::from(words(&token.scopes)),
            Cell::from(safe_line(&agents)),
            Cell::from(day(&token.created)),
            expires,
        ]
    });
    let head = ["ID", "NAME", "TENANT", "SCOPES", "AGENTS", "CREATED", "EXPIRES"];
    let narrow = [Step::LeaveOut("CREATED"), Step::Cut("AGENTS", 12), Step::Cut("NAME", 10), Step::Cut("TENANT", 10)];
    output::out(&fitted(head, rows.collect(), output::wants_color(), output::columns(), &narrow));
    Ok(Code::Ok)
}

fn revoke(path: &Path, id: &str, as_json: bool) -> Result<Code, Failure> {
    let gone = tokens::edit(path, |all| {
        let at = all.iter().position(|token| token.id == id);
        at.map(|at| (all.remove(at), all.len())).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    });
    let (gone, left) = match gone {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let text = format!("there is no token {}; see watertight token list", safe_line(id));
            return Err(Failure::new(Code::Refused, text));
        }
        gone => gone.map_err(|e| unusable(path, &e))?,
    };
    match as_json {
        true => output::line(&json!({"revoked": gone.id}).to_string()),
        false => output::line(&format!("token {} of {} is revoked", safe_line(&gone.id), safe_line(&gone.name))),
    }
    if left == 0 {
        output::note("It was the last. A running gateway asks for tokens until it is started again.");
    }
    Ok(Code::Ok)
}

/// Everything but the hash.
fn shown(token: &Stored) -> Value {
    json!({
        "id": token.id,
        "name": token.name,
        "tenant": token.tenant,
        "scopes": token.scopes,
        "agents": token.agents,
        "agent": token.agent,
        "created": token.created,
        "expires": token.expires,
    })
}

fn words(scopes: &[Scope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(",")
}

/// `2026-01-02T03:04:05.678Z` to the minute.
fn day(time: &str) -> String {
    let minute = time.get(..16).filter(|_| time.ends_with('Z'));
    safe_line(&minute.map_or_else(|| time.to_owned(), |minute| format!("{}Z", minute.replace('T', " "))))
}

/// A token needs a key that outlives the process: it is made where there is none.
fn instance_key(file: &KeyFile) -> Result<InstanceKey, Failure> {
    let wrong = |e: &io::Error| Failure::usage(format!("the instance key: {}: {e}", file.path.display()));
    match InstanceKey::load(&file.path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let key = InstanceKey::generate().map_err(|e| wrong(&e))?;
            key.write_new(&file.path).map_err(|e| wrong(&e))?;
            let path = file.path.display();
            output::note(&format!(
                "The instance key {path} was missing and is made. A gateway that runs without it has to be started again."
            ));
            Ok(key)
        }
        loaded => loaded.map_err(|e| wrong(&e)),
    }
}

fn unusable(path: &Path, e: &io::Error) -> Failure {
    Failure::new(Code::Failed, format!("the token file {}: {e}", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "the wall clock: a token's dates are for people and for other processes")]
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_shown_to_the_minute() {
        assert_eq!(day("2026-01-02T03:04:05.678Z"), "2026-01-02 03:04Z");
        assert_eq!(day("2026-01-02T03:04:05+02:00"), "2026-01-02T03:04:05+02:00");
        assert_eq!(day("\u{1b}"), "\\u{1b}");
    }
}
