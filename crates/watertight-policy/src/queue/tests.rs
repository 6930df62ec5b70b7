//! Who goes next, and that nobody is lost, doubled or starved.

use proptest::prelude::*;

use super::*;

fn at(secs: u64) -> Time {
    Time::from_millis(secs * 1_000)
}

fn spot(sender: u32, priority: u8, since: u64) -> Spot {
    Spot { since: at(since), sender, priority }
}

fn queue(items: &[(u64, u32, u8, u64)]) -> Queue<u64> {
    let mut queue = Queue::new(Params::default());
    for (id, sender, priority, since) in items {
        assert!(queue.push(*id, spot(*sender, *priority, *since), 1));
    }
    queue
}

fn all(queue: &mut Queue<u64>, now: u64) -> Vec<u64> {
    std::iter::from_fn(|| queue.pop(at(now))).collect()
}

#[test]
fn priority_comes_first_and_then_age() {
    let mut queue = queue(&[(1, 0, 10, 1), (2, 0, 50, 2), (3, 0, 100, 4), (4, 0, 50, 1), (5, 0, 100, 3)]);
    assert_eq!(all(&mut queue, 5), [5, 3, 4, 2, 1]);
    assert!(queue.is_empty() && queue.levels.is_empty() && queue.oldest.is_empty() && queue.senders.is_empty());
}

#[test]
fn what_has_waited_long_counts_as_most_urgent_and_keeps_its_age() {
    let items = [(1, 0, 10, 0), (2, 0, 100, 250), (3, 0, 10, 100), (4, 0, 0, 1)];
    assert_eq!(all(&mut queue(&items), 299), [2, 1, 3, 4]);
    assert_eq!(all(&mut queue(&items), 300), [1, 2, 3, 4]);
    assert_eq!(all(&mut queue(&items), 301), [1, 4, 2, 3]);
    assert_eq!(all(&mut queue(&items), 400), [1, 4, 3, 2]);
}

#[test]
fn senders_take_turns_whatever_one_of_them_has_waiting() {
    let mut queue = Queue::new(Params::default());
    (0..1_000).for_each(|id| assert!(queue.push(id, spot(1, 50, id / 100), 1)));
    assert!(queue.push(2_000, spot(2, 50, 20), 1));
    assert_eq!(queue.position_at(50, at(20)), 1_002);
    let first: Vec<u64> = queue.in_order().take(3).collect();
    assert_eq!(first, [0, 2_000, 1]);
    assert_eq!((queue.pop(at(21)), queue.pop(at(21)), queue.pop(at(21))), (Some(0), Some(2_000), Some(1)));
}

#[test]
fn weights_are_shares() {
    let mut queue = Queue::new(Params::default());
    for id in 0..20 {
        queue.push(id, spot(1, 50, id), 3);
        queue.push(100 + id, spot(2, 50, id), 0);
    }
    let first: Vec<u64> = (0..8).filter_map(|_| queue.pop(at(30))).collect();
    assert_eq!(first, [0, 1, 2, 100, 3, 4, 5, 101]);
}

#[test]
fn what_is_taken_out_is_gone_also_after_it_has_risen() {
    let mut queue = queue(&[(1, 0, 10, 0), (2, 0, 10, 1), (3, 1, 10, 2)]);
    assert!(!queue.remove(1, spot(0, 10, 1)) && !queue.remove(9, spot(0, 10, 0)));
    queue.age(at(300));
    assert!(queue.contains(1, spot(0, 10, 0)) && !queue.push(1, spot(0, 10, 0), 1));
    assert!(queue.remove(1, spot(0, 10, 0)) && !queue.remove(1, spot(0, 10, 0)));
    assert_eq!((queue.len(), queue.len_of(0), queue.len_of(1)), (2, 1, 1));
    assert_eq!(queue.oldest(), Some(at(1)));
    assert!(queue.remove(2, spot(0, 10, 1)) && queue.remove(3, spot(1, 10, 2)));
    assert_eq!((queue.len(), queue.oldest(), queue.pop(at(400))), (0, None, None));
}

#[test]
fn positions_count_all_that_may_go_before() {
    let mut queue = queue(&[(1, 0, 10, 0), (2, 1, 50, 1), (3, 2, 100, 2)]);
    let positions = [100, 99, 50, 49, 10, 0].map(|priority| queue.position_at(priority, at(3)));
    assert_eq!(positions, [2, 2, 3, 3, 4, 4]);
    assert_eq!(queue.position_at(100, at(300)), 3);
}

