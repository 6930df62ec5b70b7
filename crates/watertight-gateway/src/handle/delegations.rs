//! Delegations as rows, without their texts: lists and trees for callers (their own) and operators (a tenant's).
//!
//! What is told is what is durable. Whatever somebody may not see is answered like what does not exist, and a tree is
//! walked only through what he may see: a child that another caller started ends it there.

use std::cmp::Reverse;
use std::sync::Arc;

use watertight_engine::ids::{AgentId, Key, Principal, TaskId};
use watertight_engine::input::KnownKey;
use watertight_engine::record::Row;
use watertight_policy::reason::Reason;
use watertight_store::{Late, ListQuery, OverQuery, ReadError, Store};

use super::{Declined, Filter, Handle, NoPage, Page, list};
use crate::hub::TaskView;

pub(crate) use super::list::{read_token as place_of, token as token_of};

/// Tasks of one tree that are shown, and children of one task.
const MAX_TREE: usize = 1_000;

/// Callers of a tenant whose tasks are listed together.
const MAX_CALLERS: usize = 1_000;

/// Whose delegations somebody may see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whose {
    /// This caller's own.
    Own(Principal),
    /// All of a tenant's.
    Tenant(Arc<str>),
}

/// Some delegations, last changed first.
#[derive(Debug, Default)]
pub struct Rows {
    /// These.
    pub rows: Vec<Row>,
    /// The next page's token; `None` on the last page.
    pub next: Option<String>,
    /// How many there are over all pages.
    pub total: u64,
}

/// A delegation tree, parents before their children, oldest first.
#[derive(Debug)]
pub struct Tree {
    /// Each with its distance from the first one.
    pub rows: Vec<(u32, Row)>,
    /// `false`: there are more than are shown.
    pub whole: bool,
}

/// Whose dealings are meant: an agent's, as whoever speaks for it sees them.
#[derive(Clone, Debug)]
pub(crate) struct Dealings {
    /// Who speaks for it.
    pub(crate) principal: Principal,
    /// The agent.
    pub(crate) agent: AgentId,
    /// What it delegated.
    pub(crate) sent: bool,
    /// What was delegated to it.
    pub(crate) received: bool,
}

impl Whose {
    pub(super) fn sees(&self, row: &Row) -> bool {
        match self {
            Whose::Own(principal) => row.principal == *principal,
            Whose::Tenant(tenant) => row.principal.tenant == *tenant,
        }
    }
}

impl Handle {
    /// Whether a caller of this name in this tenant has tasks that are still kept.
    pub(crate) async fn has_called(&self, tenant: &str, caller: &str) -> Result<bool, Reason> {
        let (store, tenant, caller) = (self.shared.store.clone(), tenant.to_owned(), caller.to_owned());
        let known = self.blocking(move || store.callers(&tenant, usize::MAX >> 1)).await?;
        Ok(known.iter().any(|known| *known.caller == caller))
    }

    /// What the agent said of this task after the verdict on it.
    pub(crate) async fn late(&self, task: TaskId) -> Result<Option<Late>, Reason> {
        let store = self.shared.store.clone();
        self.blocking(move || store.late(task)).await
    }

    /// Those that match. With a parent, its children; they are few, and come on one page.
    pub async fn delegations(&self, whose: Whose, filter: Filter, parent: Option<TaskId>) -> Result<Rows, NoPage> {
        let after = filter.after.as_deref().map(|token| list::read_token(token).ok_or(NoPage::BadToken)).transpose()?;
        let store = self.shared.store.clone();
        let read = self.blocking(move || {
            let query = |principal| ListQuery {
                agent: filter.agent.clone(),
                context: filter.context.clone(),
                states: filter.state.map(|state| vec![state]),
                changed_after: filter.changed_since,
                after,
                limit: filter.limit.clamp(1, 100),
                ..ListQuery::of(principal)
            };
            match (parent, &whose) {
                (Some(parent), _) => children(&store, &whose, &filter, parent),
                (None, Whose::Own(principal)) => listed(&store, vec![query(principal.clone())]),
                (None, Whose::Tenant(tenant)) => {
                    listed(&store, store.callers(tenant, MAX_CALLERS)?.into_iter().map(query).collect())
                }
            }
        });
        read.await.map_err(|_| NoPage::StoreUnavailable)
    }

    /// The caller's own that this message started or continued.
    pub async fn delegation_of(&self, key: Key) -> Result<Option<Row>, Reason> {
        let store = self.shared.store.clone();
        self.blocking(move || match store.key(&key)? {
            Some(known) => store.task(known.task),
            None => Ok(None),
        })
        .await
    }

    /// What of a tenant is over, in the order in which it ended.
    pub(crate) async fn over(&self, query: OverQuery) -> Result<Vec<Row>, Reason> {
        let store = self.shared.store.clone();
        self.blocking(move || store.over(&query)).await
    }

    /// What this key stands for: the fingerprint of its body, and the delegation that it started.
    pub(crate) async fn known(&self, key: Key) -> Result<Option<(KnownKey, Row)>, Reason> {
        let store = self.shared.store.clone();
        if store.is_new_key(&key) {
            return Ok(None);
        }
        self.blocking(move || {
            let Some(known) = store.key(&key)? else { return Ok(None) };
            Ok(store.task(known.task)?.map(|row| (known, row)))
        })
        .await
    }

