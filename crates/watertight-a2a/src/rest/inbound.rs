//! What a caller asks for, read from method, path, query and body.
//!
//! A [`Place`] is a path below an agent's address. What is asked there becomes the same [`Call`] that JSON-RPC gives:
//! path and query are merged into the body's params, whose every other byte stays. The tenant and the ids may be said
//! in several places, and then have to agree, since whoever stands behind could read the other one. Assumes that
//! the path is still percent-encoded, and that the body is bounded.

use bytes::Bytes;

use super::query::{decode, value};
use crate::call::Call;
use crate::edit;
use crate::error::{self, Error};
use crate::json::{self, Json, Limits};
use crate::jsonrpc::Method;
use crate::params::pick;
use crate::text::{ObjectWriter, clean, quote};

/// A path below an agent's address that stands for something. Its parts are as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    what: What,
    tenant: Option<&'a str>,
    task: Option<&'a str>,
    config: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Send,
    Stream,
    Tasks,
    Task,
    Cancel,
    Subscribe,
    Configs,
    Config,
    ExtendedCard,
}

impl<'a> Place<'a> {
    /// Reads a path, which begins with a slash and may end with one. `None`: there is nothing.
    pub fn of(path: &'a str) -> Option<Place<'a>> {
        let path = path.strip_prefix('/')?;
        let mut parts = path.strip_suffix('/').unwrap_or(path).split('/');
        let parts = [parts.next(), parts.next(), parts.next(), parts.next(), parts.next(), parts.next()];
        match parts {
            [.., Some(_)] => None,
            [first, second, third, fourth, fifth, None] => {
                let place = Place::at([first, second, third, fourth]).filter(|_| fifth.is_none());
                // What could be read either way is no tenant's.
                place.or_else(|| {
                    let place = Place::at([second, third, fourth, fifth])?;
                    Some(Place { tenant: Some(first.filter(|tenant| !tenant.is_empty())?), ..place })
                })
            }
        }
    }

    fn at(parts: [Option<&'a str>; 4]) -> Option<Place<'a>> {
        let place = |what, task, config| Some(Place { what, tenant: None, task, config });
        match parts {
            [Some(first), None, ..] if verb(first, "send") == Some("message") => place(What::Send, None, None),
            [Some(first), None, ..] if verb(first, "stream") == Some("message") => place(What::Stream, None, None),
            [Some("extendedAgentCard"), None, ..] => place(What::ExtendedCard, None, None),
            [Some("tasks"), None, ..] => place(What::Tasks, None, None),
            [Some("tasks"), Some(task), None, None] => match (verb(task, "cancel"), verb(task, "subscribe")) {
                (Some(task), _) => place(What::Cancel, Some(task), None),
                (None, Some(task)) => place(What::Subscribe, Some(task), None),
                (None, None) => place(What::Task, Some(task), None),
            },
            [Some("tasks"), task, Some("pushNotificationConfigs"), config] => match config {
                None => place(What::Configs, task, None),
                Some(_) => place(What::Config, task, config),
            },
            _ => None,
        }
    }

    /// The HTTP methods that it takes.
    pub fn verbs(&self) -> &'static [&'static str] {
        match self.what {
            What::Send | What::Stream | What::Cancel => &["POST"],
            What::Tasks | What::Task | What::ExtendedCard => &["GET", "HEAD"],
            What::Subscribe | What::Configs => &["GET", "HEAD", "POST"],
            What::Config => &["GET", "HEAD", "DELETE"],
        }
    }

    /// What this HTTP method asks for here; `None` if nothing.
    pub fn operation(&self, verb: &str) -> Option<Method> {
        Some(match (self.what, verb) {
            (What::Send, "POST") => Method::SendMessage,
            (What::Stream, "POST") => Method::SendStreamingMessage,
            (What::Tasks, "GET" | "HEAD") => Method::ListTasks,
            (What::Task, "GET" | "HEAD") => Method::GetTask,
            (What::Cancel, "POST") => Method::CancelTask,
            (What::Subscribe, "GET" | "HEAD" | "POST") => Method::SubscribeToTask,
            (What::Configs, "GET" | "HEAD") => Method::ListTaskPushNotificationConfigs,
            (What::Configs, "POST") => Method::CreateTaskPushNotificationConfig,
            (What::Config, "GET" | "HEAD") => Method::GetTaskPushNotificationConfig,
            (What::Config, "DELETE") => Method::DeleteTaskPushNotificationConfig,
            (What::ExtendedCard, "GET" | "HEAD") => Method::GetExtendedAgentCard,
            (
                What::Send
                | What::Stream
                | What::Tasks
                | What::Task
                | What::Cancel
                | What::Subscribe
                | What::Configs
                | What::Config
                | What::ExtendedCard,
                _,
            ) => return None,
        })
    }

    /// The call, and its params as JSON-RPC would have had them. `query` is what stands behind the question mark; `body`
    /// is empty where there is none.
    pub fn call(&self, method: Method, query: &str, body: Bytes, limits: &Limits) -> Result<Call, Error> {
        let body = json::without_mark(body);
        let given = if body.trim_ascii().is_empty() { None } else { Some(object(body, limits)?) };
        let params = match (given, needs_body(method)) {
            (Some(given), _) => given,
            (None, true) => return Err(Error::invalid_params("body", "is required")),
            (None, false) => Json::assume(from_query(query, method)?),
        };
        let mut set = Vec::new();
        let task = if self.config.is_some() || self.what == What::Configs { "taskId" } else { "id" };
        for (name, part) in [("tenant", self.tenant), (task, self.task), ("id", self.config)] {
            // The task's id is the path's alone to give, and no one else's to be asked about.
            if name == "tenant" || part.is_some() {
                set.extend(agreed(name, part, query, &params)?.map(|text| (name, Some(Json::string(&text)))));
            }
        }
        Call::parse(method, Some(edit::set_members(&params, &set)))
    }
}

/// What stands before the custom verb, if the segment ends with it.
fn verb<'a>(segment: &'a str, verb: &str) -> Option<&'a str> {
    let before = segment.strip_suffix(verb)?;
    // Some clients encode what they need not.
    [":", "%3A", "%3a"].iter().find_map(|colon| before.strip_suffix(colon))
}

