//! Trees: for which delegation a message is, what that leaves it to spend, and what ends with what.
//!
//! Who vouches decides what counts. Our own token, a task that the caller names in its budget, and what the message
//! refers to are *told*: the strictest of them is the parent, which is charged for the child, lends it its chain, and takes it along
//! when it is cut. What is only *guessed* (by the contextId, or by what the calling agent has under way) makes the
//! hops fewer, and nothing else: a wrong guess must not end anybody's work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use watertight_policy::budget::{Budget, Exhausted};
use watertight_policy::reason::Reason;
use watertight_policy::time::Time;

use crate::engine::Engine;
use crate::former::Former;
use crate::ids::{AgentId, RemoteId, TaskId};
use crate::input::Submission;
use crate::live::{Live, Timer};
use crate::output::{Answer, Cause, InForce, Origin, Refusal};
use crate::record::{Cancel, Phase, Row, TaskState};

/// A chain of agents is no longer than this, whatever depth is configured.
const MAX_CHAIN: usize = 64;

/// A contextId of this length is nobody's by chance.
const UNGUESSABLE: usize = 32;

/// Delegations in one context that are looked at.
const MAX_SHARED: usize = 16;

/// What a message gets from above.
#[derive(Debug)]
pub(crate) struct Above {
    pub(crate) budget: Budget,
    /// Who pays.
    pub(crate) parent: Option<TaskId>,
    /// The tree that it belongs to; `None`: its own.
    pub(crate) root: Option<TaskId>,
    pub(crate) depth: u32,
    pub(crate) chain: Arc<[AgentId]>,
    /// What its rate is counted under, if it is.
    pub(crate) pace: Option<Pace>,
    /// An agent sends it, as far as is known.
    pub(crate) by_agent: bool,
}

/// One agent's messages to another in one conversation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Pace {
    tenant: Arc<str>,
    from: AgentId,
    to: AgentId,
    part: Part,
}

/// What a conversation is known by.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Context(Arc<str>),
    Tree(TaskId),
    /// An agent that was itself called by one lately calls on its own account.
    None,
}

/// The delegations that a message may be for.
#[derive(Debug, Default)]
struct Parents {
    told: Vec<TaskId>,
    guessed: Option<TaskId>,
}

/// What agents have under way, by whom and by what they call it: their own calls are recognised by it. Bounded by what
/// is in flight.
#[derive(Debug, Default)]
pub(crate) struct AtWork {
    entries: BTreeMap<TaskId, Entry>,
    /// By the hops that are left: the strictest comes first.
    by_agent: BTreeSet<(AgentId, Arc<str>, u32, TaskId)>,
    by_task: BTreeMap<(AgentId, RemoteId), TaskId>,
    by_context: BTreeSet<(RemoteId, AgentId, u32, TaskId)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    agent: AgentId,
    tenant: Arc<str>,
    depth: u32,
    remote_task: Option<RemoteId>,
    context: Option<RemoteId>,
}

impl AtWork {
    fn enter(&mut self, task: TaskId, entry: Entry) {
        if self.entries.get(&task) == Some(&entry) {
            return;
        }
        self.leave(task);
        let Entry { agent, tenant, depth, remote_task, context } = entry.clone();
        if let Some(remote) = remote_task {
            self.by_task.insert((agent.clone(), remote), task);
        }
        if let Some(context) = context {
            self.by_context.insert((context, agent.clone(), depth, task));
        }
        self.by_agent.insert((agent, tenant, depth, task));
        self.entries.insert(task, entry);
    }

    fn leave(&mut self, task: TaskId) {
        let Some(Entry { agent, tenant, depth, remote_task, context }) = self.entries.remove(&task) else { return };
        if let Some(remote) = remote_task {
            let key = (agent.clone(), remote);
            if self.by_task.get(&key) == Some(&task) {
                self.by_task.remove(&key);
            }
        }
        if let Some(context) = context {
            self.by_context.remove(&(context, agent.clone(), depth, task));
        }
        self.by_agent.remove(&(agent, tenant, depth, task));
    }

    /// What this agent calls so.
    fn called(&self, agent: &AgentId, remote: &RemoteId) -> Option<TaskId> {
        self.by_task.get(&(agent.clone(), remote.clone())).copied()
    }

