//! `watertight audit`: a line for each delegation that is over, in the order in which they ended; never what was said in it.
//!
//! A page is read, written and forgotten. The gateway withholds what ended in the last seconds until its place in the order is
//! sure, so that a command that goes on from where another one ended misses nothing.

use std::time::Duration;

use hyper::Method;
use serde_json::Value;

use super::args::AuditArgs;
use super::client::{Client, encoded};
use super::exit::{Code, Failure};
use super::output::{self, safe_line};

/// Records on a page.
const PAGE: usize = 500;

/// Between two looks where there is nothing more.
const EVERY: Duration = Duration::from_secs(1);

pub(super) async fn run(args: AuditArgs) -> Result<Code, Failure> {
    let client = Client::new(&args.gateway)?;
    let mut next = args.after.clone();
    tokio::select! {
        done = export(&client, &args, &mut next) => done?,
        stopped = tokio::signal::ctrl_c() => {
            stopped.map_err(|e| Failure::new(Code::Failed, format!("signals: {e}")))?;
        }
    }
    if let Some(next) = next {
        output::note(&format!("to go on from here: --after {}", safe_line(&next)));
    }
    Ok(Code::Ok)
}

async fn export(client: &Client, args: &AuditArgs, next: &mut Option<String>) -> Result<(), Failure> {
    loop {
        let mut path = format!("/v1/audit?limit={PAGE}");
        for (name, value) in [("after", &*next), ("since", &args.since), ("until", &args.until)] {
            if let Some(value) = value {
                path += &format!("&{name}={}", encoded(value));
            }
        }
        let page = client.api(Method::GET, &path).await?;
        let records = page["records"].as_array().into_iter().flatten();
        records.for_each(|record: &Value| output::line(&record.to_string()));
        *next = page["next"].as_str().map(str::to_owned).or(next.take());
        match page["more"] == true {
            true => {}
            false if args.follow => tokio::time::sleep(EVERY).await,
            false => return Ok(()),
        }
    }
}
