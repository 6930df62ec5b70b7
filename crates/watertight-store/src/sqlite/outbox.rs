//! Outboxes on their way to the tables, and in them.
//!
//! What was told before it got to the tables never gets there. To write any of it twice changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use watertight_engine::ids::{AgentId, Owner, Principal};
use watertight_engine::outbox::Stored;
use watertight_engine::record::Notice;

use super::disk::Hand;
use super::rows::{self, Id, Moment};
use super::{SqliteStore, questions};
use crate::codes;
use crate::error::ReadError;

/// What is new of all outboxes, and not in the tables.
pub(super) type Outboxes = BTreeMap<Owner, News>;

/// What is new of one.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    last: u64,
    lost: u64,
    notices: BTreeMap<u64, Arc<Notice>>,
    /// What is to be removed from the tables, by first number: up to which.
    taken: BTreeMap<u64, u64>,
    /// From this number on the tables have nothing.
    born: Option<u64>,
}

impl News {
    /// `born`: the tables cannot have it already, as they can after a crash.
    pub(super) fn put(&mut self, notice: Arc<Notice>, born: bool) {
        self.last = self.last.max(notice.seq);
        if born {
            self.born.get_or_insert(notice.seq);
        }
        self.notices.insert(notice.seq, notice);
    }

    pub(super) fn take(&mut self, first: u64, last: u64, lost: u64) {
        self.lost = self.lost.max(lost);
        self.notices.retain(|seq, _| *seq < first || *seq > last);
        if self.born.is_none_or(|born| first < born) {
            let known = self.taken.entry(first).or_insert(last);
            *known = last.max(*known);
        }
    }

    /// The tables may have some of it.
    pub(super) fn in_doubt(&mut self) {
        self.born = None;
    }

    fn is_gone(&self, seq: u64) -> bool {
        self.taken.range(..=seq).any(|(_, last)| seq <= *last)
    }
}

/// Tenant, agent, caller: as the columns are.
fn names(owner: &Owner) -> [&str; 3] {
    match owner {
        Owner::Agent(tenant, agent) => [tenant, agent.as_str(), ""],
        Owner::Caller(Principal { tenant, caller }) => [tenant, "", caller],
    }
}

impl Hand {
    pub(super) fn put_outbox(&mut self, owner: &Owner, news: &News) -> rusqlite::Result<()> {
        let [tenant, agent, caller] = names(owner);
        let sql = "INSERT INTO outbox (tenant, agent, caller, last, lost) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (tenant, agent, caller) DO UPDATE SET last = max(last, ?4), lost = max(lost, ?5) \
                   RETURNING id";
        let params = params![tenant, agent, caller, news.last as i64, news.lost as i64];
        let id = self.statement(sql)?.query_row(params, |row| row.get::<_, i64>(0))?;
        for (first, last) in &news.taken {
            let sql = "DELETE FROM notice WHERE outbox = ?1 AND seq BETWEEN ?2 AND ?3";
            self.run(sql, [id, *first as i64, *last as i64])?;
        }
        let sql = "INSERT OR REPLACE INTO notice (outbox, seq, task, turn, agent, context, state, reason, at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        for notice in news.notices.values() {
            self.run(
                sql,
                params![
                    id,
                    notice.seq as i64,
                    rows::id(notice.task),
                    notice.turn,
                    notice.agent.as_str(),
                    &*notice.context,
                    codes::state(notice.state),
                    notice.reason.map(|reason| reason.as_str()),
                    rows::time(notice.at),
                ],
            )?;
        }
        Ok(())
    }
}

impl SqliteStore {
    pub(crate) fn outboxes(&self) -> Result<Vec<Stored>, ReadError> {
        self.both(
            |overlay| overlay.outboxes.clone(),
            |fresh, view| {
                let mut all: BTreeMap<Owner, Stored> = BTreeMap::new();
                let mut statement = view.prepare_cached(questions::OUTBOXES)?;
                let mut found = statement.query(())?;
                while let Some(row) = found.next()? {
                    let (id, owner, last, lost) =
                        (row.get::<_, i64>(0)?, owner(row)?, number(row, 4)?, number(row, 5)?);
                    let waiting = waiting(view, id)?;
                    all.insert(owner.clone(), Stored { owner, last, lost, waiting });
                }
                for (owner, news) in fresh {
                    let empty = Stored { owner: owner.clone(), last: 0, lost: 0, waiting: Vec::new() };
                    let stored = all.entry(owner).or_insert(empty);
                    stored.last = stored.last.max(news.last);
                    stored.lost = stored.lost.max(news.lost);
                    stored.waiting.retain(|(seq, _)| !news.is_gone(*seq) && !news.notices.contains_key(seq));
                    stored.waiting.extend(news.notices.iter().map(|(seq, notice)| (*seq, notice.at)));
                    stored.waiting.sort_unstable();
                }
                Ok(all.into_values().collect())
            },
        )
    }

    pub(crate) fn notices(&self, owner: &Owner, after: u64, limit: usize) -> Result<Vec<Notice>, ReadError> {
        self.both(
            |overlay| overlay.outboxes.get(owner).cloned(),
            |news, view| {
                let news = news.unwrap_or_default();
                let mut found: BTreeMap<u64, Notice> = news
                    .notices
                    .range(after.saturating_add(1)..)
                    .take(limit)
                    .map(|(seq, it)| (*seq, (**it).clone()))
                    .collect();
                let [tenant, agent, caller] = names(owner);
                let find = view
                    .prepare_cached(questions::OUTBOX)?
                    .query_row([tenant, agent, caller], |row| row.get::<_, i64>(0));
                let Some(id) = find.optional()? else { return Ok(found.into_values().collect()) };
                let mut statement = view.prepare_cached(questions::NOTICES)?;
                let after = i64::try_from(after).unwrap_or(i64::MAX);
                let mut rows = statement.query([id, after])?;
                let mut count = 0;
                while let Some(row) = rows.next()?.filter(|_| count < limit) {
                    let seq = number(row, 0)?;
                    if !news.is_gone(seq) {
                        count += 1;
                        found.entry(seq).or_insert(notice(row, owner, seq)?);
                    }
                }
                Ok(found.into_values().take(limit).collect())
            },
        )
    }
}

fn waiting(view: &Connection, id: i64) -> rusqlite::Result<Vec<(u64, watertight_policy::time::Time)>> {
    let mut statement = view.prepare_cached(questions::WAITING)?;
    let all = statement.query_map([id], |row| Ok((number(row, 0)?, row.get::<_, Moment>(1)?.0)))?;
    all.collect()
}

fn owner(row: &rusqlite::Row<'_>) -> rusqlite::Result<Owner> {
    let text = |column| row.get::<_, Arc<str>>(column);
    let (tenant, agent, caller) = (text(1)?, text(2)?, text(3)?);
    Ok(match agent.is_empty() {
        true => Owner::Caller(Principal { tenant, caller }),
        false => Owner::Agent(tenant, AgentId(agent)),
    })
}

fn notice(row: &rusqlite::Row<'_>, owner: &Owner, seq: u64) -> rusqlite::Result<Notice> {
    Ok(Notice {
        owner: owner.clone(),
        seq,
        task: row.get::<_, Id>(1)?.task(),
        turn: row.get(2)?,
        agent: AgentId(row.get(3)?),
        context: row.get(4)?,
        state: rows::coded(row, 5, codes::to_state)?,
        reason: rows::reason(row, 6)?,
        at: row.get::<_, Moment>(7)?.0,
    })
}

fn number(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)? as u64)
}