    /// What an agent has to do with, last changed first: what its caller delegated, and what this tenant's callers delegated
    /// to it.
    pub(crate) async fn dealings(&self, of: Dealings, limit: usize, after: Option<&str>) -> Result<Page, NoPage> {
        let after = after.map(|token| list::read_token(token).ok_or(NoPage::BadToken)).transpose()?;
        let shared = self.shared.clone();
        let read = self.blocking(move || {
            let query = |principal, agent| ListQuery { agent, after, limit, ..ListQuery::of(principal) };
            let mut queries = Vec::new();
            if of.sent {
                queries.push(query(of.principal.clone(), None));
            }
            if of.received {
                // What it sent to itself cannot be: nothing is in both.
                let callers = shared.store.callers(&of.principal.tenant, MAX_CALLERS)?.into_iter();
                let others = callers.filter(|caller| !of.sent || *caller != of.principal);
                queries.extend(others.map(|caller| query(caller, Some(of.agent.clone()))));
            }
            list::page(&shared, &queries)
        });
        read.await.map_err(|_| NoPage::StoreUnavailable)
    }

    /// One that the agent's caller delegated, or that a caller of its tenant delegated to the agent; as it is now.
    pub(crate) async fn dealing(&self, of: &Dealings, task: TaskId) -> Result<Option<TaskView>, Reason> {
        let tenant = Whose::Tenant(of.principal.tenant.clone());
        let row = self.delegation(tenant, task).await?;
        let Some(row) = row.filter(|row| row.principal == of.principal || row.agent == of.agent) else {
            return Ok(None);
        };
        match self.task(&row.principal, &row.agent, task).await {
            Ok(view) => Ok(Some(view)),
            Err(Declined::Refused { reason, .. }) => Err(reason),
            Err(Declined::Forbidden { .. }) => Ok(None),
            Err(Declined::Conflict { .. } | Declined::NotFound | Declined::TaskTerminal) => Ok(None),
            Err(Declined::ContextMismatch | Declined::NotCancelable) => Ok(None),
        }
    }

    /// One of them.
    pub async fn delegation(&self, whose: Whose, task: TaskId) -> Result<Option<Row>, Reason> {
        // What is kept in memory alone is not in the store.
        if let Some(row) = self.shared.shelf.row(task) {
            return Ok(Some(Row::clone(&row)).filter(|row| whose.sees(row)));
        }
        let store = self.shared.store.clone();
        self.blocking(move || Ok(store.task(task)?.filter(|row| whose.sees(row)))).await
    }

    /// The tree that a delegation belongs to, from its topmost one down.
    pub async fn tree(&self, whose: Whose, task: TaskId) -> Result<Option<Tree>, Reason> {
        let store = self.shared.store.clone();
        self.blocking(move || {
            let Some(mut top) = store.task(task)?.filter(|row| whose.sees(row)) else { return Ok(None) };
            for _ in 0..MAX_TREE {
                let parent = top.parent.map(|parent| store.task(parent)).transpose()?.flatten();
                let Some(parent) = parent.filter(|row| whose.sees(row)) else { break };
                top = parent;
            }
            let mut tree = Tree { rows: Vec::new(), whole: true };
            let mut left = vec![(0, top)];
            while let Some((level, row)) = left.pop() {
                if tree.rows.len() == MAX_TREE {
                    tree.whole = false;
                    break;
                }
                let mut below = store.children(row.task, MAX_TREE)?;
                tree.whole &= below.len() < MAX_TREE;
                below.retain(|row| whose.sees(row));
                left.extend(below.into_iter().rev().map(|row| (level + 1, row)));
                tree.rows.push((level, row));
            }
            Ok(Some(tree))
        })
        .await
    }
}

fn listed(store: &Store, queries: Vec<ListQuery>) -> Result<Rows, ReadError> {
    let (mut rows, mut total, mut limit) = (Vec::new(), 0, 0);
    for query in &queries {
        let page = store.list(query)?;
        rows.extend(page.rows);
        total += page.total;
        limit = query.limit;
    }
    rows.sort_unstable_by_key(|row: &Row| Reverse((row.changed, row.task)));
    rows.truncate(limit);
    let last = rows.last().filter(|_| rows.len() == limit);
    let next = last.map(|row| list::token(row.changed, row.task));
    Ok(Rows { rows, next, total })
}

fn children(store: &Store, whose: &Whose, filter: &Filter, parent: TaskId) -> Result<Rows, ReadError> {
    let matches = |row: &Row| {
        whose.sees(row)
            && filter.agent.as_ref().is_none_or(|agent| row.agent == *agent)
            && filter.context.as_ref().is_none_or(|context| *row.context == **context)
            && filter.state.is_none_or(|state| row.state == state)
            && filter.changed_since.is_none_or(|since| row.changed >= since)
    };
    let mut rows = Vec::new();
    // The children of what he may not see are not told either.
    if store.task(parent)?.is_some_and(|row| whose.sees(&row)) {
        rows = store.children(parent, MAX_TREE)?;
    }
    rows.retain(matches);
    rows.sort_unstable_by_key(|row| Reverse((row.changed, row.task)));
    let total = rows.len() as u64;
    Ok(Rows { rows, next: None, total })
}
