//! What readers see, and when.

use crate::states::state_of;
use watertight_a2a::event::Event as Heard;
use watertight_a2a::json::Json;
use watertight_engine::ids::Attempt;
use watertight_engine::record::{Phase, Turn};
use watertight_policy::budget::Budget;

use super::*;

const NOW: Time = Time::from_millis(1_000);

fn row(state: TaskState, phase: Phase) -> Row {
    let budget = Budget { deadline: Time::FAR, depth: 1, fanout: 1 };
    let principal = Principal { tenant: "t".into(), caller: "c".into() };
    let turn = Turn { phase, not_before: NOW, attempts: 1, ..Turn::new(1, "m".into(), 1, budget) };
    let row = Row::new(TaskId(7), principal, AgentId::new("fx"), "ctx".into(), NOW, turn);
    Row { version: 1, state, attempt: Attempt(1), ..row }
}

fn heard(json: &str) -> Heard {
    let ours = json.replace('\'', "\"").replace("ID", &TaskId(7).to_string());
    Heard::read(&Json::assume(ours.into_bytes())).unwrap()
}

fn task(state: &str) -> Heard {
    heard(&format!("{{'task':{{'id':'ID','contextId':'ctx','status':{{'state':'TASK_STATE_{state}'}}}}}}"))
}

fn status(state: &str) -> Heard {
    heard(&format!("{{'statusUpdate':{{'taskId':'ID','contextId':'ctx','status':{{'state':'TASK_STATE_{state}'}}}}}}"))
}

fn chunk(text: &str) -> Heard {
    heard(&format!(
        "{{'artifactUpdate':{{'taskId':'ID','contextId':'ctx','append':true,'artifact':{{'artifactId':'a','parts':[{{'text':'{text}'}}]}}}}}}"
    ))
}

fn message(text: &str) -> Heard {
    heard(&format!("{{'message':{{'messageId':'r','role':'ROLE_AGENT','parts':[{{'text':'{text}'}}]}}}}"))
}

struct Desk {
    hub: Hub,
    live: Arc<Live>,
}

impl Desk {
    fn with(limits: Limits) -> Desk {
        let hub = Hub::new(limits);
        let row = row(TaskState::Submitted, Phase::Dispatching);
        let live = hub.adopt(&row, 3, Stored::default());
        live.stage(row.into());
        live.flush(NOW);
        live.begin(Attempt(1));
        Desk { hub, live }
    }

    fn new() -> Desk {
        Desk::with(Limits::default())
    }

    fn hears(&self, event: Heard) -> u64 {
        self.live.relay(Attempt(1), event, NOW).map_or(0, |numbered| numbered.n)
    }

    fn durable(&self, state: TaskState, seq: u64) {
        self.live.stage(row(state, Phase::Running).into());
        self.live.publish(seq, NOW);
    }

    fn settled(&self, state: TaskState, reason: Option<Reason>) {
        self.live.stage(Row { reason, ..row(state, Phase::Ended) }.into());
        self.live.settle(state, reason, NOW);
    }

    fn joins(&self, after: Option<&str>) -> Option<Subscription> {
        self.hub.join(self.live.clone(), after.and_then(EventId::parse), NOW)
    }
}

/// All that is ready, in short: `5:status:WORKING`, `snapshot 2:WORKING`, `end Over`.
fn ready(stream: &mut Subscription) -> Vec<String> {
    let mut seen = Vec::new();
    while let Some(Some(item)) = stream.reader.take() {
        seen.push(match item {
            Item::Snapshot { id, view } => format!("snapshot {}:{}", id.n, short(view.state)),
            Item::Event(event) => {
                let kind = format!("{:?}", event.kind).to_lowercase();
                format!("{}:{kind}{}", event.id.n, event.state.map(|s| format!(":{}", short(s))).unwrap_or_default())
            }
            Item::End(end) => format!("end {end:?}"),
        });
    }
    seen
}

fn short(state: TaskState) -> &'static str {
    state.as_str().trim_start_matches("TASK_STATE_")
}

#[test]
fn a_state_is_shown_when_it_is_durable_and_chunks_wait_behind_it() {
    let desk = Desk::new();
    let mut stream = desk.hub.open(TaskId(7), false).unwrap();
    let first = desk.hears(task("WORKING"));
    desk.hears(chunk("one"));
    assert!(ready(&mut stream).is_empty());
    assert_eq!(desk.live.view().unwrap().state, TaskState::Submitted);
    desk.durable(TaskState::Working, first);
    assert_eq!(ready(&mut stream), ["1:task:WORKING", "2:artifact"]);
    desk.hears(chunk("two"));
    assert_eq!(ready(&mut stream), ["3:artifact"]);
    desk.hears(status("COMPLETED"));
    assert!(ready(&mut stream).is_empty());
    assert_eq!(desk.live.view().unwrap().state, TaskState::Working);
    desk.settled(TaskState::Completed, None);
    assert_eq!(ready(&mut stream), ["4:status:COMPLETED", "end Over"]);
    let view = desk.live.view().unwrap();
    assert_eq!((view.state, view.record.said().into_content().text().as_str()), (TaskState::Completed, "onetwo"));
}

