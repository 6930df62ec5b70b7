//! What it means: units, secrets and rules. Every mistake is collected with its place, so that one run shows all.

pub(crate) mod enrolment;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri, header};
use toml::Spanned;
use watertight_engine::ids::AgentId;
use watertight_engine::record::Durability;
use watertight_engine::settings::{AgentSettings, Serialize};
use watertight_policy::access::{Place, Rule};
use watertight_policy::time::Span;
use watertight_policy::{acceptance, backoff, breaker, budget, bulkhead, queue, rate, retry_budget};

use super::report::Problem;
use super::secret::{Env, Secret, Wrong, find};
use super::written::{self, Text};
use super::{Agent, Caller, Config, KeyFile, Net, Places, Server, mend, relations, units};
use crate::agents::{AgentConfig, Binding, Mode, NOWHERE};
use crate::push;
use crate::wake::Hook;
use crate::{InMemory, Kept};

const LISTEN: &str = "127.0.0.1:7420";
/// A session that is one alone is given the next thing late rather than two at once.
const NATIVE_GRACE: Span = Span::from_secs(300);
const SECRET_HELP: &str = "write env:NAME or file:PATH; secrets are never kept in the configuration";

struct Judge<'a> {
    env: Env<'a>,
    dir: &'a Path,
    problems: Vec<Problem>,
}

/// The shortest pause between two messages that tell an agent of its results.
const LEAST_COOLDOWN: Span = Span::from_millis(100);

pub(super) fn config(
    file: written::File,
    dir: &Path,
    listen: Option<SocketAddr>,
    env: Env<'_>,
) -> Result<Config, Vec<Problem>> {
    let mut judge = Judge { env, dir, problems: relations::problems(&file) };
    let (key, tokens, store) = (key(&file, dir), tokens(&file, dir), store(&file, dir));
    // One that is configured with a mistake is still one that callers may be given.
    let named: BTreeSet<AgentId> = file.agents.keys().map(|name| AgentId::new(name.as_ref())).collect();
    let mut agents: BTreeMap<AgentId, Agent> =
        file.agents.into_iter().filter_map(|(name, agent)| judge.agent(name, agent)).collect();
    let callers = judge.callers(file.callers, &named);
    let enrolments = judge.enrolments(file.enrolment, &callers, &agents);
    let found = judge.registered(file.store.path.as_ref(), &store, &enrolments, &mut agents, &callers);
    let has_tokens = judge.has_tokens(file.tokens.as_ref(), &tokens);
    let listen = judge.listen(file.listen.as_ref(), listen, callers.is_empty() && enrolments.is_empty() && !has_tokens);
    let max_delegations = judge.count(file.server.max_delegations.as_ref(), 1, 100_000) as usize;
    let max_behind = judge.count(file.server.max_behind.as_ref(), 0, 64) as usize;
    let max_queued_per_tenant = judge.count(file.server.max_queued_per_tenant.as_ref(), 1, 100_000) as usize;
    let public_url = file.server.public_url.as_ref().and_then(|url| {
        let uri = judge.url(url, "public_url")?;
        if uri.query().is_some() {
            judge.say(url, "public_url has a query, and paths could not follow it");
        }
        Some(uri.to_string().trim_end_matches('/').to_owned())
    });
    let trusted_proxies = judge.nets(file.server.trusted_proxies.as_deref().unwrap_or_default());
    let kept = Kept {
        retention: judge.span(file.store.retention.as_ref(), Kept::default().retention),
        dedupe_window: judge.span(file.store.dedupe_window.as_ref(), Kept::default().dedupe_window),
    };
    if let Some(window) = file.store.dedupe_window.as_ref().filter(|_| kept.dedupe_window > kept.retention) {
        judge.say(window, "dedupe_window is longer than retention: the task of such a key would be gone already");
    }
    let config = Config {
        listen,
        key,
        tokens,
        has_tokens,
        store,
        kept,
        public_url,
        trusted_proxies,
        server: judge.server(&file.server),
        drain: judge.wait(file.drain.limit.as_ref(), Duration::from_secs(20)),
        max_delegations,
        max_behind,
        max_queued_per_tenant,
        max_outbox: judge.count(file.server.max_outbox.as_ref(), 1, 10_000) as usize,
        local_outbox: file.server.outbox,
        access: judge.word(file.server.access.as_ref(), &[("tenant", Rule::Tenant), ("hierarchy", Rule::Hierarchy)]),
        push: push::Settings {
            enabled: file.push.enabled,
            allow: judge.nets(file.push.allow.as_deref().unwrap_or_default()),
        },
        rate: rate::Params {
            limit: judge.count(file.limits.agent_messages.as_ref(), 0, rate::Params::default().limit),
            window: judge.span(file.limits.agent_messages_window.as_ref(), rate::Params::default().window),
        },
        callers,
        enrolments,
        agents,
        registered: found.records,
        overruled: found.overruled,
        places: Places::default(),
    };
    judge.problems.sort_by_key(|problem| problem.span.start);
    if judge.problems.is_empty() { Ok(config) } else { Err(judge.problems) }
}

