//! What is worth saying about one agent's settings.

use watertight_engine::ids::AgentId;
use watertight_engine::settings::Serialize;
use watertight_policy::access::Rule;
use watertight_policy::breaker::CALLERS_FOR_CAP;
use watertight_policy::time::Span;

use super::{Adviser, Level};
use crate::config::{Agent, Caller, keys::Value, units};

/// One agent, and where to say things about it.
struct One<'a, 'b> {
    adviser: &'a mut Adviser<'b>,
    name: &'a str,
    agent: &'a Agent,
}

pub(super) fn advise(adviser: &mut Adviser<'_>, name: &str, agent: &Agent) {
    let mut one = One { adviser, name, agent };
    one.address();
    one.line();
    one.queue();
    one.tries();
    one.times();
    one.sizes();
    one.breaker_window();
    one.breaker_parts();
    one.results();
    one.place();
}

impl One<'_, '_> {
    fn idle(&mut self, key: &str, why: impl std::fmt::Display) {
        let mut path = vec!["agents", self.name];
        path.extend(key.split('.'));
        self.adviser.idle(&path, why);
    }

    fn say(&mut self, level: Level, key: &str, text: impl std::fmt::Display) {
        let mut path = vec!["agents", self.name];
        path.extend(key.split('.'));
        self.adviser.say(level, &path, text);
    }

    fn address(&mut self) {
        let wire = &self.agent.wire;
        if wire.fetches {
            let asked = ["url", "card", "binding", "mode", "headers", "lookup", "wake.url", "wake.command"];
            for key in asked.into_iter().chain(["connect_timeout", "idle_timeout", "unreachable_after"]) {
                self.idle(key, "it fetches its work (`fetches`), and nobody calls it");
            }
            return;
        }
        self.idle("lease", "without `fetches` it is called, and no worker asks for work");
        let host = wire.url.host().unwrap_or("").trim_matches(['[', ']']);
        let here = host.eq_ignore_ascii_case("localhost")
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if wire.url.scheme_str() == Some("http") && !here && !wire.headers.is_empty() {
            let text = format!("its headers go to {host} in the clear: use https, or a network that nobody else is on");
            self.say(Level::Warning, "headers", text);
        }
        let origin = |url: &http::Uri| (url.scheme_str().map(str::to_owned), url.authority().map(|a| a.to_string()));
        if wire.card.as_ref().is_some_and(|card| origin(card) != origin(&wire.url)) && !wire.headers.is_empty() {
            self.say(
                Level::Note,
                "card",
                "it is at another place than the agent, so it is asked for without the headers",
            );
        }
    }

    fn results(&mut self) {
        let config = self.adviser.config;
        let is_it = |caller: &Caller| caller.agent.as_ref().is_some_and(|agent| agent.as_str() == self.name);
        if !self.agent.told {
            self.idle("results_cooldown", "with results = \"wait\" it is not told that results wait");
        } else if !config.has_holders() && !config.callers.iter().any(is_it) {
            self.idle("results", "no caller is this agent, so it has no outbox: set agent at its caller");
        }
    }

    fn place(&mut self) {
        let config = self.adviser.config;
        if config.access == Rule::Tenant {
            self.idle("parent", "server.access is \"tenant\": who may call whom does not go by the tree");
        }
        let is_it = |caller: &Caller| caller.agent.as_ref().is_some_and(|agent| agent.as_str() == self.name);
        if !config.has_tokens && !config.callers.iter().any(is_it) {
            self.idle("can_delegate", "no caller is this agent, so it sends nothing: set agent at its caller");
        }
    }

    fn line(&mut self) {
        let settings = &self.agent.settings;
        let bulkhead = &settings.bulkhead;
        if settings.native_session {
            for key in ["max_in_flight", "serialize", "overflow"] {
                self.idle(
                    key,
                    "with native_session there is one slot, one turn at a time, and who finds it taken is queued",
                );
            }
        }
        if settings.queue_overflow {
            let why = "with overflow = \"queue\" nobody waits in the line: who finds no slot is queued";
            self.idle("max_waiting", why);
            self.idle("max_wait", why);
        } else if bulkhead.max_waiting == 0 {
            self.idle("max_wait", "max_waiting is 0: nobody waits");
        } else if bulkhead.max_wait.is_zero() {
            self.idle("max_waiting", "max_wait is zero: nobody waits");
        }
        match settings.serialize {
            Serialize::Agent if settings.native_session => {}
            Serialize::Agent if bulkhead.max_in_flight > 1 => {
                self.idle("max_in_flight", "with serialize = \"agent\" one turn runs at a time, so one slot is used");
            }
            Serialize::None => self.idle("context_grace", "with serialize = \"none\" no context is held"),
            Serialize::Agent | Serialize::Context => {}
        }
    }

    fn queue(&mut self) {
        let settings = &self.agent.settings;
        if settings.max_queued == 0 {
            self.idle("queue_ttl", "max_queued is 0: nothing is queued");
            if settings.queue_overflow {
                self.say(Level::Warning, "overflow", "max_queued is 0: what would be queued is refused (queue_full)");
            }
        }
        if settings.queue_ttl.is_zero() && settings.max_queued > 0 {
            let text = "zero: whatever does not get a slot at once has expired";
            self.say(Level::Warning, "queue_ttl", text);
        }
    }

    fn tries(&mut self) {
        let settings = &self.agent.settings;
        if settings.attempts == 1 {
            for key in ["retry_budget", "backoff_base", "backoff_max"] {
                self.idle(key, "attempts is 1: nothing is tried again");
            }
        } else if settings.backoff.base.is_zero() {
            self.idle("backoff_max", "backoff_base is zero: there is no pause");
        }
    }

