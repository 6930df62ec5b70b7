//! Reads the gateway's gauges out of its Prometheus text.

use std::collections::BTreeMap;

use super::model::Agent;

/// The breaker of one agent, named by what traffic meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breaker {
    Admitting,
    Probing,
    Ejected,
}

impl Breaker {
    pub(super) fn name(self) -> &'static str {
        match self {
            Breaker::Admitting => "admitting",
            Breaker::Probing => "probing",
            Breaker::Ejected => "ejected",
        }
    }
}

/// What the gateway says about one agent right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Gauges {
    pub(super) in_flight: u64,
    pub(super) waiting: u64,
    pub(super) breaker: Option<Breaker>,
}

/// Unknown lines are skipped: the page holds much more than the demo needs.
pub(super) fn parse(text: &str) -> BTreeMap<Agent, Gauges> {
    let mut all = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, agent, value)) = sample(line) else { continue };
        let gauges: &mut Gauges = all.entry(agent).or_default();
        match name {
            "watertight_in_flight" => gauges.in_flight = value as u64,
            "watertight_waiting" => gauges.waiting = value as u64,
            "watertight_breaker_state" => {
                gauges.breaker = match value as u64 {
                    0 => Some(Breaker::Admitting),
                    1 => Some(Breaker::Probing),
                    _ => Some(Breaker::Ejected),
                }
            }
            _ => {}
        }
    }
    all
}

fn sample(line: &str) -> Option<(&str, Agent, f64)> {
    let (name, rest) = line.split_once('{')?;
    let (labels, rest) = rest.rsplit_once('}')?;
    let agent = labels.split(',').find_map(|label| label.trim().strip_prefix("agent=\"")?.strip_suffix('"'))?;
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, agent.parse().ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_are_found_among_other_lines() {
        let text = "# HELP watertight_in_flight Calls.\n# TYPE watertight_in_flight gauge\n\
            watertight_in_flight{agent=\"hotels\"} 8\nwatertight_in_flight{agent=\"other\"} 1\n\
            watertight_waiting{cell=\"0\",agent=\"hotels\"} 3\nwatertight_breaker_state{agent=\"hotels\"} 2\n\
            watertight_call_seconds_bucket{agent=\"fx\",le=\"0.5\"} 4\nwatertight_up 1\n";
        let all = parse(text);
        assert_eq!(all[&Agent::Hotels], Gauges { in_flight: 8, waiting: 3, breaker: Some(Breaker::Ejected) });
        assert_eq!(all[&Agent::Fx], Gauges::default());
        assert_eq!(all.len(), 2);
    }
}
