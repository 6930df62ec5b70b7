//! What came of what was delegated, until it is acknowledged.

use serde_json::{Map, Value, json};
use watertight_engine::ids::Owner;
use watertight_policy::reason::Reason;

use super::arguments::{MAX_RESULTS, RESULTS, Results, read};
use super::tasks::unavailable;
use super::{Said, Session, word};
use crate::error::first_sentence;
use crate::handle::{Arrived, NotAcknowledged};

impl Session {
    pub(super) async fn read_results(&self, arguments: Value) -> Result<Said, String> {
        let asked: Results = read(arguments)?;
        let limit = match asked.limit {
            None => RESULTS,
            Some(limit @ 1..=MAX_RESULTS) => limit,
            Some(_) => return Err(format!("limit has to be 1 to {MAX_RESULTS}.")),
        };
        let Some(owner) = self.who.owner() else {
            let why = "you have no outbox, so results are not kept for you: use check_task_status with the task id. Whoever \
                       runs the gateway can give you one.";
            return Ok(Said::refused(why, Reason::Forbidden.as_str()));
        };
        if let Some(up_to) = asked.ack
            && let Err(said) = self.acknowledge(owner.clone(), up_to).await
        {
            return Ok(said);
        }
        match self.desk.handle.read_outbox(&owner, 0, limit).await {
            Ok(reading) => {
                let results: Vec<(u64, Said)> =
                    reading.results.iter().map(|arrived| (arrived.notice.seq, self.arrived(arrived))).collect();
                Ok(all(results, reading.outbox.waiting, reading.outbox.lost))
            }
            Err(reason) => Ok(unavailable(reason)),
        }
    }

    async fn acknowledge(&self, owner: Owner, up_to: u64) -> Result<(), Said> {
        match self.desk.handle.acknowledge(owner, up_to).await {
            Ok(_) => Ok(()),
            Err(NotAcknowledged::NotThatFar(last)) => {
                let why = format!("ack is {up_to}, and nothing with that seq was ever there; the last one is {last}.");
                Err(Said::refused(&why, "invalid_arguments"))
            }
            Err(NotAcknowledged::Declined(_)) => Err(unavailable(Reason::StoreUnavailable)),
        }
    }

    fn arrived(&self, arrived: &Arrived) -> Said {
        let notice = &arrived.notice;
        // A task that has gone on is not as it was.
        let told = arrived.view.as_ref().filter(|view| view.state == notice.state && view.turn == notice.turn);
        if let Some(view) = told {
            return self.told(view);
        }
        let why = notice.reason.map(|reason| format!(" ({reason}: {})", first_sentence(reason))).unwrap_or_default();
        let text = format!(
            "Task {} of agent {} was {}{why}; it has gone on, or is not kept any more. check_task_status says what there is.",
            notice.task,
            notice.agent,
            word(notice.state)
        );
        let mut fields = Map::new();
        fields.insert("kind".to_owned(), json!("answer"));
        fields.insert("taskId".to_owned(), json!(notice.task.to_string()));
        fields.insert("agent".to_owned(), json!(notice.agent.as_str()));
        fields.insert("state".to_owned(), json!(word(notice.state)));
        fields.insert("reason".to_owned(), json!(notice.reason.map(Reason::as_str)));
        Said { text, fields, failed: false, receipt: None }
    }
}

fn all(results: Vec<(u64, Said)>, pending: usize, lost: u64) -> Said {
    let mut fields = Map::new();
    let last = results.last().map(|(seq, _)| *seq);
    let mut text = match last {
        None => "No results wait for you.".to_owned(),
        Some(last) => format!(
            "{} of {pending} results that wait for you, oldest first. When you have made use of them, acknowledge with ack = {last}.",
            results.len()
        ),
    };
    let mut list = Vec::with_capacity(results.len());
    for (seq, mut said) in results {
        text.push_str(&format!("\n\n[seq {seq}] {}", said.text));
        said.fields.insert("seq".to_owned(), json!(seq));
        list.push(Value::Object(said.fields));
    }
    if lost > 0 {
        text.push_str(&format!("\n\n{lost} older results are gone: they waited for longer than is kept."));
    }
    fields.insert("kind".to_owned(), json!("results"));
    fields.insert("results".to_owned(), Value::Array(list));
    fields.insert("pending".to_owned(), json!(pending));
    fields.insert("last".to_owned(), json!(last));
    fields.insert("lost".to_owned(), json!(lost));
    Said { text, fields, failed: false, receipt: None }
}
