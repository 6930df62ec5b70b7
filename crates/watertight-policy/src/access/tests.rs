//! Each rule by an example, and the tree against a second way to compute it.

use proptest::prelude::*;

use super::*;

type Agents = BTreeMap<&'static str, Place<&'static str>>;

/// `name < parent`, or a root's name alone.
fn tree(lines: &[&'static str]) -> Agents {
    let place = |line: &&'static str| match line.split_once(" < ") {
        Some((name, parent)) => (name, Place { parent: Some(parent), ..Place::default() }),
        None => (*line, Place::default()),
    };
    lines.iter().map(place).collect()
}

/// Two trees: `boss` over `left` and `right`, each with two below; and `chief` over `aide`.
fn two_trees() -> Agents {
    tree(&["boss", "left < boss", "right < boss", "l1 < left", "l2 < left", "r1 < right", "r2 < right", "chief"])
        .into_iter()
        .chain(tree(&["aide < chief"]))
        .collect()
}

fn agent<'a>(name: &'a &'static str) -> Caller<'a, &'static str> {
    Caller { tenant: "acme", agent: Some(name), only: None }
}

const PERSON: Caller<'static, &'static str> = Caller { tenant: "acme", agent: None, only: None };

#[test]
fn without_any_of_it_everybody_may_call_everybody_else() {
    let access = Access::new(Rule::Tenant, two_trees());
    for name in two_trees().keys() {
        assert_eq!(access.judge(&PERSON, name), Ok(()));
        let others: Vec<_> = two_trees().into_keys().filter(|other| other != name).collect();
        assert_eq!(access.callable(&agent(name)).copied().collect::<Vec<_>>(), others);
        assert_eq!(access.judge(&agent(name), name), Err(Denied::Itself));
    }
    assert_eq!(access.judge(&PERSON, &"nobody"), Err(Denied::Unknown));
}

#[test]
fn an_agent_calls_those_above_below_and_beside_it() {
    let access = Access::new(Rule::Hierarchy, two_trees());
    let callable = |name: &'static str| access.callable(&agent(&name)).copied().collect::<Vec<_>>().join(" ");
    assert_eq!(callable("boss"), "l1 l2 left r1 r2 right");
    assert_eq!(callable("left"), "boss l1 l2 right");
    assert_eq!(callable("l1"), "boss l2 left");
    assert_eq!(callable("r2"), "boss r1 right");
    assert_eq!(callable("chief"), "aide");
    assert_eq!(callable("aide"), "chief");
    for (from, to) in [("l1", "r1"), ("l1", "right"), ("boss", "chief"), ("l1", "aide"), ("chief", "l1")] {
        assert_eq!(access.judge(&agent(&from), &to), Err(Denied::Unrelated), "{from} {to}");
        assert!(access.exists(&agent(&from), &to), "it may be named");
    }
    assert_eq!(access.judge(&agent(&"l1"), &"l1"), Err(Denied::Itself));
    assert_eq!(access.judge(&agent(&"l1"), &"nobody"), Err(Denied::Unknown));
    assert_eq!(access.callable(&agent(&"gone")).count(), 0, "who is in no tree is nobody's relation");
    assert_eq!(access.callable(&PERSON).count(), 9, "who is no agent stands outside");
}

#[test]
fn a_list_takes_the_place_of_the_tree_and_hides_the_rest() {
    let (own, only) = ("l1", BTreeSet::from(["r1", "chief", "l1"]));
    for rule in [Rule::Tenant, Rule::Hierarchy] {
        let access = Access::new(rule, two_trees());
        let caller = Caller { only: Some(&only), ..agent(&own) };
        assert_eq!(access.callable(&caller).copied().collect::<Vec<_>>(), ["chief", "r1"]);
        assert_eq!(access.judge(&caller, &"left"), Err(Denied::Unknown), "its own parent");
        assert_eq!(access.judge(&caller, &"l1"), Err(Denied::Itself));
        assert!(!access.exists(&Caller { only: Some(&BTreeSet::new()), ..PERSON }, &"left"));
    }
}