    fn times(&mut self) {
        let (settings, wire) = (&self.agent.settings, &self.agent.wire);
        let (usual, most) = (settings.budget.remaining, settings.budget.max_remaining);
        match self.agent.wait {
            Some(wait) if wait >= most => {
                self.idle("wait", format!("no task lasts longer than max_budget, {}", shown(most)));
            }
            Some(wait) if wait >= usual => {
                let text = format!(
                    "longer than budget, {}: it counts only for callers who bring more time than that",
                    shown(usual)
                );
                self.say(Level::Note, "wait", text);
            }
            Some(_) | None => {}
        }
        for (key, time) in [
            ("connect_timeout", wire.connect_timeout),
            ("idle_timeout", wire.idle_timeout),
            ("unreachable_after", wire.unreachable_after),
        ] {
            if let Value::Span(time) = Value::time(time)
                && time >= most
            {
                self.idle(key, format!("the budget, at most {}, always ends first", shown(most)));
            }
        }
        if settings.cancel_wait > settings.cancel_grace {
            let text = format!("a cancel is given up on after cancel_grace, {}", shown(settings.cancel_grace));
            self.idle("cancel_wait", text);
        }
        if settings.budget.depth == 0 {
            self.idle("fanout", "depth is 0: nothing is delegated further");
        } else if settings.budget.fanout == 0 {
            self.idle("depth", "fanout is 0: nothing is delegated further");
        }
    }

    fn sizes(&mut self) {
        let acceptance = &self.agent.settings.acceptance;
        if acceptance.max_result_bytes > acceptance.max_task_bytes {
            let text = format!(
                "larger than max_task_bytes, {}, which holds the result too",
                units::write_size(acceptance.max_task_bytes)
            );
            self.idle("max_result_bytes", text);
        }
    }

    fn breaker_window(&mut self) {
        let breaker = &self.agent.settings.breaker;
        let rates = breaker.failure_rate_bp > 0 || breaker.slow_rate_bp > 0;
        if !rates && breaker.consecutive_failures == 0 {
            let text =
                "consecutive_failures, failure_rate and slow_call_rate are all off: nothing ever keeps traffic from it";
            self.say(Level::Warning, "breaker", text);
            for key in
                ["window", "min_calls", "min_wait", "caller_share", "ejection_base", "ejection_max", "probe_timeout"]
            {
                self.idle(&format!("breaker.{key}"), "the breaker is off");
            }
            return;
        }
        if !rates {
            self.idle("breaker.min_calls", "failure_rate and slow_call_rate are 0%: no share is judged");
        }
        if breaker.slow_rate_bp == 0 {
            self.idle("breaker.slow_call", "slow_call_rate is 0%: slow calls are not judged");
        } else if breaker.slow_call.is_zero() {
            self.idle("breaker.slow_call_rate", "slow_call is zero: no call is slow");
        } else if breaker.slow_call >= self.agent.settings.budget.max_remaining {
            self.idle(
                "breaker.slow_call_rate",
                "slow_call is not shorter than max_budget: every such call is cut first",
            );
        }
        self.too_few_calls(rates);
    }

    /// How many calls an agent that answers nothing can fail within the window, with every slot taken all the time.
    fn too_few_calls(&mut self, rates: bool) {
        let settings = &self.agent.settings;
        let (breaker, budget) = (&settings.breaker, settings.budget.remaining);
        let rounds = 1 + breaker.window.as_micros() / budget.as_micros().max(1);
        let most = rounds.saturating_mul(settings.bulkhead.max_in_flight.into());
        if !rates || most >= u64::from(breaker.min_calls) {
            return;
        }
        let why = format!(
            "when it answers nothing, {} slots with calls of {} (budget) end at most {most} times in {} (window), and \
             min_calls is {}",
            settings.bulkhead.max_in_flight,
            shown(budget),
            shown(breaker.window),
            breaker.min_calls
        );
        if breaker.consecutive_failures == 0 {
            self.say(Level::Warning, "breaker.min_calls", format!("{why}: its silence never opens the breaker"));
        } else if self.adviser.is_written(&["agents", self.name, "breaker", "failure_rate"]) {
            let text = format!("{why}: its silence is judged by consecutive_failures alone");
            self.say(Level::Note, "breaker.failure_rate", text);
        }
    }

    fn breaker_parts(&mut self) {
        let (breaker, budget) = (&self.agent.settings.breaker, &self.agent.settings.budget);
        let config = self.adviser.config;
        let (rules, agent) = (config.rules(), AgentId::new(self.name));
        let callers = match config.callers.len() {
            0 => 1,
            _ => config.callers.iter().filter(|one| rules.judge(&one.as_asked(&one.only()), &agent).is_ok()).count(),
        };
        if callers < CALLERS_FOR_CAP && !config.has_holders() {
            let text = format!("it counts from {CALLERS_FOR_CAP} callers on, and {callers} may call this agent");
            self.idle("breaker.caller_share", text);
        }
        if breaker.min_wait > budget.max_remaining {
            let text = format!(
                "longer than max_budget, {}: no call that is cut ever counts, and an agent that answers nothing keeps \
                 its traffic",
                shown(budget.max_remaining)
            );
            self.say(Level::Warning, "breaker.min_wait", text);
        } else if breaker.min_wait > budget.remaining {
            let text = format!(
                "longer than budget, {}: calls without a budget of their own never count when they are cut",
                shown(budget.remaining)
            );
            self.say(Level::Warning, "breaker.min_wait", text);
        }
        if breaker.probe_timeout >= budget.max_remaining {
            let text = format!("a trial is cut by its budget, at most {}", shown(budget.max_remaining));
            self.idle("breaker.probe_timeout", text);
        }
    }
}

fn shown(span: Span) -> String {
    units::write_span(span)
}