/// What can be done to a queue.
#[derive(Clone, Debug)]
enum Op {
    Push { sender: u32, priority: u8, age: u64 },
    Pop,
    Remove(usize),
    Wait(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (0..4u32, 0..=100u8, 0..400u64).prop_map(|(sender, priority, age)| Op::Push { sender, priority, age }),
        3 => Just(Op::Pop),
        1 => any::<usize>().prop_map(Op::Remove),
        1 => (0..200u64).prop_map(Op::Wait),
    ];
    proptest::collection::vec(op, 0..200)
}

proptest! {
    /// Against a list: nothing is lost or doubled, what goes is of the most urgent there is and its sender's oldest, and
    /// the order foretold is the order kept.
    #[test]
    fn it_is_a_queue(ops in ops(), weights in proptest::collection::vec(1..4u32, 4)) {
        let (mut queue, mut list) = (Queue::new(Params::default()), Vec::new());
        let (mut now, mut next) = (1_000u64, 0u64);
        let urgency = |spot: &Spot, now: u64| {
            if at(now).since(spot.since) >= Span::from_secs(300) { HIGHEST } else { spot.priority }
        };
        for op in ops {
            match op {
                Op::Push { sender, priority, age } => {
                    let spot = spot(sender, priority, now - age);
                    prop_assert!(queue.push(next, spot, weights[sender as usize]));
                    list.push((next, spot));
                    next += 1;
                }
                Op::Pop => {
                    queue.age(at(now));
                    let foretold = queue.in_order().next();
                    let popped = queue.pop(at(now));
                    prop_assert_eq!(popped, foretold);
                    prop_assert_eq!(popped.is_none(), list.is_empty());
                    let Some(popped) = popped else { continue };
                    let place = list.iter().position(|(id, _)| *id == popped).expect("it waited");
                    let (_, gone) = list.remove(place);
                    for (id, spot) in &list {
                        let (this, other) = (urgency(&gone, now), urgency(spot, now));
                        prop_assert!(other <= this);
                        let older = other == this && spot.sender == gone.sender;
                        prop_assert!(!older || (spot.since, *id) > (gone.since, popped));
                    }
                }
                Op::Remove(any) if !list.is_empty() => {
                    let (id, spot) = list.remove(any % list.len());
                    prop_assert!(queue.remove(id, spot));
                }
                Op::Remove(_) => prop_assert_eq!(queue.pop(at(now)), None),
                Op::Wait(secs) => now += secs,
            }
            prop_assert_eq!(queue.len(), list.len());
            for sender in 0..4 {
                prop_assert_eq!(queue.len_of(sender), list.iter().filter(|(_, spot)| spot.sender == sender).count());
            }
            prop_assert_eq!(queue.oldest(), list.iter().map(|(_, spot)| spot.since).min());
            for (id, spot) in &list {
                prop_assert!(queue.contains(*id, *spot));
            }
        }
        queue.age(at(now));
        let foretold: Vec<u64> = queue.in_order().collect();
        let kept: Vec<u64> = std::iter::from_fn(|| queue.pop(at(now))).collect();
        prop_assert_eq!(foretold, kept);
    }

    /// Of equal urgency, in any time in which both wait, nobody gets more than a turn ahead of its share.
    #[test]
    fn shares_are_kept(counts in proptest::collection::vec(20..60usize, 2..5), weights in proptest::collection::vec(1..4u32, 5)) {
        let mut queue = Queue::new(Params::default());
        let mut next = 0u64;
        for (sender, count) in counts.iter().enumerate() {
            for _ in 0..*count {
                queue.push(next * 10 + sender as u64, spot(sender as u32, 50, 0), weights[sender]);
                next += 1;
            }
        }
        let mut served = vec![0u32; counts.len()];
        for _ in 0..20 {
            let Some(id) = queue.pop(at(1)) else { break };
            served[(id % 10) as usize] += 1;
            for a in 0..counts.len() {
                for b in 0..counts.len() {
                    prop_assert!(served[a] / weights[a] <= served[b] / weights[b] + 1 || served[b] as usize == counts[b]);
                }
            }
        }
    }
}
