//! `watertight tasks watch`: one task until it ends, or the list as it changes.

use std::time::Duration;

use crate::cli::client::Client;
use crate::cli::exit::{Code, Failure};
use crate::cli::follow::{self, Begin};
use crate::cli::output;
use crate::cli::screen::{self, Frame};
use crate::cli::send::{Shown, goes_on, print_json};

use super::{Listed, agent_of, is_id, rows_of};

/// Between two looks at the list.
const EVERY: Duration = Duration::from_secs(1);

pub(super) async fn one(client: &Client, id: &str, agent: Option<String>, as_json: bool) -> Result<Code, Failure> {
    is_id(id)?;
    let agent = agent_of(client, agent, id).await?;
    let (mut shown, mut last) = (Shown::default(), Ok(Code::Unfinished));
    let followed = follow::follow(client, Begin::with(&agent, id), |outcome| match outcome {
        outcome if as_json => last = Ok(print_json(&outcome)),
        Ok(event) => last = Ok(shown.event(&event)),
        Err(error) => last = Err(error.failure()),
    });
    tokio::select! {
        followed = followed => followed?,
        _ = tokio::signal::ctrl_c() => {
            shown.close();
            goes_on(Some(id));
            return Ok(Code::Interrupted);
        }
    }
    shown.close();
    shown.ask(&agent);
    last
}

pub(super) async fn all(client: &Client, listed: &Listed, as_json: bool) -> Result<Code, Failure> {
    let color = output::wants_color();
    screen::watch(EVERY, as_json, async || {
        let page = listed.page(client).await?;
        let text = rows_of(&page, color).unwrap_or_else(|| "there are no such tasks\n".to_owned());
        Ok(Frame { text, json: page })
    })
    .await
}
