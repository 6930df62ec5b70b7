//! Lists while rows are on their way from the log to the tables: the same as if they stood still.

use watertight_engine::ids::TaskId;
use watertight_engine::record::TaskState;
use watertight_policy::time::Span;

use super::reading::check;
use super::*;
use crate::ListQuery;

/// Tasks of two callers with two agents in few contexts, some of them moved, at times that repeat.
struct Crowd {
    store: Store,
    fence: u64,
    rows: Vec<Row>,
    dice: u64,
}

impl Crowd {
    fn dice(&mut self, sides: usize) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) as usize % sides
    }

    fn add(&mut self, count: usize) {
        let first = self.rows.len();
        for n in first..first + count {
            let mut new = row(n as u128 + 1);
            new.principal.caller = ["planner", "planner-2"][self.dice(2)].into();
            new.agent = AgentId::new(["flights", "hotels"][self.dice(2)]);
            new.context = format!("ctx-{}", self.dice(20)).as_str().into();
            new.changed = at(self.dice(300) as u64);
            self.rows.push(new);
        }
        self.save(first..first + count);
    }

    fn change(&mut self, count: usize) {
        for _ in 0..count {
            let which = self.dice(self.rows.len());
            let (state, changed) = (TaskState::ALL[self.dice(8)], at(300 + self.dice(300) as u64));
            let Row { state: before, changed: since, .. } = self.rows[which];
            let (state, changed) = if before.is_terminal() { (before, since) } else { (state, changed) };
            self.rows[which] = Row { changed, ..next(&self.rows[which], state) };
            self.save(which..which + 1);
        }
    }

    /// Tasks with long texts.
    fn fill(&mut self, count: usize) {
        let first = self.rows.len();
        self.rows.extend((first..first + count).map(|n| row(n as u128 + 1)));
        let writes = self.rows[first..].iter().map(|row| with_message(row, bulk(50_000))).collect();
        assert_eq!(commit(&self.store, self.fence, writes), Ok(()));
    }

    fn save(&self, which: std::ops::Range<usize>) {
        assert_eq!(commit(&self.store, self.fence, self.rows[which].iter().map(save).collect()), Ok(()));
    }

    fn check(&self) {
        // Nothing moves meanwhile.
        self.store.hang(true);
        for caller in ["planner", "planner-2", "nobody"] {
            let all = ListQuery { principal: Principal { tenant: "acme".into(), caller: caller.into() }, ..all() };
            let own: Vec<Row> = self.rows.iter().filter(|row| row.principal == all.principal).cloned().collect();
            let hotels = ListQuery { agent: Some(AgentId::new("hotels")), limit: 7, ..all.clone() };
            let context = ListQuery { context: Some("ctx-7".into()), limit: 3, ..all.clone() };
            let over = Some(vec![TaskState::Completed, TaskState::Rejected]);
            // Twice: the second time some of it is known.
            for _ in 0..2 {
                check(&self.store, &own, &all);
                check(&self.store, &own, &hotels);
                check(&self.store, &own, &ListQuery { states: over.clone(), ..hotels.clone() });
                check(&self.store, &own, &ListQuery { changed_after: Some(at(250)), ..all.clone() });
                check(
                    &self.store,
                    &own,
                    &ListQuery { changed_after: Some(at(400)), states: over.clone(), ..all.clone() },
                );
                check(&self.store, &own, &context);
                check(
                    &self.store,
                    &own,
                    &ListQuery { states: over.clone(), changed_after: Some(at(100)), ..context.clone() },
                );
                check(&self.store, &own, &ListQuery { agent: hotels.agent.clone(), ..context.clone() });
            }
        }
        self.store.hang(false);
    }
}

fn all() -> ListQuery {
    ListQuery { limit: 50, ..ListQuery::of(row(1).principal) }
}

#[test]
fn a_list_is_right_wherever_its_rows_are() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    let mut crowd = Crowd { store, fence: lease.fence, rows: Vec::new(), dice: 20_260_401 };
    for round in 0..4 {
        crowd.add(80);
        crowd.check();
        crowd.change(60);
        crowd.check();
        if round % 2 == 0 {
            crowd.store.settle_some(Some(50));
            crowd.check();
            crowd.change(20);
            crowd.store.settle_some(Some(30));
        } else {
            crowd.store.settle();
        }
        crowd.check();
    }
    // What could not be written to the tables is perhaps in them.
    crowd.change(50);
    crowd.fill(40);
    crowd.change(100);
    crowd.store.limit_pages(1);
    assert!(!crowd.store.settle_some(Some(120)));
    crowd.check();
    crowd.store.limit_pages(100_000);
    crowd.change(20);
    assert!(crowd.store.settle_some(Some(60)));
    crowd.check();
    crowd.store.settle();
    crowd.check();
    // And what is taken out of them is in no total any more.
    let kept = |row: &Row| !row.state.is_terminal() || row.changed > at(450);
    let pruned = crowd.store.prune(at(1_450), Span::from_millis(1_000), Span::MAX).unwrap();
    let before = crowd.rows.len();
    crowd.rows.retain(kept);
    assert_eq!(pruned.tasks as usize, before - crowd.rows.len());
    crowd.check();
}

/// After a crash the tables may have some of what is in the log, or all of it.
#[test]
fn a_list_is_right_while_the_log_is_played_again() {
    let home = tempfile::tempdir().unwrap();
    let (store, lease) = Store::open(home.path(), 0).unwrap();
    let mut crowd = Crowd { store, fence: lease.fence, rows: Vec::new(), dice: 7 };
    crowd.add(300);
    crowd.store.settle_some(Some(120));
    crowd.change(150);
    crowd.check();
    crowd.fence = crowd.store.relet().unwrap().fence;
    crowd.check();
    crowd.change(50);
    crowd.check();
    assert_eq!(crowd.store.task(TaskId(1)), Ok(crowd.rows.first().cloned()));
}