    /// The strictest that an agent has in this context; of whichever agent, if nobody says.
    fn in_context<'a>(
        &'a self,
        context: &'a RemoteId,
        agent: Option<&'a AgentId>,
    ) -> impl Iterator<Item = TaskId> + 'a {
        let first = agent.cloned().unwrap_or_else(|| AgentId::new(""));
        let from = (context.clone(), first, 0, TaskId(0));
        let same = move |(known, at, ..): &&(RemoteId, AgentId, u32, TaskId)| {
            known == context && agent.is_none_or(|agent| agent == at)
        };
        self.by_context.range(from..).take_while(same).map(|(.., task)| *task)
    }

    /// The strictest that an agent has; of its own tenant's, if there is any.
    fn of_agent(&self, agent: &AgentId, tenant: &Arc<str>) -> Option<TaskId> {
        let from = |tenant: Arc<str>| (agent.clone(), tenant, 0, TaskId(0));
        let first = |from| self.by_agent.range(from..).next().filter(|(at, ..)| at == agent);
        let own = first(from(tenant.clone())).filter(|(_, of, ..)| of == tenant);
        own.or_else(|| first(from("".into()))).map(|(.., task)| *task)
    }

    /// Whether this is what is known of it.
    pub(crate) fn knows(&self, task: TaskId, entry: Option<&Entry>) -> bool {
        self.entries.get(&task) == entry
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Engine {
    // ---- what a message is for ---------------------------------------------------------------------------------

    /// What a message may spend, and for whom. Nothing is charged yet.
    pub(crate) fn above(&self, s: &Submission) -> Result<Above, Refusal> {
        let refuse =
            |reason, cause| Refusal { reason, agent: s.agent.clone(), again: None, cause: Some(Box::new(cause)) };
        let parents = self.parents(s).map_err(|ended| refuse(Reason::ParentEnded, Cause::Ended(ended)))?;
        let row = |task: TaskId| self.live.get(&task).map(|live| &live.row);
        let told: Vec<(&Row, Budget)> = parents
            .told
            .iter()
            .filter_map(|task| self.live.get(task))
            .map(|live| (&live.row, spendable(live)))
            .collect();
        let strictest = told.iter().min_by_key(|(_, has)| (has.fanout, has.depth, has.deadline)).map(|(row, _)| *row);
        let guessed = parents.guessed.and_then(row);
        let chain = chain_below(strictest, s.claims.from.as_ref());
        if s.names.is_none() && (chain.contains(&s.agent) || s.claims.from.as_ref() == Some(&s.agent)) {
            let whole = chain.iter().cloned().chain([s.agent.clone()]).collect();
            return Err(refuse(Reason::DelegationCycle, Cause::Chain(whole)));
        }
        let tree = strictest.or(guessed);
        let former = if tree.is_none() { self.former_of(s) } else { None };
        let from = s.claims.from.as_ref().or(tree.map(|row| &row.agent)).or(former.map(|former| &former.agent));
        let called_in = tree.filter(|row| s.context_named && row.remote_context.as_ref() == Some(&s.context));
        let called_in = called_in.map(|row| row.root).or(former.map(|former| former.root));
        let pace = from.and_then(|from| self.pace(s, from, called_in, tree));
        if let Some(again) = pace.as_ref().and_then(|pace| self.rates.check(self.now, pace).err()) {
            let from = pace.map_or_else(|| s.agent.clone(), |pace| pace.from);
            let cause = Cause::Rate(from, self.rates.params());
            return Err(Refusal { again: Some(again), ..refuse(Reason::RateLimited, cause) });
        }
        let budget = self
            .share(s, &told, guessed)
            .map_err(|(out, in_force)| refuse(exhausted_reason(out), Cause::Budget(in_force)))?;
        if chain.len() > MAX_CHAIN {
            return Err(Refusal { cause: None, ..refuse(Reason::DepthExhausted, Cause::Chain(Vec::new())) });
        }
        let tree = tree.map(|row| (row.root, row.depth)).or(former.map(|former| (former.root, former.depth)));
        Ok(Above {
            budget,
            parent: strictest.map(|row| row.task),
            root: tree.map(|(root, _)| root),
            depth: tree.map_or(0, |(_, depth)| depth.saturating_add(1)),
            chain: chain.into(),
            by_agent: from.is_some(),
            pace,
        })
    }

    /// The parent pays for a child of its own, and the message counts for its rate.
    pub(crate) fn charge(&mut self, s: &Submission, above: &Above) {
        if let Some(pace) = &above.pace {
            self.rates.record(self.now, pace);
        }
        if let (true, Some(agent)) = (above.by_agent, self.agents.get_mut(&s.agent)) {
            agent.called_by_agent = Some(self.now);
        }
        let (None, Some(parent)) = (s.names, above.parent) else { return };
        let Some(live) = self.live.get_mut(&parent) else { return };
        live.row.children += 1;
        let turn = live.previous.as_mut().unwrap_or(&mut live.row.turn);
        turn.budget.fanout = turn.budget.fanout.saturating_sub(1);
        self.below.insert((parent, s.task));
        self.save(parent);
    }

    /// The parent gets back what it paid for a child that never started.
    pub(crate) fn refund(&mut self, parent: TaskId) {
        let Some(live) = self.live.get_mut(&parent) else { return };
        live.row.children = live.row.children.saturating_sub(1);
        live.previous.as_mut().unwrap_or(&mut live.row.turn).budget.refund();
        self.save(parent);
    }

    /// The delegations that a message may be for; or the one that it is for, which has ended.
    fn parents(&self, s: &Submission) -> Result<Parents, TaskId> {
        let (claims, mut parents) = (&s.claims, Parents::default());
        let from = claims.from.as_ref();
        if let Some(held) = claims.held.as_ref().filter(|held| from.is_none_or(|from| *from == held.holder)) {
            // What was sent is in memory until it has ended.
            let runs = self.live.get(&held.task).filter(|live| live.row.agent == held.holder && goes_on(live));
            parents.told.push(runs.ok_or(held.task)?.row.task);
        }
        let named = s.parent.and_then(|task| self.live.get(&task)).map(|live| &**live);
        let named = named.filter(|live| !live.is_proposed());
        let own = |live: &&Live| {
            live.row.principal.tenant == s.principal.tenant || from.is_some_and(|from| live.row.agent == *from)
        };
        match named.filter(own) {
            Some(live) if goes_on(live) => parents.tell(live.row.task),
            Some(live) if parents.told.is_empty() => return Err(live.row.task),
            Some(_) | None => {}
        }
        let mut hinted = None;
        for reference in &claims.references {
            let called = || from.and_then(|from| self.at_work.called(from, reference));
            let Some(live) = TaskId::parse(reference).or_else(called).and_then(|task| self.live.get(&task)) else {
                continue;
            };
            if live.is_proposed() || !goes_on(live) {
                continue;
            }
            match from {
                Some(from) if live.row.agent == *from => parents.tell(live.row.task),
                Some(_) => {}
                // Whoever started it may well refer to it without being at work on it.
                None if live.row.principal == s.principal => hinted = hinted.or(Some(live.row.task)),
                None if live.row.principal.tenant == s.principal.tenant => parents.tell(live.row.task),
                None => {}
            }
        }
        if parents.told.is_empty() && s.names.is_none() {
            parents.guessed = hinted.or_else(|| self.guess(s));
        }
        Ok(parents)
    }

    /// What the caller is probably at work on.
    fn guess(&self, s: &Submission) -> Option<TaskId> {
        let from = s.claims.from.as_ref();
        let near = |task: &TaskId| {
            let tenant = self.live.get(task).map(|live| &live.row.principal.tenant);
            from.is_some() || s.context.len() >= UNGUESSABLE || tenant == Some(&s.principal.tenant)
        };
        let in_context = s.context_named.then(|| self.at_work.in_context(&s.context, from).take(MAX_SHARED).find(near));
        let own = || from.and_then(|from| self.at_work.of_agent(from, &s.principal.tenant));
        in_context.flatten().or_else(own)
    }

    /// What its sender did in the context that it names, though it is not at work there any more.
    fn former_of(&self, s: &Submission) -> Option<&Former> {
        if !s.context_named || s.names.is_some() {
            return None;
        }
        let from = s.claims.from.as_ref();
        let former = self.former.of(self.now, self.rates.params().window, &s.context, from)?;
        let near = from.is_some() || s.context.len() >= UNGUESSABLE || former.tenant == s.principal.tenant;
        near.then_some(former)
    }

    /// The conversation that a message of an agent's belongs to. The one that it was called in is known by its tree, because
    /// nobody else knows it by that name; any other by the agent's own name for it. What names none, and is for nothing, begins
    /// one of its own, which is no loop unless its sender was called by an agent itself.
    fn pace(&self, s: &Submission, from: &AgentId, called_in: Option<TaskId>, tree: Option<&Row>) -> Option<Pace> {
        let part = if let Some(root) = called_in {
            Part::Tree(root)
        } else if s.context_named {
            Part::Context(s.context.clone())
        } else if let Some(row) = tree.or(s.names.and_then(|named| self.live.get(&named.task)).map(|live| &live.row)) {
            Part::Tree(row.root)
        } else {
            let called = self.agents.get(from)?.called_by_agent?;
            (called + self.rates.params().window > self.now).then_some(Part::None)?
        };
        Some(Pace { tenant: s.principal.tenant.clone(), from: from.clone(), to: s.agent.clone(), part })
    }

    /// A turn is over: what its agent sends on in its context is still known for a while.
    pub(crate) fn note_former(&mut self, task: TaskId) {
        let Some(row) = self.live.get(&task).map(|live| &live.row) else { return };
        let rate = self.rates.params();
        if let (Some(context), true) = (&row.remote_context, rate.limit > 0) {
            let by = (&row.agent, &row.principal.tenant);
            self.former.note(self.now, rate.window, context, by, (row.root, row.depth));
        }
    }

    /// The strictest of what the caller says it has and what those still have whom it is for.
    fn share(
        &self,
        s: &Submission,
        told: &[(&Row, Budget)],
        guessed: Option<&Row>,
    ) -> Result<Budget, (Exhausted, InForce)> {
        let Some(agent) = self.agents.get(&s.agent) else {
            return Err((Exhausted::Time, in_force(Origin::Configured, None, self.now, Budget::SPENT)));
        };
        let (now, params, said) = (self.now, agent.settings.budget, s.budget);
        let mut node = params.arrive(s.arrived.min(now), said.remaining_s, said.depth, said.fanout);
        let of = |said: bool| if said { Origin::Message } else { Origin::Configured };
        let mut origins = [
            of(said.depth.is_some_and(|depth| depth <= params.depth)),
            of(said.fanout.is_some_and(|fanout| fanout <= params.fanout)),
            of(said.remaining_s.is_some()),
        ];
        for (row, has) in told {
            let origin = Origin::Parent(row.task);
            for (origin_of, less) in origins.iter_mut().zip([
                has.depth <= node.depth,
                has.fanout <= node.fanout,
                has.deadline <= node.deadline,
            ]) {
                if less {
                    *origin_of = origin;
                }
            }
            node.deadline = node.deadline.min(has.deadline);
            node.depth = node.depth.min(has.depth);
            node.fanout = node.fanout.min(has.fanout);
        }
        if let Some(row) = guessed.filter(|row| row.turn.budget.depth < node.depth) {
            node.depth = row.turn.budget.depth;
            origins[0] = Origin::Guessed(row.task);
        }
        let child = match (s.names, told.is_empty() && guessed.is_none()) {
            // A further message starts nothing.
            (Some(_), _) => Budget { fanout: node.fanout.max(1), ..node }
                .child(now, &params)
                .map(|child| Budget { fanout: child.fanout.min(node.fanout), ..child }),
            (None, true) => node.first(now, &params),
            (None, false) => Budget { ..node }.child(now, &params),
        };
        child.map_err(|out| {
            let origin = match out {
                Exhausted::Depth => origins[0],
                Exhausted::Fanout => origins[1],
                Exhausted::Time => origins[2],
            };
            let row = match origin {
                Origin::Parent(task) | Origin::Guessed(task) => self.live.get(&task).map(|live| &live.row),
                Origin::Message | Origin::Configured => None,
            };
            (out, in_force(origin, row, now, node))
        })
    }

    // ---- what is under way -------------------------------------------------------------------------------------

    /// Keeps what is known of the agents' work as it is.
    pub(crate) fn note_work(&mut self, task: TaskId) {
        match self.work_of(task) {
            Some(entry) => self.at_work.enter(task, entry),
            None => self.at_work.leave(task),
        }
    }

    pub(crate) fn work_of(&self, task: TaskId) -> Option<Entry> {
        let row = &self.live.get(&task)?.row;
        if !matches!(row.turn.phase, Phase::Dispatching | Phase::Running) || row.state.is_terminal() {
            return None;
        }
        Some(Entry {
            agent: row.agent.clone(),
            tenant: row.principal.tenant.clone(),
            depth: row.turn.budget.depth,
            remote_task: row.remote_task.clone(),
            context: row.remote_context.clone(),
        })
    }

    // ---- what ends with what -----------------------------------------------------------------------------------

    /// What was started for this one ends with it: each child on its own, as soon as the step comes to it.
    pub(crate) fn take_along(&mut self, task: TaskId) {
        let now = self.now;
        let children = self.below.range((task, TaskId(0))..=(task, TaskId(u128::MAX)));
        let children: Vec<TaskId> = children.map(|(_, child)| *child).collect();
        for child in children {
            self.set_timer(child, Timer::TakenAlong, Some(now));
        }
    }

    /// The one that this was started for was cut.
    pub(crate) fn taken_along(&mut self, task: TaskId) {
        let Some(live) = self.live.get(&task) else { return };
        if live.is_proposed() {
            return self.turn_refused(task, Reason::ParentEnded, None);
        }
        if !live.row.state.is_terminal() {
            self.begin_cancel(task);
        }
    }

    /// It is over, and nothing takes it along any more.
    pub(crate) fn leave_parent(&mut self, task: TaskId) {
        if let Some(parent) = self.live.get(&task).and_then(|live| live.row.parent) {
            self.below.remove(&(parent, task));
        }
    }

    /// Parents and children from rows. What ended with nobody to see it takes its children along now.
    pub(crate) fn restore_tree(&mut self, tasks: &[TaskId]) {
        for task in tasks {
            let row = self.live.get(task).map(|live| &live.row);
            if let Some(parent) = row.filter(|row| !row.state.is_terminal()).and_then(|row| row.parent) {
                self.below.insert((parent, *task));
            }
        }
        let cut: Vec<TaskId> = tasks
            .iter()
            .copied()
            .filter(|task| self.live.get(task).is_some_and(|live| ends_its_children(&live.row)))
            .collect();
        for task in cut {
            self.take_along(task);
        }
    }
}

impl Parents {
    fn tell(&mut self, task: TaskId) {
        if !self.told.contains(&task) {
            self.told.push(task);
        }
    }
}

/// It was canceled for its caller, or cut by us: what it had started is nobody's any more. The agent's own word, and an
/// agent that broke, leave it alone; its time ends it.
pub fn ends_its_children(row: &Row) -> bool {
    match (row.state, row.reason) {
        (TaskState::Canceled, Some(_)) => true,
        (TaskState::Canceled, None) => row.cancel == Cancel::Confirmed,
        (TaskState::Failed, Some(reason)) => {
            matches!(reason, Reason::DeadlineExceeded | Reason::AgentNoAnswer | Reason::Expired)
                || row.cancel != Cancel::None
        }
        (
            TaskState::Failed
            | TaskState::Submitted
            | TaskState::Working
            | TaskState::InputRequired
            | TaskState::AuthRequired
            | TaskState::Completed
            | TaskState::Rejected,
            _,
        ) => false,
    }
}

/// What it may spend: a further turn that is not accepted does not count.
fn spendable(live: &Live) -> Budget {
    live.previous.as_ref().unwrap_or(&live.row.turn).budget
}

fn goes_on(live: &Live) -> bool {
    !live.is_proposed() && !live.row.state.is_terminal()
}

/// The agents above what a parent starts, and above what an agent starts on its own account.
fn chain_below(parent: Option<&Row>, from: Option<&AgentId>) -> Vec<AgentId> {
    let mut chain: Vec<AgentId> = parent.iter().flat_map(|row| row.chain.iter().chain([&row.agent])).cloned().collect();
    if let Some(from) = from.filter(|from| chain.last() != Some(*from)) {
        chain.push(from.clone());
    }
    chain
}

fn in_force(origin: Origin, row: Option<&Row>, now: Time, node: Budget) -> InForce {
    InForce {
        origin,
        depth: node.depth,
        fanout: node.fanout,
        remaining: node.remaining(now),
        hops: row.map_or(0, |row| row.depth.saturating_add(1).saturating_add(node.depth)),
        children: row.map_or(0, |row| row.children),
    }
}

fn exhausted_reason(exhausted: Exhausted) -> Reason {
    match exhausted {
        Exhausted::Depth => Reason::DepthExhausted,
        Exhausted::Fanout => Reason::FanoutExhausted,
        Exhausted::Time => Reason::BudgetExhausted,
    }
}

impl Engine {
    pub(crate) fn decline(&mut self, line: crate::ids::LineId, refusal: Refusal) {
        self.answer(line, Answer::Refused(refusal));
    }
}