pub(super) fn key(file: &written::File, dir: &Path) -> KeyFile {
    let path = dir.join(file.key.as_ref().map_or("watertight.key", |key| key.as_ref()));
    // A token that is given out has to count after a restart too.
    KeyFile { path, required: file.key.is_some() || !file.enrolment.is_empty() }
}

pub(super) fn tokens(file: &written::File, dir: &Path) -> PathBuf {
    dir.join(file.tokens.as_ref().map_or("tokens.json", |path| path.as_ref()))
}

pub(super) fn store(file: &written::File, dir: &Path) -> PathBuf {
    dir.join(file.store.path.as_ref().map_or("data", |path| path.as_ref()))
}

impl Judge<'_> {
    /// Whether the gateway asks for tokens. A file that nobody can read must not mean that it does not.
    fn has_tokens(&mut self, written: Option<&Text>, path: &Path) -> bool {
        match crate::tokens::read(path) {
            Ok(tokens) => !tokens.is_empty(),
            Err(e) => {
                let span = written.map_or(0..0, Spanned::span);
                let message = format!("the token file cannot be read: {}: {e}", path.display());
                self.problems.push(Problem { span, message, help: None, hide: false });
                true
            }
        }
    }

    fn say<T>(&mut self, at: &Spanned<T>, message: impl fmt::Display) {
        self.help(at, message, None);
    }

    fn help<T>(&mut self, at: &Spanned<T>, message: impl fmt::Display, help: Option<&'static str>) {
        self.problems.push(Problem { span: at.span(), message: message.to_string(), help, hide: false });
    }

    /// A table lacks what it must have.
    fn missing<T>(&mut self, table: &Text, key: &str) -> Option<T> {
        self.say(table, mend::missing(key));
        None
    }

    fn listen(&mut self, written: Option<&Text>, given: Option<SocketAddr>, open: bool) -> SocketAddr {
        let fallback = SocketAddr::from(([127, 0, 0, 1], 7420));
        let text = written.map_or(LISTEN, |w| w.as_ref());
        let Ok(addr) = text.replace("localhost:", "127.0.0.1:").parse::<SocketAddr>() else {
            if let Some(written) = written {
                self.say(
                    written,
                    format!("`{text}` is no address: write HOST:PORT with a numeric host, such as {LISTEN}"),
                );
            }
            return given.unwrap_or(fallback);
        };
        let addr = given.unwrap_or(addr);
        if open && !addr.ip().is_loopback() {
            let message = format!("{addr} can be reached from other machines, and there are no callers and no tokens");
            let help =
                Some("make one with watertight token new, or add a [callers.NAME] table, or listen on 127.0.0.1");
            match written {
                Some(written) => self.help(written, message, help),
                None => self.problems.push(Problem { span: 0..0, message, help, hide: false }),
            }
        }
        addr
    }

    fn server(&mut self, written: &written::Server) -> Server {
        let d = Server::default();
        let server = Server {
            max_connections: self.count(written.max_connections.as_ref(), 1, 4_096) as usize,
            max_streams_per_connection: self.count(
                written.max_streams_per_connection.as_ref(),
                1,
                d.max_streams_per_connection,
            ),
            max_header_bytes: self.bytes(written.max_header_bytes.as_ref(), d.max_header_bytes),
            max_request_bytes: self.bytes(written.max_request_bytes.as_ref(), d.max_request_bytes),
            max_buffered_bytes: self.bytes(written.max_buffered_bytes.as_ref(), d.max_buffered_bytes),
            header_timeout: self.wait(written.header_timeout.as_ref(), d.header_timeout),
            body_timeout: self.wait(written.body_timeout.as_ref(), d.body_timeout),
            write_stall: self.wait(written.write_stall.as_ref(), d.write_stall),
            max_outbound_events: self.count(written.max_outbound_events.as_ref(), 1, 128) as usize,
            max_outbound_bytes: self.bytes(written.max_outbound_bytes.as_ref(), d.max_outbound_bytes),
        };
        if let Some(header) = written.max_header_bytes.as_ref().filter(|_| server.max_header_bytes < 8 << 10) {
            self.say(header, "max_header_bytes is below 8KiB, and ordinary requests would not pass");
        }
        server
    }

    fn nets(&mut self, written: &[Text]) -> Vec<Net> {
        let mut nets = Vec::new();
        for text in written {
            match text.as_ref().parse() {
                Ok(net) => nets.push(net),
                Err(message) => self.say(text, message),
            }
        }
        nets
    }

    fn callers(&mut self, written: BTreeMap<Text, written::Caller>, agents: &BTreeSet<AgentId>) -> Vec<Caller> {
        let mut callers: Vec<Caller> = Vec::new();
        for (name, caller) in written {
            self.name(&name, "a caller's name");
            if let Some(tenant) = &caller.tenant {
                self.name(tenant, "a tenant's name");
            }
            let allowed = caller.agents.map(|names| {
                for unknown in names.iter().filter(|name| !agents.contains(&AgentId::new(name.as_ref()))) {
                    self.say(unknown, format!("no agent `{}` is configured", unknown.as_ref()));
                }
                names.iter().map(|name| AgentId::new(name.as_ref())).collect()
            });
            let Some(written) = caller.token else {
                self.missing::<()>(&name, "token");
                continue;
            };
            let Some(token) = self.secret(&written) else { continue };
            if let Some(other) = callers.iter().find(|other| other.token == token) {
                let message = format!("this is the token of `{}` too, and a token must tell who calls", other.name);
                self.say(&written, message);
            }
            let agent = caller.agent.map(|name| {
                if !agents.contains(&AgentId::new(name.as_ref())) {
                    self.say(&name, format!("no agent `{}` is configured", name.as_ref()));
                }
                AgentId::new(name.as_ref())
            });
            callers.push(Caller {
                agent,
                tenant: caller.tenant.map_or_else(|| name.as_ref().clone(), Spanned::into_inner),
                name: name.into_inner(),
                token,
                agents: allowed,
                operator: caller.operator,
                weight: self.count(caller.weight.as_ref(), 1, 1),
                outbox: caller.outbox,
            });
        }
        callers
    }

    fn agent(&mut self, name: Text, written: written::Agent) -> Option<(AgentId, Agent)> {
        self.name(&name, "an agent's name");
        let url = match &written.url {
            Some(url) => self.url(url, "url"),
            None if written.fetches => Some(Uri::from_static(NOWHERE)),
            None => self.missing(&name, "url"),
        };
        let lease = self.wait(written.lease.as_ref(), Duration::from_secs(30));
        let card = written.card.as_ref().and_then(|card| self.url(card, "card"));
        let binding = self.word(
            written.binding.as_ref(),
            &[("auto", Binding::Auto), ("jsonrpc", Binding::JsonRpc), ("http+json", Binding::HttpJson)],
        );
        let mode = self.word(
            written.mode.as_ref(),
            &[("auto", Mode::Auto), ("stream", Mode::Stream), ("poll", Mode::Poll), ("blocking", Mode::Blocking)],
        );
        let headers = written.headers.iter().filter_map(|(name, value)| self.header(name, value)).collect();
        let connect_timeout = self.wait(written.connect_timeout.as_ref(), Duration::from_secs(2));
        let idle_timeout = self.wait(written.idle_timeout.as_ref(), Duration::from_secs(60));
        let unreachable_after = self.wait(written.unreachable_after.as_ref(), Duration::from_secs(60));
        let wait = written.wait.as_ref().map(|wait| self.span(Some(wait), Span::ZERO));
        let settings = self.settings(&name, &written);
        let wire = AgentConfig {
            fetches: written.fetches,
            card,
            binding,
            mode,
            lookup: written.lookup,
            headers,
            connect_timeout,
            idle_timeout,
            unreachable_after,
            max_task_bytes: usize::try_from(settings.acceptance.max_task_bytes).unwrap_or(usize::MAX),
            ..AgentConfig::new(name.as_ref(), url?)
        };
        let place = self.place(&written);
        let memory = self.memory(&written);
        let wake = self.wake(&written.wake);
        let settings = AgentSettings { wake: wake.is_some().then_some(wake.cooldown), ..settings };
        let told = self.word(written.results.as_ref(), &[("wait", false), ("wake", true)]);
        let told_cooldown = self.span(written.results_cooldown.as_ref(), Span::from_secs(60));
        if let Some(written) = written.results_cooldown.as_ref().filter(|_| told_cooldown < LEAST_COOLDOWN) {
            self.say(written, format!("is shorter than {LEAST_COOLDOWN}: the agent would be told without a pause"));
        }
        let agent = Agent { wire, place, wait, memory, wake, told, told_cooldown, lease, settings };
        Some((AgentId::new(name.as_ref()), agent))
    }

    /// Where it stands among the others; that these are there is judged with all of them ([`relations`]).
    fn place(&mut self, written: &written::Agent) -> Place<AgentId> {
        if let Some(tenant) = &written.tenant {
            self.name(tenant, "a tenant's name");
        }
        Place {
            tenant: written.tenant.as_ref().map(|tenant| tenant.as_ref().clone()),
            parent: written.parent.as_ref().map(|parent| AgentId::new(parent.as_ref())),
            can_delegate: written.can_delegate.unwrap_or(true),
        }
    }

    fn wake(&mut self, written: &written::Wake) -> Hook {
        let d = Hook::default();
        Hook {
            url: written.url.as_ref().and_then(|url| self.url(url, "wake.url")),
            command: written.command.clone(),
            timeout: self.wait(written.timeout.as_ref(), d.timeout),
            cooldown: self.span(written.cooldown.as_ref(), d.cooldown),
        }
    }

    fn memory(&mut self, written: &written::Agent) -> InMemory {
        let d = InMemory::default();
        let max_tasks = u32::try_from(d.max_tasks).unwrap_or(u32::MAX);
        InMemory {
            max_tasks: self.count(written.memory_max_tasks.as_ref(), 1, max_tasks) as usize,
            max_bytes: self.bytes(written.memory_max_bytes.as_ref(), d.max_bytes),
        }
    }

    fn settings(&mut self, name: &Text, written: &written::Agent) -> AgentSettings {
        let (d, native) = (AgentSettings::default(), written.native_session);
        let bulkhead = bulkhead::Params {
            max_in_flight: match (self.count(written.max_in_flight.as_ref(), 1, 16), native) {
                (_, true) => 1,
                (slots, false) => slots,
            },
            max_waiting: self.count(written.max_waiting.as_ref(), 0, 32),
            max_wait: self.span(written.max_wait.as_ref(), Span::from_millis(500)),
        };
        let remaining = self.span(written.budget.as_ref(), d.budget.remaining);
        let budget = budget::Params {
            remaining,
            max_remaining: self.span(written.max_budget.as_ref(), d.budget.max_remaining.max(remaining)),
            depth: self.count(written.depth.as_ref(), 0, d.budget.depth),
            fanout: self.count(written.fanout.as_ref(), 0, d.budget.fanout),
            child_fanout: d.budget.child_fanout,
            // A short budget that says nothing of the reserve still leaves room for both.
            reserve: self.span(written.reserve.as_ref(), d.budget.reserve.min(remaining.div(10))),
        };
        if let Err(e) = budget.validate() {
            let text = match e {
                budget::InvalidParams::DefaultAboveMax => {
                    format!("budget, {remaining}, is longer than max_budget, {}", budget.max_remaining)
                }
                budget::InvalidParams::ReserveSwallowsDefault => {
                    format!(
                        "budget, {remaining}, is not longer than reserve, {}: no time would be left",
                        budget.reserve
                    )
                }
            };
            self.say(written.budget.as_ref().or(written.reserve.as_ref()).unwrap_or(name), text);
        }
        let max_queued = self.count(written.max_queued.as_ref(), 0, 1_000) as usize;
        let queue_ttl = self.span(written.queue_ttl.as_ref(), d.queue_ttl);
        let queue_ttl_max = self.span(written.queue_ttl_max.as_ref(), d.queue_ttl_max.max(queue_ttl));
        if let Some(max) = written.queue_ttl_max.as_ref().filter(|_| queue_ttl > queue_ttl_max) {
            self.say(max, format!("queue_ttl_max, {queue_ttl_max}, is shorter than queue_ttl, {queue_ttl}"));
        }
        let serialize = self.word(
            written.serialize.as_ref(),
            &[("context", Serialize::Context), ("agent", Serialize::Agent), ("none", Serialize::None)],
        );
        let serialize = if native { Serialize::Agent } else { serialize };
        AgentSettings {
            bulkhead,
            budget,
            breaker: self.breaker(name, &written.breaker),
            acceptance: acceptance::Params {
                max_result_bytes: self.size(written.max_result_bytes.as_ref(), d.acceptance.max_result_bytes),
                max_task_bytes: self.size(written.max_task_bytes.as_ref(), d.acceptance.max_task_bytes),
            },
            attempts: self.count(written.attempts.as_ref(), 1, d.attempts),
            idempotent: written.idempotent,
            lookup: written.lookup,
            durability: self
                .word(written.durability.as_ref(), &[("durable", Durability::Durable), ("memory", Durability::Memory)]),
            serialize,
            native_session: native,
            queue_overflow: self.word(written.overflow.as_ref(), &[("reject", false), ("queue", true)]) || native,
            max_queued,
            max_queued_per_caller: self.count(
                written.max_queued_per_caller.as_ref(),
                1,
                u32::try_from(max_queued).unwrap_or(u32::MAX).max(1),
            ) as usize,
            queue: queue::Params { ageing: self.span(written.ageing.as_ref(), d.queue.ageing) },
            queue_ttl,
            queue_ttl_max,
            cancel_wait: self.span(written.cancel_wait.as_ref(), d.cancel_wait),
            cancel_grace: self.span(written.cancel_grace.as_ref(), d.cancel_grace),
            context_grace: self
                .span(written.context_grace.as_ref(), if native { NATIVE_GRACE } else { d.context_grace }),
            interrupted_max: self.span(written.interrupted_max.as_ref(), d.interrupted_max),
            fetches: written.fetches,
            wake: None,
            drain: None,
            backoff: self.backoff(written),
            retry_budget: retry_budget::Params {
                ratio_bp: self.share(written.retry_budget.as_ref(), d.retry_budget.ratio_bp),
                ..d.retry_budget
            },
        }
    }

    fn backoff(&mut self, written: &written::Agent) -> backoff::Params {
        let d = AgentSettings::default().backoff;
        let base = self.span(written.backoff_base.as_ref(), d.base);
        let params = backoff::Params { base, max: self.span(written.backoff_max.as_ref(), d.max.max(base)) };
        if let (true, Some(max)) = (params.base > params.max, &written.backoff_max) {
            self.say(max, format!("backoff_max, {}, is shorter than backoff_base, {base}", params.max));
        }
        params
    }

    fn breaker(&mut self, name: &Text, written: &written::Breaker) -> breaker::Params {
        let d = breaker::Params::default();
        let base = self.span(written.ejection_base.as_ref(), d.ejection_base);
        let params = breaker::Params {
            consecutive_failures: self.count(written.consecutive_failures.as_ref(), 0, d.consecutive_failures),
            failure_rate_bp: self.share(written.failure_rate.as_ref(), d.failure_rate_bp),
            slow_rate_bp: self.share(written.slow_call_rate.as_ref(), d.slow_rate_bp),
            slow_call: self.span(written.slow_call.as_ref(), d.slow_call),
            window: self.span(written.window.as_ref(), d.window),
            min_calls: self.count(written.min_calls.as_ref(), 0, d.min_calls),
            min_wait: self.span(written.min_wait.as_ref(), d.min_wait),
            caller_share_bp: self.share(written.caller_share.as_ref(), d.caller_share_bp),
            ejection_base: base,
            ejection_max: self.span(written.ejection_max.as_ref(), d.ejection_max.max(base)),
            probe_timeout: self.span(written.probe_timeout.as_ref(), d.probe_timeout),
        };
        if let Err(e) = params.validate() {
            let texts = [&written.ejection_max, &written.ejection_base, &written.window, &written.probe_timeout];
            self.say(texts.into_iter().flatten().next().unwrap_or(name), e);
        }
        params
    }

    fn secret(&mut self, written: &Text) -> Option<Secret> {
        match find(written.as_ref(), self.env, self.dir) {
            Ok(secret) => Some(secret),
            Err(Wrong::Missing(message)) => {
                self.say(written, message);
                None
            }
            Err(Wrong::Inline) => {
                self.problems.push(Problem {
                    span: written.span(),
                    message: "a secret is written here".to_owned(),
                    help: Some(SECRET_HELP),
                    hide: true,
                });
                None
            }
        }
    }

    fn header(&mut self, name: &Text, value: &Text) -> Option<(HeaderName, HeaderValue)> {
        let owned = [
            header::HOST,
            header::CONTENT_LENGTH,
            header::CONTENT_TYPE,
            header::TRANSFER_ENCODING,
            header::CONNECTION,
            header::UPGRADE,
            header::TE,
            header::EXPECT,
        ];
        let parsed = HeaderName::from_bytes(name.as_ref().as_bytes()).ok();
        let parsed = parsed.filter(|name| !owned.contains(name) && !name.as_str().starts_with("a2a-"));
        if parsed.is_none() {
            self.say(name, format!("`{}` is no header that can be set", name.as_ref()));
        }
        let secret = self.secret(value)?;
        let Ok(mut held) = HeaderValue::from_str(secret.expose()) else {
            self.say(value, "what this stands for cannot be the value of a header");
            return None;
        };
        held.set_sensitive(true);
        Some((parsed?, held))
    }

    fn url(&mut self, written: &Text, what: &str) -> Option<Uri> {
        let text: &str = written.as_ref();
        let uri = text.parse::<Uri>().ok().filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
        });
        match uri {
            Some(uri) if uri.authority().is_some_and(|a| a.as_str().contains('@')) => {
                self.problems.push(Problem {
                    span: written.span(),
                    message: format!("{what} carries a user name or a password"),
                    help: Some("give credentials in `headers`, as env:NAME or file:PATH"),
                    hide: true,
                });
                None
            }
            Some(uri) => Some(uri),
            None => {
                // Most often only its beginning is missing.
                let whole = format!("http://{text}");
                let whole = whole.parse::<Uri>().ok().filter(|_| !text.contains("://")).map(|_| whole);
                let whole = whole.map(|whole| format!(": did you mean `{whole}`?")).unwrap_or_default();
                self.say(written, format!("`{text}` is no http:// or https:// URL{whole}"));
                None
            }
        }
    }

    fn name(&mut self, written: &Text, what: &str) {
        let text: &str = written.as_ref();
        if let Err(rule) = super::name(text) {
            self.say(written, format!("{what} is {rule}"));
        }
    }

    fn word<T: Copy + Default>(&mut self, written: Option<&Text>, words: &[(&str, T)]) -> T {
        let Some(written) = written else { return T::default() };
        let text: &str = written.as_ref();
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return *value;
        }
        let all: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        self.say(written, format!("`{text}` is not one of {}", all.join(", ")));
        T::default()
    }

    fn parsed<T>(&mut self, written: Option<&Text>, default: T, parse: fn(&str) -> Result<T, String>) -> T {
        let Some(written) = written else { return default };
        match parse(written.as_ref()) {
            Ok(value) => value,
            Err(message) => {
                self.say(written, message);
                default
            }
        }
    }

    fn span(&mut self, written: Option<&Text>, default: Span) -> Span {
        self.parsed(written, default, units::span)
    }

    /// A length of time that something is waited for: zero would never let it happen.
    fn wait(&mut self, written: Option<&Text>, default: Duration) -> Duration {
        let span = self.span(written, Span::from_micros(u64::try_from(default.as_micros()).unwrap_or(u64::MAX)));
        if let Some(written) = written.filter(|_| span.is_zero()) {
            self.say(written, "zero leaves no time at all");
        }
        Duration::from_micros(span.as_micros())
    }

    fn size(&mut self, written: Option<&Text>, default: u64) -> u64 {
        self.parsed(written, default, units::size)
    }

    fn bytes(&mut self, written: Option<&Text>, default: usize) -> usize {
        let size = self.size(written, u64::try_from(default).unwrap_or(u64::MAX));
        if let Some(written) = written.filter(|_| size == 0) {
            self.say(written, "zero bytes would let nothing pass");
        }
        usize::try_from(size).unwrap_or(usize::MAX)
    }

    fn share(&mut self, written: Option<&Text>, default: u32) -> u32 {
        let Some(written) = written else { return default };
        u32::from(self.parsed(Some(written), 0, units::share))
    }

    fn count(&mut self, written: Option<&Spanned<u32>>, least: u32, default: u32) -> u32 {
        let Some(written) = written else { return default };
        if *written.as_ref() < least {
            self.say(written, format!("{} is too few: at least {least}", written.as_ref()));
        }
        *written.as_ref()
    }
}