#[test]
fn a_new_stream_begins_with_a_task_or_is_one_message() {
    let desk = Desk::new();
    let mut stream = desk.hub.open(TaskId(7), false).unwrap();
    desk.hears(chunk("first of all"));
    assert_eq!(ready(&mut stream), ["snapshot 0:SUBMITTED", "1:artifact"]);

    let desk = Desk::new();
    let mut sender = desk.hub.open(TaskId(7), false).unwrap();
    let mut joiner = desk.joins(None).unwrap();
    assert_eq!(ready(&mut joiner), ["snapshot 0:SUBMITTED"]);
    desk.hears(message("hello"));
    desk.settled(TaskState::Completed, None);
    assert_eq!(ready(&mut sender), ["1:message:COMPLETED", "end Over"]);
    assert_eq!(ready(&mut joiner), ["1:status:COMPLETED", "end Over"]);
    assert!(desk.live.view().unwrap().record.lone_message().is_some());
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_first_word_is_introduced() {
    let desk = Desk::new();
    let mut stream = desk.hub.open(TaskId(7), false).unwrap();
    assert!(matches!(stream.next().await, Some(Item::Snapshot { id: EventId { fence: 3, n: 0 }, .. })));
    desk.hears(message("late"));
    desk.settled(TaskState::Completed, None);
    assert_eq!(ready(&mut stream), ["1:status:COMPLETED", "end Over"]);
    assert!(stream.next().await.is_none());
}

#[test]
fn our_verdict_replaces_the_agents_word() {
    let desk = Desk::new();
    let mut stream = desk.joins(None).unwrap();
    let first = desk.hears(status("WORKING"));
    desk.durable(TaskState::Working, first);
    desk.hears(task("COMPLETED"));
    desk.settled(TaskState::Failed, Some(Reason::ResultTooLarge));
    assert_eq!(ready(&mut stream), ["snapshot 0:SUBMITTED", "1:status:WORKING", "3:status:FAILED", "end Over"]);
    let view = desk.live.view().unwrap();
    assert!(view.withheld);
    assert_eq!(state_of(view.record.state()), TaskState::Failed);
    assert!(desk.joins(None).is_none());
    assert_eq!(desk.hears(status("COMPLETED")), 0);
}

#[test]
fn what_is_stored_is_what_was_shown() {
    let desk = Desk::new();
    desk.hears(chunk("half"));
    desk.hears(task("COMPLETED"));
    let failed = Row { reason: Some(Reason::DeadlineExceeded), ..row(TaskState::Failed, Phase::Ended) };
    let whole = desk.live.whole(&failed);
    desk.settled(TaskState::Failed, Some(Reason::DeadlineExceeded));
    let stored = Hub::view_stored(&failed, Stored { whole: Some(whole), ..Stored::default() });
    assert_eq!(*stored.record, *desk.live.view().unwrap().record);
}

#[test]
fn deltas_bring_a_record_back() {
    let desk = Desk::new();
    let working = row(TaskState::Working, Phase::Running);
    let first = desk.hears(task("WORKING"));
    let whole = desk.live.whole(&working);
    desk.durable(TaskState::Working, first);
    desk.hears(chunk("one"));
    desk.hears(chunk("two"));
    let deltas = desk.live.take_deltas();
    assert_eq!(deltas.bodies.len(), 2);
    let stored = Hub::view_stored(
        &working,
        Stored { whole: Some(whole), deltas: deltas.bodies.into_iter().collect(), message: None },
    );
    assert_eq!(*stored.record, *desk.live.view().unwrap().record);
    assert!(desk.live.take_deltas().bodies.is_empty());
}

#[test]
fn an_interruption_ends_the_streams_that_saw_it_and_not_those_that_come_after() {
    let desk = Desk::new();
    let mut before = desk.hub.open(TaskId(7), false).unwrap();
    desk.hears(task("INPUT_REQUIRED"));
    desk.settled(TaskState::InputRequired, None);
    assert_eq!(ready(&mut before), ["1:task:INPUT_REQUIRED", "end Over"]);
    let mut after = desk.joins(None).unwrap();
    assert_eq!(ready(&mut after), ["snapshot 1:INPUT_REQUIRED"]);
    let next = desk.hears(status("WORKING"));
    assert!(ready(&mut after).is_empty());
    desk.durable(TaskState::Working, next);
    desk.hears(status("COMPLETED"));
    desk.settled(TaskState::Completed, None);
    assert_eq!(ready(&mut after), ["2:status:WORKING", "3:status:COMPLETED", "end Over"]);
}

#[test]
fn a_reader_resumes_after_what_it_has_or_gets_a_snapshot() {
    let desk = Desk::with(Limits { ring_events: 4, ..Limits::default() });
    let first = desk.hears(task("WORKING"));
    desk.durable(TaskState::Working, first);
    for text in ["b", "c", "d", "e", "f"] {
        desk.hears(chunk(text));
    }
    let seen = |after: Option<&str>| ready(&mut desk.joins(after).unwrap());
    assert_eq!(seen(Some("3-4")), ["5:artifact", "6:artifact"]);
    assert_eq!(seen(Some("3-2")), ["3:artifact", "4:artifact", "5:artifact", "6:artifact"]);
    assert!(seen(Some("3-6")).is_empty());
    for gone in [None, Some("3-1"), Some("2-4"), Some("3-7"), Some("x")] {
        assert_eq!(seen(gone), ["snapshot 6:WORKING"], "{gone:?}");
    }
    desk.hears(status("COMPLETED"));
    desk.settled(TaskState::Completed, None);
    assert_eq!(seen(Some("3-6")), ["7:status:COMPLETED", "end Over"]);
    assert!(desk.joins(Some("3-7")).is_none());
    assert!(desk.joins(None).is_none());
}

#[test]
fn a_reader_that_does_not_read_is_closed_and_nobody_else_is() {
    let limits = Limits { max_outbound_bytes: 64 * 1024, ring_bytes: 16 * 1024, ..Limits::default() };
    let desk = Desk::with(limits);
    let (mut stuck, mut other) = (desk.joins(None).unwrap(), desk.joins(None).unwrap());
    let text = "x".repeat(1_000);
    let mut seen = 0;
    for _ in 0..200 {
        desk.hears(chunk(&text));
        seen += ready(&mut other).iter().filter(|item| item.contains("artifact")).count();
    }
    assert_eq!(seen, 200);
    assert_eq!(desk.hub.evictions(), 1);
    let got = ready(&mut stuck);
    assert!(got.len() < 50 && got[0].starts_with("snapshot"));
    assert_eq!(got[got.len() - 1], "end Lagged");
    assert_eq!(desk.hub.streams(&AgentId::new("fx")), 2);
    drop(stuck);
    drop(other);
    assert_eq!(desk.hub.streams(&AgentId::new("fx")), 0);
}

#[test]
fn a_burst_passes_a_reader_that_is_there_and_time_ends_one_that_is_not() {
    let desk = Desk::new();
    let mut stream = desk.joins(None).unwrap();
    for _ in 0..500 {
        desk.hears(chunk("x"));
    }
    assert_eq!(ready(&mut stream).len(), 501);
    for _ in 0..129 {
        desk.hears(chunk("x"));
    }
    let later = NOW + Limits::default().drain;
    desk.live.relay(Attempt(1), chunk("x"), later);
    assert_eq!(ready(&mut stream).last().map(String::as_str), Some("end Lagged"));
}

#[test]
fn an_old_attempt_is_not_heard() {
    let desk = Desk::new();
    desk.live.begin(Attempt(2));
    assert_eq!(desk.hears(task("WORKING")), 0);
    assert!(desk.live.relay(Attempt(2), task("WORKING"), NOW).is_some_and(|numbered| numbered.gated));
}

#[test]
fn a_remote_id_belongs_to_one_delegation() {
    let desk = Desk::new();
    let twin =
        desk.hub.adopt(&Row { task: TaskId(8), ..row(TaskState::Submitted, Phase::Dispatching) }, 3, Stored::default());
    let id: Arc<str> = "r-1".into();
    assert!(desk.hub.claim(&desk.live, &id));
    assert!(desk.hub.claim(&desk.live, &id));
    assert!(!desk.hub.claim(&twin, &id));
    desk.hub.forget(TaskId(7));
    assert!(desk.hub.claim(&twin, &id));
}

#[test]
fn a_task_that_is_gone_claims_nothing() {
    let desk = Desk::new();
    let twin =
        desk.hub.adopt(&Row { task: TaskId(8), ..row(TaskState::Submitted, Phase::Dispatching) }, 3, Stored::default());
    desk.hub.forget(TaskId(7));
    // An attempt that is being stopped still learns the agent's id.
    let id: Arc<str> = "r-1".into();
    assert!(desk.hub.claim(&desk.live, &id));
    assert!(desk.hub.claim(&twin, &id));
    desk.hub.forget(TaskId(8));
    assert!(desk.hub.lock().remotes.is_empty());
}

#[test]
fn a_stream_that_is_opened_after_the_end_ends() {
    let desk = Desk::new();
    let mut before = desk.joins(None).unwrap();
    desk.hub.close_streams(End::ShuttingDown);
    let mut sent = desk.hub.open(TaskId(7), false).unwrap();
    assert_eq!(ready(&mut before), ["snapshot 0:SUBMITTED", "end ShuttingDown"]);
    assert_eq!(ready(&mut sent), ["end ShuttingDown"]);
    assert_eq!(ready(&mut desk.joins(None).unwrap()), ["snapshot 0:SUBMITTED", "end ShuttingDown"]);
}

#[test]
fn what_waits_to_be_appended_is_bounded_and_never_has_a_gap() {
    let desk = Desk::new();
    let seq = desk.hears(task("WORKING"));
    desk.durable(TaskState::Working, seq);
    assert_eq!(desk.live.take_deltas().bodies.len(), 1);
    let text = "x".repeat(1_000);
    for _ in 0..5_000 {
        desk.hears(chunk(&text));
    }
    // The store was away for too long: nothing of it is appended, and nothing that comes after it either.
    assert!(desk.live.take_deltas().bodies.is_empty());
    desk.hears(chunk("late"));
    assert!(desk.live.take_deltas().bodies.is_empty());
    // The next whole record has it all, and what follows fits again.
    let whole = desk.live.whole(&row(TaskState::Working, Phase::Running));
    assert!(whole.len() > 5_000_000);
    desk.hears(chunk("more"));
    assert_eq!(desk.live.take_deltas().bodies.len(), 1);
}

#[test]
fn a_delta_of_the_next_process_never_has_the_number_of_an_older_one() {
    let numbers = |fence| {
        let hub = Hub::new(Limits::default());
        let live = hub.adopt(&row(TaskState::Working, Phase::Running), fence, Stored::default());
        live.begin(Attempt(1));
        live.relay(Attempt(1), chunk("x"), NOW);
        live.take_deltas().first
    };
    assert!(numbers(1) > 0 && numbers(2) > numbers(1) + 1_000_000_000);
}

#[test]
fn messages_are_held_while_somebody_waits_for_them() {
    let hub = Hub::new(Limits::default());
    let row = row(TaskState::Submitted, Phase::Waiting);
    let key = Key { principal: row.principal.clone(), agent: row.agent.clone(), message_id: "m".into() };
    let message = Message {
        params: Json::assume("{\"message\":{\"messageId\":\"m\"}}"),
        trace: crate::handle::Trace::default(),
        home: Home::default(),
    };
    hub.propose(LineId(1), key.clone(), 1, message.clone()).unwrap();
    hub.propose(LineId(2), key.clone(), 1, message.clone()).unwrap();
    hub.propose(LineId(3), key, 2, message.clone()).unwrap();
    hub.withdraw(LineId(1));
    assert_eq!(hub.proposed(&row), Some(message.clone()));
    hub.withdraw(LineId(2));
    hub.withdraw(LineId(2));
    assert_eq!(hub.proposed(&row), None);
    assert_eq!(Message::from_bytes(message.to_bytes()), Some(message));
}

#[test]
fn no_agent_s_messages_take_more_room_than_they_leave_to_others() {
    let hub = Hub::new(Limits::default());
    let row = row(TaskState::Submitted, Phase::Waiting);
    let large = Message {
        params: Json::assume(format!("\"{}\"", "x".repeat((16 << 20) - 2))),
        trace: crate::handle::Trace::default(),
        home: Home::default(),
    };
    let mut line = 0;
    let mut propose = |agent: &str, print: u128| {
        let (principal, agent) = (row.principal.clone(), AgentId::new(agent));
        line += 1;
        hub.propose(LineId(line), Key { principal, agent, message_id: "m".into() }, print, large.clone())
    };
    let fit = |results: Vec<Result<(), NoRoom>>| results.iter().filter(|one| one.is_ok()).count();
    let first: Vec<_> = (0..32).map(|print| propose("slow", print)).collect();
    assert_eq!(first.last(), Some(&Err(NoRoom::Agent)));
    assert_eq!(fit(first), 8, "half of 256 MiB");
    assert_eq!(propose("slow", 0), Ok(()), "a twin takes none");
    assert_eq!(fit((0..32).map(|print| propose("other", print)).collect()), 4, "half of what is left");
    assert_eq!(propose("third", 0), Ok(()));
    for line in 1..=33 {
        hub.withdraw(LineId(line));
    }
    assert_eq!(fit((0..32).map(|print| propose("slow", print)).collect()), 5, "half of what the others leave");
}
