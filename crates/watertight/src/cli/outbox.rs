//! `watertight outbox`: results that wait, and that they have been read.

use hyper::Method;
use serde_json::json;

use super::args::OutboxArgs;
use super::client::Client;
use super::exit::{Code, Failure};
use super::output;
use super::results::{Page, in_words};

/// How long the gateway holds a request for what is to come.
const WAIT_S: u32 = 50;

pub(super) async fn run(args: OutboxArgs) -> Result<Code, Failure> {
    let client = Client::new(&args.gateway)?;
    if let Some(up_to) = args.ack {
        let done = client.api_with(Method::POST, "/v1/outbox/ack", Some(json!({ "upTo": up_to }).to_string())).await?;
        match args.gateway.json {
            true => output::line(&done.to_string()),
            false => output::note(&format!("read up to {up_to}; {} wait", done["pending"])),
        }
        return Ok(Code::Ok);
    }
    tokio::select! {
        done = show(&client, &args) => done,
        _ = tokio::signal::ctrl_c() => Ok(Code::Interrupted),
    }
}

async fn show(client: &Client, args: &OutboxArgs) -> Result<Code, Failure> {
    let mut after = args.after;
    loop {
        let page = page(client, after, args.limit, if args.follow { WAIT_S } else { 0 }).await?;
        for result in &page.results {
            match args.gateway.json {
                true => output::line(&result.to_string()),
                false => output::line(&in_words(result)?),
            }
        }
        if page.reset {
            output::note("the numbers of this outbox do not reach so far: this is from its beginning");
        }
        after = page.up_to.unwrap_or(if page.reset { 0 } else { after });
        match page.up_to {
            _ if args.follow => {}
            Some(up_to) => {
                output::note(&format!("when they have been read: watertight outbox --ack {up_to}"));
                return Ok(Code::Ok);
            }
            None => {
                output::note("nothing waits to be read");
                return Ok(Code::Ok);
            }
        }
    }
}

/// What waits behind a number; at most so many, and held for so many seconds until there is something.
pub(super) async fn page(client: &Client, after: u64, limit: u32, wait_s: u32) -> Result<Page, Failure> {
    let path = format!("/v1/outbox?after={after}&limit={limit}&wait={wait_s}");
    client.api(Method::GET, &path).await.map(Page::of)
}
