//! The table as it is promised, and the texts as they are read.

use std::sync::Arc;

use watertight_a2a::record::Record;
use watertight_engine::ids::Principal;
use watertight_engine::record::{Cancel, ReplyKind, TaskState};
use watertight_policy::time::Time;

use super::*;
use crate::hub::Detail;

#[test]
fn the_whole_table() {
    let mut table = String::new();
    for reason in Reason::ALL {
        let (code, status) = row(*reason);
        table += &format!("| `{reason}` | {code} | {} | {} |\n", status.as_u16(), reason.explain());
    }
    let documented = include_str!("../../../../docs/callers.md");
    assert!(documented.ends_with(&format!("|---|---|---|---|\n{table}")), "docs/callers.md should end with\n{table}");
}

#[test]
fn refusals_are_never_200_and_only_expired_time_is_504() {
    for reason in Reason::ALL {
        let (_, status) = row(*reason);
        assert_eq!(is_refusal(*reason), !matches!(status, StatusCode::OK | StatusCode::GATEWAY_TIMEOUT), "{reason}");
        let late = matches!(reason, Reason::DeadlineExceeded | Reason::AgentNoAnswer);
        assert_eq!(status == StatusCode::GATEWAY_TIMEOUT, late, "{reason}");
    }
}

fn view(reason: Reason, delivery: Delivery, detail: Option<Detail>) -> TaskView {
    let task = TaskId(7);
    TaskView {
        task,
        principal: Principal { tenant: "local".into(), caller: "local".into() },
        agent: AgentId::new("hotels"),
        from: None,
        context: "c".into(),
        state: TaskState::Failed,
        reason: Some(reason),
        delivery,
        cancel: Cancel::None,
        late: None,
        reply: ReplyKind::Task,
        position: None,
        waiting_on: None,
        created: Time::ZERO,
        changed: Time::ZERO,
        turn: 1,
        attempts: 1,
        remote_task: None,
        detail: detail.map(Arc::new),
        replay: false,
        redrives: None,
        redriven_by: None,
        withheld: false,
        record: Arc::new(Record::new(&task.to_string(), "c", 0)),
    }
}

fn object(problem: &Problem) -> String {
    String::from_utf8(problem.error.to_object()).unwrap()
}

#[test]
fn a_refusal_names_agent_limit_and_time() {
    let refused = Declined::Refused {
        reason: Reason::BulkheadFull,
        agent: AgentId::new("hotels"),
        retry_after: None,
        cause: None,
    };
    let problem = Problem::declined(refused, &AgentId::new("hotels"), None, Some(&AgentSettings::default()));
    assert_eq!(problem.status.as_u16(), 503);
    assert_eq!(problem.retry_after, Some(Span::from_secs(1)));
    let text = object(&problem);
    assert!(text.contains("8 in flight and 16 waiting are its limit, and no slot came free within 0.5s"), "{text}");
    assert!(text.contains(r#""reason":"bulkhead_full","domain":"watertight""#), "{text}");
    assert!(text.contains(r#""agent":"hotels","delivery":"not_sent","retryAfterMs":"1000""#), "{text}");
}

#[test]
fn what_may_have_been_delivered_is_never_invited_to_be_sent_again() {
    for reason in Reason::ALL {
        let text = failure_text(&view(*reason, Delivery::MaybeDelivered, None), *reason, &Limits::default());
        assert!(text.starts_with("agent hotels: "), "{text}");
        let lower = text.to_lowercase();
        assert!(lower.contains("outcome unknown; look up task 00000000000000000000000000000007"), "{text}");
        let invites = ["try again", "send it again", "send again", "retry"].iter().any(|word| lower.contains(word));
        assert!(!invites, "{text}");
    }
}

#[test]
fn an_agents_own_error_goes_through_with_ours_behind_it() {
    let data = br#"[{"@type":"t","x":1},"untyped"]"#;
    let detail = Detail {
        code: Some(-32042),
        message: Some("no rooms".to_owned()),
        data: Some(bytes::Bytes::from_static(data)),
        ..Detail::default()
    };
    let view = view(Reason::AgentError, Delivery::Delivered, Some(detail));
    let text = object(&Problem::failed(&view, Reason::AgentError, &Limits::default()));
    assert!(text.starts_with(r#"{"code":-32042,"message":"no rooms","data":[{"@type":"t","x":1},{"@type":"#), "{text}");
    assert!(text.contains(r#""reason":"agent_error","domain":"watertight","metadata":{"agent":"hotels","delivery":"delivered","taskId":"#), "{text}");
}

#[test]
fn a_code_of_zero_is_no_code() {
    let detail = Detail { code: Some(0), message: Some("overloaded".to_owned()), ..Detail::default() };
    let view = view(Reason::AgentError, Delivery::Delivered, Some(detail));
    let problem = Problem::failed(&view, Reason::AgentError, &Limits::default());
    assert_eq!((problem.error.code, problem.reason()), (WATERTIGHT, "agent_error"));
    assert!(problem.error.message.contains("overloaded"), "{}", problem.error.message);
}

#[test]
fn a_malformed_answer_is_a2as_error_with_ours_behind_it() {
    let detail = Detail { status: Some(200), excerpt: Some("<html>".to_owned()), ..Detail::default() };
    let view = view(Reason::AgentMalformed, Delivery::MaybeDelivered, Some(detail));
    let problem = Problem::failed(&view, Reason::AgentMalformed, &Limits::default());
    assert_eq!(problem.reason(), "agent_malformed");
    let text = object(&problem);
    assert!(text.starts_with(r#"{"code":-32006,"#), "{text}");
    let (a2a, ours) = (text.find("INVALID_AGENT_RESPONSE"), text.find("agent_malformed"));
    assert!(a2a.is_some() && a2a < ours, "{text}");
    assert!(text.contains("HTTP 200; it said: <html>"), "{text}");
}

#[test]
fn the_limit_that_applied_is_named() {
    let view = view(Reason::DeadlineExceeded, Delivery::MaybeDelivered, None);
    let walls = AgentSettings::default();
    let limits = Limits { walls: Some(&walls), asked: Some(5.7), timeouts: None };
    assert!(failure_text(&view, Reason::DeadlineExceeded, &limits).contains("(budget 5.7s)"));
    let timeouts = Some((std::time::Duration::from_secs(2), std::time::Duration::from_secs(60)));
    let silent = |asked| failure_text(&view, Reason::AgentNoAnswer, &Limits { asked, timeouts, ..limits });
    assert!(silent(Some(1.5)).contains("(budget 1.5s)") && silent(None).contains("(idle_timeout 60s)"));
    let limits = Limits { asked: None, ..limits };
    assert!(failure_text(&view, Reason::DeadlineExceeded, &limits).contains("(budget 300s)"));
}
