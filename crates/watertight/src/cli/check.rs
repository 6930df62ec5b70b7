//! `watertight check`: what a configuration means, before anything runs by it.
//!
//! The file is judged as `serve` judges it. Then come the machine (key, store, limits), the agents' cards, every value
//! in force with where it comes from, and what is worth saying about all of it. Nothing is changed, no message is sent.

mod cards;
mod machine;
mod text;

use serde_json::{Value, json};
use watertight_gateway::config::{
    Config, Finding, Level, MayCall, Without, advise, effective, may_call, without, written,
};

use super::args::CheckArgs;
use super::exit::{Code, Failure};
use super::output;
use super::table::{Cell, table};

pub(super) async fn run(args: CheckArgs) -> Result<Code, Failure> {
    let config = match Config::load(&args.config, None, &super::serve::env) {
        Ok(config) => config,
        Err(e) => {
            if args.json {
                output::line(&json!({"valid": false, "error": e.to_string()}).to_string());
            }
            return Err(Failure::usage(e.to_string()));
        }
    };
    match &args.without {
        None if args.access => relations(&config, args.json),
        Some(name) => one_gone(&config, name, &args),
        None => whole(&config, &args).await,
    }
}

/// Whom each may call.
fn relations(config: &Config, as_json: bool) -> Result<Code, Failure> {
    let all = may_call(config);
    let names = |one: &MayCall| one.agents.iter().map(ToString::to_string).collect::<Vec<_>>();
    if as_json {
        let row = |one: &MayCall| {
            let agent = one.agent.as_ref().map(ToString::to_string);
            json!({"caller": one.caller, "tenant": one.tenant, "agent": agent, "mayCall": names(one)})
        };
        let rows: Vec<Value> = all.iter().map(row).collect();
        output::line(&json!({"access": config.access.as_str(), "callers": rows}).to_string());
        return Ok(Code::Ok);
    }
    let rows = all.iter().map(|one| {
        let agent = one.agent.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
        let agents = if one.agents.is_empty() { "nobody".to_owned() } else { names(one).join(", ") };
        [&one.caller, &one.tenant, &agent, &agents].map(|text| Cell::from(text.clone()))
    });
    output::out(&table(["CALLER", "TENANT", "AGENT", "MAY CALL"], rows.collect(), false));
    Ok(Code::Ok)
}

/// What fails when this agent does.
fn one_gone(config: &Config, name: &str, args: &CheckArgs) -> Result<Code, Failure> {
    let Some(gone) = without(config, name) else {
        let names: Vec<&str> = config.agents.keys().map(|name| name.as_str()).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(Failure::usage(format!("there is no agent {}; known: {there}", output::safe_line(name))));
    };
    if args.json {
        output::line(&without_json(&gone).to_string());
    } else {
        output::out(&text::folded(&text::without(&gone), output::columns()));
    }
    let exhausts = gone.shared.iter().any(|share| share.exhausts);
    Ok(if args.strict && exhausts { Code::Failed } else { Code::Ok })
}

async fn whole(config: &Config, args: &CheckArgs) -> Result<Code, Failure> {
    let mut findings = advise(config);
    findings.extend(machine::look(config));
    let cards = if args.offline { Vec::new() } else { cards::look(config, !args.json).await };
    findings.extend(cards.iter().flat_map(|card| cards::judge(config, card)));
    findings.sort_by_key(|finding| (finding.level, finding.line));
    if args.json {
        let cards: serde_json::Map<String, Value> =
            cards.iter().map(|card| (card.agent.clone(), cards::to_json(card))).collect();
        let out = json!({
            "valid": true,
            "file": args.config.display().to_string(),
            "findings": findings.iter().map(finding_json).collect::<Vec<_>>(),
            "cards": cards,
            "written": written(config),
            "config": effective(config, config),
        });
        output::line(&out.to_string());
    } else {
        output::out(&text::folded(&text::whole(&args.config, config, &cards, &findings), output::columns()));
    }
    let fails = |finding: &Finding| match finding.level {
        Level::Error => true,
        Level::Warning | Level::NoEffect => args.strict,
        Level::Note => false,
    };
    Ok(if findings.iter().any(fails) { Code::Failed } else { Code::Ok })
}

fn finding_json(finding: &Finding) -> Value {
    json!({"level": finding.level.as_str(), "at": finding.at, "line": finding.line, "text": finding.text})
}

fn without_json(gone: &Without) -> Value {
    let opens = |opens: &watertight_gateway::config::Opens| {
        json!({
            "tries": opens.tries,
            "afterMs": opens.after.map(|after| after.as_millis()),
            "because": opens.because,
        })
    };
    json!({
        "agent": gone.agent,
        "callers": gone.callers,
        "holds": gone.holds.iter()
            .map(|bound| json!({"what": bound.what, "most": bound.most, "because": bound.because}))
            .collect::<Vec<_>>(),
        "breakerOpens": {"refusing": opens(&gone.refuses), "silent": opens(&gone.silent)},
        "told": gone.told.iter().map(|told| json!({"when": told.when, "reason": told.reason})).collect::<Vec<_>>(),
        "notAffected": gone.untouched,
        "shared": gone.shared.iter()
            .map(|share| json!({
                "what": share.what,
                "all": share.all,
                "most": share.most,
                "because": share.because,
                "exhausts": share.exhausts,
            }))
            .collect::<Vec<_>>(),
    })
}