fn needs_body(method: Method) -> bool {
    match method {
        Method::SendMessage | Method::SendStreamingMessage | Method::CreateTaskPushNotificationConfig => true,
        Method::GetTask
        | Method::ListTasks
        | Method::CancelTask
        | Method::SubscribeToTask
        | Method::GetTaskPushNotificationConfig
        | Method::ListTaskPushNotificationConfigs
        | Method::DeleteTaskPushNotificationConfig
        | Method::GetExtendedAgentCard => false,
    }
}

fn object(body: Bytes, limits: &Limits) -> Result<Json, Error> {
    let body = Json::parse(body, limits).map_err(|bad| match bad {
        json::Error::TooLarge { .. } | json::Error::TooDeep { .. } => {
            Error::new(error::INVALID_REQUEST, format!("Invalid request: {bad}"))
        }
        json::Error::NotUtf8 { .. } | json::Error::Cut | json::Error::Syntax { .. } => {
            Error::new(error::PARSE, format!("Parse error: {bad}"))
        }
    })?;
    if body.value().is_object() { Ok(body) } else { Err(Error::invalid_params("body", "must be an object")) }
}

/// How a parameter is written as JSON.
#[derive(Clone, Copy)]
enum As {
    Text,
    /// An enum's name, or its number.
    Word,
    Flag,
    Time,
}

/// The params that the query holds; what is unknown is passed over.
fn from_query(query: &str, method: Method) -> Result<Vec<u8>, Error> {
    let known: &[(&'static str, As)] = match method {
        Method::GetTask => &[("historyLength", As::Text)],
        Method::ListTasks => &[
            ("contextId", As::Text),
            ("status", As::Word),
            ("pageSize", As::Text),
            ("pageToken", As::Text),
            ("historyLength", As::Text),
            ("statusTimestampAfter", As::Time),
            ("includeArtifacts", As::Flag),
        ],
        Method::ListTaskPushNotificationConfigs => &[("pageSize", As::Text), ("pageToken", As::Text)],
        Method::SendMessage
        | Method::SendStreamingMessage
        | Method::CancelTask
        | Method::SubscribeToTask
        | Method::CreateTaskPushNotificationConfig
        | Method::GetTaskPushNotificationConfig
        | Method::DeleteTaskPushNotificationConfig
        | Method::GetExtendedAgentCard => &[],
    };
    let mut out = Vec::new();
    let mut object = ObjectWriter::open(&mut out);
    for (name, form) in known {
        let Some(text) = value(query, name)? else { continue };
        let place = object.member(name);
        match (form, text.parse::<i64>()) {
            (As::Word, Ok(number)) => place.extend_from_slice(number.to_string().as_bytes()),
            (As::Flag, _) if matches!(text.as_str(), "true" | "false") => place.extend_from_slice(text.as_bytes()),
            (As::Time, _) => quote(&with_offset(text), place),
            (As::Text | As::Word | As::Flag, _) => quote(&text, place),
        }
    }
    object.close();
    Ok(out)
}

/// A timestamp whose `+02:00` was not encoded, so that its plus sign has become a space.
fn with_offset(text: String) -> String {
    match text.len().checked_sub(6).filter(|at| *at > 18 && text.as_bytes().get(*at) == Some(&b' ')) {
        Some(at) => format!("{}+{}", text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default()),
        None => text,
    }
}

/// What path, query and body say of one member, if the params do not hold it already.
fn agreed(name: &'static str, part: Option<&str>, query: &str, params: &Json) -> Result<Option<String>, Error> {
    let part = match part.map(|part| decode(part, false)) {
        Some(None) => return Err(Error::invalid_params(name, "is not percent-encoded UTF-8 in the path")),
        Some(text) => text,
        None => None,
    };
    let held = pick(Some(params.value()), "", [name])?.id(name)?;
    let said = [("path", part), ("query", value(query, name)?), ("body", held.clone())];
    let mut said = said.into_iter().filter_map(|(place, text)| Some((place, text?)));
    let Some((first, text)) = said.next() else { return Ok(None) };
    for (place, other) in said {
        if other != text {
            let (one, two) = (clean(&text, 64), clean(&other, 64));
            let why = format!("is `{one}` in the {first} and `{two}` in the {place}");
            return Err(Error::invalid_params(name, why));
        }
    }
    Ok(Some(text).filter(|_| held.is_none()))
}

#[cfg(test)]
mod tests;