#[test]
fn a_tenants_agent_is_for_that_tenant_alone() {
    let mut agents = two_trees();
    for name in ["boss", "left", "l1"] {
        agents.entry(name).and_modify(|place| place.tenant = Some("acme".into()));
    }
    let (left, only) = ("left", BTreeSet::from(["left", "r1"]));
    for rule in [Rule::Tenant, Rule::Hierarchy] {
        let access = Access::new(rule, agents.clone());
        let other = Caller { tenant: "other", ..PERSON };
        assert_eq!(access.judge(&other, &"left"), Err(Denied::Unknown));
        assert_eq!(access.judge(&other, &"nobody"), Err(Denied::Unknown), "like one that there is not");
        assert_eq!((access.judge(&other, &"r1"), access.judge(&PERSON, &"left")), (Ok(()), Ok(())));
        let listed = Caller { only: Some(&only), ..other };
        assert_eq!((access.judge(&listed, &"left"), access.judge(&listed, &"r1")), (Err(Denied::Unknown), Ok(())));
        let pretends = Caller { agent: Some(&left), ..other };
        assert_eq!(access.callable(&pretends).count(), 0, "it is no agent of its tenant");
        assert!(!access.exists(&pretends, &"r1"));
    }
}

#[test]
fn an_agent_that_may_not_delegate_calls_nobody() {
    let mut agents = two_trees();
    agents.entry("l1").and_modify(|place| place.can_delegate = false);
    let (l1, only) = ("l1", BTreeSet::from(["left"]));
    for rule in [Rule::Tenant, Rule::Hierarchy] {
        let access = Access::new(rule, agents.clone());
        for caller in [agent(&l1), Caller { only: Some(&only), ..agent(&l1) }] {
            assert_eq!(access.judge(&caller, &"left"), Err(Denied::MayNotDelegate));
            assert!(access.exists(&caller, &"left") && !access.can_delegate(&caller));
            assert_eq!(access.callable(&caller).count(), 0);
            assert_eq!(access.judge(&caller, &"nobody"), Err(Denied::Unknown));
        }
        assert_eq!(access.judge(&agent(&"left"), &"l1"), Ok(()), "it is called like any other");
        assert_eq!(access.judge(&PERSON, &"l1"), Ok(()));
    }
}

#[test]
fn what_is_wrong_with_a_tree_is_told() {
    let faults = |agents: &Agents| Access::new(Rule::Hierarchy, agents.clone()).faults();
    assert_eq!(faults(&two_trees()), []);
    assert_eq!(faults(&tree(&["a < b"])), [Fault::NoSuchParent { agent: "a", parent: "b" }]);
    assert_eq!(faults(&tree(&["a < a"])), [Fault::Ring(vec!["a"])]);
    let rings = tree(&["a < b", "b < c", "c < a", "hangs < a", "below < hangs", "x < y", "y < x"]);
    assert_eq!(faults(&rings), [Fault::Ring(vec!["a", "b", "c"]), Fault::Ring(vec!["x", "y"])]);
    let access = Access::new(Rule::Hierarchy, rings);
    assert_eq!(access.judge(&agent(&"below"), &"x"), Err(Denied::Unrelated), "and it ends");
    let mut tenants = tree(&["a", "b < a", "c < b"]);
    tenants.entry("a").and_modify(|place| place.tenant = Some("acme".into()));
    tenants.entry("b").and_modify(|place| place.tenant = Some("other".into()));
    assert_eq!(faults(&tenants), [Fault::OtherTenant { agent: "b", parent: "a" }]);
}

#[test]
fn what_is_too_deep_is_a_fault_and_not_a_relation() {
    let line = |levels: u32| -> BTreeMap<u32, Place<u32>> {
        let place = |n: u32| (n, Place { parent: n.checked_sub(1), ..Place::default() });
        (0..=levels).map(place).collect()
    };
    assert_eq!(Access::new(Rule::Hierarchy, line(32)).faults(), []);
    let access = Access::new(Rule::Hierarchy, line(34));
    assert_eq!(access.faults(), [Fault::TooDeep { agent: 33 }, Fault::TooDeep { agent: 34 }]);
    let judge = |from: u32, to: u32| access.judge(&Caller { tenant: "t", agent: Some(&from), only: None }, &to);
    assert_eq!((judge(0, 32), judge(32, 0)), (Ok(()), Ok(())));
    assert_eq!((judge(0, 33), judge(33, 0)), (Err(Denied::Unrelated), Err(Denied::Unrelated)));
}

