//! The doors: which path leads where, by which methods, and what of other agents' words comes out there.
//!
//! One table, so that a door which is not in it does not exist, and what lists them (`GET /`) cannot forget one. Assumes a
//! path without the public prefix ([`super::public`]). Who may pass is decided behind each door.

use http::Method;

/// A path, understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Index,
    Health,
    Ready,
    Metrics,
    Agents,
    Register,
    Agent(&'a str),
    Dismiss(&'a str),
    ResetBreaker(&'a str),
    Drain(&'a str),
    Resume(&'a str),
    Config,
    Reload,
    Queue(&'a str),
    Delegations,
    Delegation(&'a str),
    Drop(&'a str),
    Outbox,
    OutboxPending,
    OutboxStream,
    OutboxAck,
    Inbox,
    InboxClaim,
    /// What a worker says: the task, and which kind of word.
    InboxWord(&'a str, &'static str),
    Mcp,
    Tree(&'a str),
    Redrive(&'a str),
    Rpc(&'a str),
    /// HTTP+JSON: the agent, and the path below it.
    Rest(&'a str, &'a str),
    Card(&'a str),
    Audit,
    /// The agent's A2A door, for who may leave the envelope away.
    OpenRpc(&'a str),
    Delegate(&'a str),
    Dealings(&'a str),
    /// The agent, and one of what it has to do with.
    Dealing(&'a str, &'a str),
}

/// What of other agents' words a door lets out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// None.
    No,
    /// As fields, for programs.
    Fields,
    /// For a model: framed.
    Framed,
    /// Fields, and beside them what a model may read, framed.
    Both,
}

impl Words {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Words::No => "none",
            Words::Fields => "fields",
            Words::Framed => "framed",
            Words::Both => "fields and framed",
        }
    }
}

/// One door.
pub(super) struct Door {
    /// Segments; `{name}` stands for any, `{+name}` for all that is left, from its slash on.
    pub(super) path: &'static str,
    /// None: the binding knows them.
    pub(super) methods: &'static [&'static str],
    pub(super) words: Words,
    /// From what stands for the names, in their order.
    route: for<'a> fn([&'a str; 2]) -> Route<'a>,
}

const GET: &[&str] = &["GET", "HEAD"];
const POST: &[&str] = &["POST"];
const DELETE: &[&str] = &["DELETE"];

const fn door(
    methods: &'static [&'static str],
    path: &'static str,
    words: Words,
    route: for<'a> fn([&'a str; 2]) -> Route<'a>,
) -> Door {
    Door { path, methods, words, route }
}

/// All there are. The first that fits a path and its method counts.
pub(super) const DOORS: &[Door] = &[
    door(POST, "/agents/{agent}", Words::Fields, |[agent, _]| Route::Rpc(agent)),
    door(GET, "/agents/{agent}/.well-known/agent-card.json", Words::Fields, |[agent, _]| Route::Card(agent)),
    door(&[], "/agents/{agent}{+operation}", Words::Fields, |[agent, below]| Route::Rest(agent, below)),
    door(POST, "/mcp", Words::Framed, |_| Route::Mcp),
    door(GET, "/v1/outbox", Words::Both, |_| Route::Outbox),
    door(GET, "/v1/outbox/stream", Words::Both, |_| Route::OutboxStream),
    door(GET, "/v1/outbox/pending", Words::No, |_| Route::OutboxPending),
    door(POST, "/v1/outbox/ack", Words::No, |_| Route::OutboxAck),
    door(GET, "/v1/inbox", Words::No, |_| Route::Inbox),
    door(POST, "/v1/inbox/claim", Words::Fields, |_| Route::InboxClaim),
    door(POST, "/v1/inbox/{task}/start", Words::No, |[task, _]| Route::InboxWord(task, "start")),
    door(POST, "/v1/inbox/{task}/extend", Words::No, |[task, _]| Route::InboxWord(task, "extend")),
    door(POST, "/v1/inbox/{task}/progress", Words::No, |[task, _]| Route::InboxWord(task, "progress")),
    door(POST, "/v1/inbox/{task}/ask", Words::No, |[task, _]| Route::InboxWord(task, "ask")),
    door(POST, "/v1/inbox/{task}/finish", Words::No, |[task, _]| Route::InboxWord(task, "finish")),
    door(POST, "/workspaces/{agent}/a2a", Words::Fields, |[agent, _]| Route::OpenRpc(agent)),
    door(GET, "/workspaces/{agent}/a2a/.well-known/agent-card.json", Words::Fields, |[agent, _]| Route::Card(agent)),
    door(&[], "/workspaces/{agent}/a2a{+operation}", Words::Fields, |[agent, below]| Route::Rest(agent, below)),
    door(POST, "/workspaces/{agent}/delegate", Words::No, |[agent, _]| Route::Delegate(agent)),
    door(GET, "/workspaces/{agent}/delegations", Words::Fields, |[agent, _]| Route::Dealings(agent)),
    door(GET, "/workspaces/{agent}/delegations/{delegation}", Words::Fields, |[agent, id]| Route::Dealing(agent, id)),
    door(GET, "/v1/delegations", Words::No, |_| Route::Delegations),
    door(GET, "/v1/delegations/{task}", Words::Fields, |[task, _]| Route::Delegation(task)),
    door(GET, "/v1/delegations/{task}/tree", Words::No, |[task, _]| Route::Tree(task)),
    door(POST, "/v1/delegations/{task}/redrive", Words::No, |[task, _]| Route::Redrive(task)),
    door(POST, "/v1/delegations/{task}/drop", Words::No, |[task, _]| Route::Drop(task)),
    door(GET, "/v1/audit", Words::No, |_| Route::Audit),
    door(GET, "/v1/agents", Words::Fields, |_| Route::Agents),
    door(POST, "/v1/agents", Words::No, |_| Route::Register),
    door(GET, "/v1/agents/{agent}", Words::Fields, |[agent, _]| Route::Agent(agent)),
    door(DELETE, "/v1/agents/{agent}", Words::No, |[agent, _]| Route::Dismiss(agent)),
    door(GET, "/v1/agents/{agent}/queue", Words::No, |[agent, _]| Route::Queue(agent)),
    door(POST, "/v1/agents/{agent}/breaker/reset", Words::No, |[agent, _]| Route::ResetBreaker(agent)),
    door(POST, "/v1/agents/{agent}/drain", Words::No, |[agent, _]| Route::Drain(agent)),
    door(POST, "/v1/agents/{agent}/resume", Words::No, |[agent, _]| Route::Resume(agent)),
    door(GET, "/v1/config", Words::No, |_| Route::Config),
    door(POST, "/v1/config/reload", Words::No, |_| Route::Reload),
    door(GET, "/metrics", Words::No, |_| Route::Metrics),
    door(GET, "/healthz", Words::No, |_| Route::Health),
    door(GET, "/readyz", Words::No, |_| Route::Ready),
    door(GET, "", Words::No, |_| Route::Index),
];

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Door(Route<'a>),
    /// There is something, for other methods.
    Methods(Vec<&'static str>),
    Nothing,
}

/// Where this path leads with this method. A slash at its end changes nothing: many clients' libraries put one there.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Found<'a> {
    let mut others: Vec<&'static str> = Vec::new();
    for door in DOORS {
        let Some(names) = door.fits(path) else { continue };
        if door.methods.is_empty() && others.is_empty() || door.methods.contains(&method.as_str()) {
            return Found::Door((door.route)(names));
        }
        others.extend(door.methods);
    }
    if others.is_empty() { Found::Nothing } else { Found::Methods(others) }
}

impl Door {
    /// What stands for its names, if this is a path of it.
    fn fits<'a>(&self, path: &'a str) -> Option<[&'a str; 2]> {
        let mut names = [""; 2];
        let mut filled = names.iter_mut();
        let mut left = path;
        let mut pattern = self.path;
        loop {
            let Some(open) = pattern.find('{') else {
                return matches!(left.strip_prefix(pattern)?, "" | "/").then_some(names);
            };
            left = left.strip_prefix(&pattern[..open])?;
            let close = pattern.find('}')?;
            let rest = pattern[open + 1..close].starts_with('+');
            pattern = &pattern[close + 1..];
            let end = if rest { left.len() } else { left.find('/').unwrap_or(left.len()) };
            let (name, after) = left.split_at(end);
            if name.is_empty() || rest && !name.starts_with('/') {
                return None;
            }
            *filled.next()? = name;
            left = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (method, path, found) in [
            (Method::GET, "/", Found::Door(Route::Index)),
            (Method::POST, "/agents/hotels", Found::Door(Route::Rpc("hotels"))),
            (Method::POST, "/agents/hotels/", Found::Door(Route::Rpc("hotels"))),
            (Method::GET, "/agents/hotels/.well-known/agent-card.json", Found::Door(Route::Card("hotels"))),
            (Method::GET, "/v1/agents", Found::Door(Route::Agents)),
            (Method::POST, "/v1/agents", Found::Door(Route::Register)),
            (Method::GET, "/v1/agents/fx", Found::Door(Route::Agent("fx"))),
            (Method::DELETE, "/v1/agents/fx", Found::Door(Route::Dismiss("fx"))),
            (Method::POST, "/v1/agents/fx/breaker/reset", Found::Door(Route::ResetBreaker("fx"))),
            (Method::POST, "/v1/agents/fx/drain", Found::Door(Route::Drain("fx"))),
            (Method::GET, "/v1/agents/fx/queue", Found::Door(Route::Queue("fx"))),
            (Method::POST, "/v1/delegations/t/drop", Found::Door(Route::Drop("t"))),
            (Method::POST, "/v1/agents/fx/resume", Found::Door(Route::Resume("fx"))),
            (Method::GET, "/v1/outbox", Found::Door(Route::Outbox)),
            (Method::POST, "/v1/outbox/ack", Found::Door(Route::OutboxAck)),
            (Method::GET, "/v1/outbox/stream", Found::Door(Route::OutboxStream)),
            (Method::GET, "/v1/outbox/pending", Found::Door(Route::OutboxPending)),
            (Method::GET, "/v1/outbox/of/others", Found::Nothing),
            (Method::GET, "/v1/inbox", Found::Door(Route::Inbox)),
            (Method::POST, "/v1/inbox/claim", Found::Door(Route::InboxClaim)),
            (Method::POST, "/v1/inbox/12/finish", Found::Door(Route::InboxWord("12", "finish"))),
            (Method::GET, "/v1/inbox/12/steal", Found::Nothing),
            (Method::GET, "/v1/config", Found::Door(Route::Config)),
            (Method::POST, "/v1/config/reload", Found::Door(Route::Reload)),
            (Method::GET, "/v1/delegations", Found::Door(Route::Delegations)),
            (Method::GET, "/v1/delegations/12", Found::Door(Route::Delegation("12"))),
            (Method::GET, "/v1/delegations/12/tree", Found::Door(Route::Tree("12"))),
            (Method::GET, "/v1/delegations/12/tree/", Found::Door(Route::Tree("12"))),
            (Method::POST, "/v1/delegations/12/redrive", Found::Door(Route::Redrive("12"))),
            (Method::GET, "/v1/audit", Found::Door(Route::Audit)),
            (Method::POST, "/workspaces/fx/a2a", Found::Door(Route::OpenRpc("fx"))),
            (Method::GET, "/workspaces/fx/a2a/.well-known/agent-card.json", Found::Door(Route::Card("fx"))),
            (Method::GET, "/workspaces/fx/a2a/tasks/x", Found::Door(Route::Rest("fx", "/tasks/x"))),
            (Method::POST, "/workspaces/fx/delegate", Found::Door(Route::Delegate("fx"))),
            (Method::GET, "/workspaces/fx/delegations", Found::Door(Route::Dealings("fx"))),
            (Method::GET, "/workspaces/fx/delegations/12", Found::Door(Route::Dealing("fx", "12"))),
            (Method::GET, "/workspaces/fx/a2abc", Found::Nothing),
            (Method::GET, "/metrics", Found::Door(Route::Metrics)),
            (Method::GET, "/agents", Found::Nothing),
            (Method::GET, "/agents/", Found::Nothing),
            (Method::GET, "/agents//", Found::Nothing),
            (Method::GET, "/agents/hotels//", Found::Door(Route::Rest("hotels", "//"))),
            (Method::GET, "/agents/hotels/message:send/", Found::Door(Route::Rest("hotels", "/message:send/"))),
            (Method::GET, "/agents/hotels/t/tasks/a", Found::Door(Route::Rest("hotels", "/t/tasks/a"))),
            (Method::GET, "/v1/agents/fx/breaker/reset/x", Found::Nothing),
            (Method::GET, "/healthz/x", Found::Nothing),
            (Method::GET, "/%2e%2e/etc", Found::Nothing),
            (Method::GET, "", Found::Door(Route::Index)),
            (Method::GET, "//", Found::Nothing),
            (Method::POST, "/v1/outbox", Found::Methods(vec!["GET", "HEAD"])),
            (Method::GET, "/agents/hotels/", Found::Methods(vec!["POST"])),
            (Method::POST, "/agents/hotels/.well-known/agent-card.json", Found::Methods(vec!["GET", "HEAD"])),
            (Method::DELETE, "/agents/hotels/tasks/x", Found::Door(Route::Rest("hotels", "/tasks/x"))),
        ] {
            assert_eq!(find(&method, path), found, "{method} {path}");
        }
    }

    #[test]
    fn no_door_stands_before_another() {
        for (at, door) in DOORS.iter().enumerate() {
            let path = door.path.replace("{+operation}", "/tasks").replace(['{', '}'], "");
            let first = DOORS.iter().position(|other| {
                let takes =
                    other.methods.is_empty() || door.methods.iter().any(|method| other.methods.contains(method));
                takes && other.fits(&path).is_some()
            });
            assert_eq!(first, Some(at), "{path}");
        }
    }
}
