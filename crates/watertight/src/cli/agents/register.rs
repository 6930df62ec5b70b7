//! `watertight agents register` and `remove`: an agent comes beside those of the configuration, and leaves.

use std::path::{Path, PathBuf};

use hyper::Method;
use serde_json::{Map, Value, json};

use crate::cli::args::{Gateway, RegisterArgs};
use crate::cli::client::{Client, is_name};
use crate::cli::exit::{Code, Failure};
use crate::cli::output::{self, safe_line};

pub(super) async fn register(args: RegisterArgs) -> Result<Code, Failure> {
    let by = bearer(&args.gateway, args.secret_file.as_deref())?;
    let client = Client::with_token(&args.gateway, Some(&by))?;
    let done = client.api_with(Method::POST, "/v1/agents", Some(asked(&args).to_string())).await?;
    if args.gateway.json {
        output::line(&done.to_string());
        return Ok(Code::Ok);
    }
    let tenant = safe_line(done["tenant"].as_str().unwrap_or(""));
    match (done["token"].as_str(), done["changed"].as_bool()) {
        (Some(token), _) => {
            output::line(&safe_line(token));
            output::note(&format!(
                "{} is registered in tenant {tenant}. This is its token; it is not shown again.",
                args.id
            ));
        }
        (None, Some(true)) => output::line(&format!("{}: changed", args.id)),
        (None, Some(false) | None) => output::line(&format!("{}: as it was", args.id)),
    }
    Ok(Code::Ok)
}

pub(super) async fn remove(agent: &str, gateway: &Gateway) -> Result<Code, Failure> {
    is_name(agent)?;
    let done = Client::new(gateway)?.api(Method::DELETE, &format!("/v1/agents/{agent}")).await?;
    match gateway.json {
        true => output::line(&done.to_string()),
        false => {
            output::line(&format!("{agent}: removed; what it has goes on to its end, and its token opens nothing"))
        }
    }
    Ok(Code::Ok)
}

/// The file with what is shown: an enrolment's secret, or the agent's own token.
fn bearer(gateway: &Gateway, secret: Option<&Path>) -> Result<PathBuf, Failure> {
    let file = secret.or(gateway.token_file.as_deref()).map(Path::to_owned);
    file.ok_or_else(|| {
        let text = "--secret-file names the file that holds the enrolment's secret; of an agent that is registered, \
                    --token-file its own token's";
        Failure::usage(text.to_owned())
    })
}

fn asked(args: &RegisterArgs) -> Value {
    let mut out = Map::new();
    out.insert("id".to_owned(), json!(args.id));
    let texts = [
        ("url", &args.agent_url),
        ("lease", &args.lease),
        ("card", &args.card),
        ("binding", &args.binding),
        ("mode", &args.mode),
        ("results", &args.results),
        ("parent", &args.parent),
    ];
    for (name, text) in texts {
        out.extend(text.as_ref().map(|text| (name.to_owned(), json!(text))));
    }
    if args.fetches {
        out.insert("fetches".to_owned(), json!(true));
    }
    out.extend(args.max_in_flight.map(|slots| ("max_in_flight".to_owned(), json!(slots))));
    Value::Object(out)
}