/// Each agent's parent is one with a lower number, or none: always a forest.
fn forests() -> impl Strategy<Value = Vec<Option<usize>>> {
    proptest::collection::vec(any::<Option<prop::sample::Index>>(), 1..12).prop_map(|drawn| {
        let parent = |(n, index): (usize, Option<prop::sample::Index>)| index.filter(|_| n > 0).map(|i| i.index(n));
        drawn.into_iter().enumerate().map(parent).collect()
    })
}

fn places(parents: &[Option<usize>]) -> BTreeMap<usize, Place<usize>> {
    parents.iter().map(|parent| Place { parent: *parent, ..Place::default() }).enumerate().collect()
}

proptest! {
    #[test]
    fn the_tree_is_what_its_paths_say(parents in forests()) {
        let access = Access::new(Rule::Hierarchy, places(&parents));
        prop_assert_eq!(access.faults(), []);
        // The path from the root down, as another way to say where one stands.
        let path = |n: usize| {
            let mut path = vec![n];
            while let Some(parent) = parents[path[0]] {
                path.insert(0, parent);
            }
            path
        };
        for a in 0..parents.len() {
            for b in 0..parents.len() {
                let (up, down) = (path(a), path(b));
                let line = up.starts_with(&down) || down.starts_with(&up);
                let beside = up.len() > 1 && up[..up.len() - 1] == down[..down.len() - 1];
                let expected = match (a == b, line || beside) {
                    (true, _) => Err(Denied::Itself),
                    (false, true) => Ok(()),
                    (false, false) => Err(Denied::Unrelated),
                };
                let caller = Caller { tenant: "t", agent: Some(&a), only: None };
                prop_assert_eq!(access.judge(&caller, &b), expected, "{} {}", a, b);
                let back = Caller { tenant: "t", agent: Some(&b), only: None };
                prop_assert_eq!(access.judge(&caller, &b).is_ok(), access.judge(&back, &a).is_ok());
            }
        }
    }

    #[test]
    fn the_tree_only_takes_away_and_anything_ends(
        parents in proptest::collection::vec(proptest::option::of(0..14_usize), 1..12),
        tenants in proptest::collection::vec(0..3_u8, 12),
        only in proptest::option::of(proptest::collection::btree_set(0..14_usize, 0..4)),
    ) {
        let place = |(n, parent): (usize, &Option<usize>)| {
            let tenant = [None, Some("a".to_owned()), Some("b".to_owned())][usize::from(tenants[n])].clone();
            (n, Place { tenant, parent: *parent, can_delegate: n % 4 != 3 })
        };
        let all: BTreeMap<usize, Place<usize>> = parents.iter().enumerate().map(place).collect();
        let flat = Access::new(Rule::Tenant, all.clone());
        let tree = Access::new(Rule::Hierarchy, all.clone());
        let _ends = tree.faults();
        for from in (0..14).map(Some).chain([None]) {
            for to in 0..14 {
                let caller = Caller { tenant: "a", agent: from.as_ref(), only: only.as_ref() };
                let (by_tenant, by_tree) = (flat.judge(&caller, &to), tree.judge(&caller, &to));
                prop_assert!(by_tree.is_err() || by_tenant.is_ok());
                prop_assert_eq!(flat.exists(&caller, &to), tree.exists(&caller, &to), "what exists is no matter of the tree");
                prop_assert_eq!(by_tree == Err(Denied::Unknown), !tree.exists(&caller, &to));
                if from.is_none() || only.is_some() {
                    prop_assert_eq!(by_tenant, by_tree);
                }
                let foreign = all.get(&to).is_none_or(|place| place.tenant.as_deref() == Some("b"));
                prop_assert!(!foreign || by_tenant == Err(Denied::Unknown));
            }
        }
    }
}
