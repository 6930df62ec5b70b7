//! `watertight agents drain` and `resume`: an agent is about to be restarted, and is back.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use watertight_policy::time::Span;

use super::millis;
use crate::cli::args::Gateway;
use crate::cli::client::{Client, is_name};
use crate::cli::exit::{Code, Failure};
use crate::cli::output;

/// Between two looks at what still runs.
const LOOK: Duration = Duration::from_millis(250);

pub(super) async fn drain(agent: &str, timeout: Span, wait: bool, gateway: &Gateway) -> Result<Code, Failure> {
    is_name(agent)?;
    let client = Client::new(gateway)?;
    let asked = json!({ "timeout_s": timeout.as_secs_f64() }).to_string();
    let done = client.api_with(Method::POST, &format!("/v1/agents/{agent}/drain"), Some(asked)).await?;
    match gateway.json && !wait {
        true => output::line(&done.to_string()),
        false if !gateway.json => output::line(&begun(agent, &done)),
        false => {}
    }
    if wait { until_quiet(&client, agent, timeout, gateway.json).await } else { Ok(Code::Ok) }
}

pub(super) async fn resume(agent: &str, gateway: &Gateway) -> Result<Code, Failure> {
    is_name(agent)?;
    let done = Client::new(gateway)?.api(Method::POST, &format!("/v1/agents/{agent}/resume")).await?;
    match gateway.json {
        true => output::line(&done.to_string()),
        false => output::line(&format!(
            "{agent}: resumed; {} waiting, {} to be looked for",
            done["waiting"], done["suspended"]
        )),
    }
    Ok(Code::Ok)
}

fn begun(agent: &str, done: &Value) -> String {
    let kept = match done["survivesRestart"].as_bool() {
        Some(false) => "; this could not be written down, and a gateway that is restarted delivers again",
        Some(true) | None => "",
    };
    format!(
        "{agent}: draining, {} running, {} waiting; watertight agents resume {agent} lets it work again{kept}",
        done["running"], done["waiting"]
    )
}

/// Looks until nothing runs there, or the time is over.
async fn until_quiet(client: &Client, agent: &str, timeout: Span, as_json: bool) -> Result<Code, Failure> {
    let limit = tokio::time::Instant::now() + Duration::from_micros(timeout.as_micros());
    loop {
        let now = super::of(client.api(Method::GET, "/v1/agents").await?, Some(agent))?;
        let now = &now["agents"][0];
        let running = now["inFlight"].as_u64().unwrap_or(0);
        let over = tokio::time::Instant::now() >= limit;
        if running > 0 && !over {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        let text = match running {
            0 => format!("{agent}: nothing runs; {} waiting, {} dropped", now["queued"], now["drain"]["suspended"]),
            n => format!("{agent}: {n} still running after the time given; {} waiting", now["queued"]),
        };
        output::line(&if as_json { now.to_string() } else { text });
        return Ok(if running == 0 { Code::Ok } else { Code::Unfinished });
    }
}

/// `for 12 s more; 2 dropped by it, and watched again when it is back`; nothing if it is not drained.
pub(super) fn in_words(agent: &Value) -> String {
    let drain = &agent["drain"];
    if !drain.is_object() {
        return String::new();
    }
    let left = match drain["leftMs"].as_f64() {
        Some(ms) if ms > 0.0 => format!("what runs has {} more", millis(&drain["leftMs"])),
        Some(_) | None => "the time given is over".to_owned(),
    };
    format!("{left}; {} dropped by it, and watched again when it is back", drain["suspended"])
}
