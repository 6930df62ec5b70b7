//! The run itself: starts the cast, sends the trips, slows hotels and heals it, and gathers the facts.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::children::Children;
use super::client::Client;
use super::clock::{Alarm, Clock};
use super::model::{Agent, SLOW, Schedule};
use super::orchestrator::Orchestrator;
use super::report::{Facts, HotelsLog, Late, Report, Work};
use super::view::View;
use super::watcher::Watcher;
use super::{Error, Mode, Options, output};

/// The fault starts and ends this long before a trip, so that every run meets it at the same point.
const LEAD: Duration = Duration::from_millis(60);
/// How long the last cancellations may take to reach the agents once all trips are answered.
const SETTLE: Duration = Duration::from_secs(3);

pub(super) async fn run(
    options: &Options,
    schedule: Schedule,
    children: &mut Children,
    home: &Path,
) -> Result<Report, Error> {
    let agents = start_agents(children).await?;
    let (gateway, plain) = match options.mode {
        Mode::Walls => {
            let gateway = start_gateway(children, home, &agents, options.port).await?;
            (Some(gateway), Some(start_agent(children, "yardstick", Agent::Fx).await?))
        }
        Mode::WithoutWalls | Mode::Direct => (None, None),
    };
    let doors = match &gateway {
        Some(url) => Agent::ALL.map(|agent| format!("{url}/agents/{agent}")),
        None => agents.clone(),
    };
    warm_up(&doors).await?;
    let hotels = Client::new(agents[Agent::Hotels as usize].clone());
    let watcher = Watcher::new(gateway.as_deref(), agents.each_ref().map(String::as_str));
    let shared_pool = options.mode == Mode::WithoutWalls;
    let doors = doors.each_ref().map(String::as_str);
    let orchestrator = Arc::new(Orchestrator::new(Clock::start(), doors, plain.as_deref(), shared_pool));
    let alarm = Alarm::set(orchestrator.clock);
    let view = View { mode: options.mode, schedule, gateway, color: options.color };
    let trips = async {
        trips(&orchestrator, &watcher, &hotels, schedule).await?;
        settle(&hotels, options.mode).await
    };
    let log = tokio::select! {
        log = trips => log?,
        error = children.died() => return Err(error),
        never = watcher.run(&orchestrator) => match never {},
        never = view.on_terminal(&orchestrator, &watcher), if options.view => match never {},
        never = view.as_lines(&orchestrator, &watcher), if !options.view => match never {},
    };
    let late = alarm.late();
    let seen = watcher.seen().clone();
    let facts = Facts {
        mode: options.mode,
        schedule,
        fault_from: seen.fault_from.unwrap_or_default(),
        fault_to: seen.fault_to.unwrap_or_default(),
        slots_full: seen.slots_full,
        pool_full: seen.pool_full,
        records: std::mem::take(&mut *orchestrator.records()),
        hotels: read_log(&log, orchestrator.clock.now()),
        late: Late { p99: late.quantile(99).unwrap_or_default(), most: late.max().unwrap_or_default() },
    };
    Ok(Report::new(&facts))
}

async fn start_agents(children: &mut Children) -> Result<[String; 3], Error> {
    let mut urls = [const { String::new() }; 3];
    for (url, agent) in urls.iter_mut().zip(Agent::ALL) {
        *url = start_agent(children, agent.name(), agent).await?;
    }
    Ok(urls)
}

async fn start_agent(children: &mut Children, name: &str, agent: Agent) -> Result<String, Error> {
    let latency = agent.normal_latency().as_millis().to_string();
    let arguments =
        ["demo-agent", "--name", agent.name(), "--port", "0", "--latency-ms", &latency, "--exit-with-stdin"];
    children.start(name, &arguments).await
}

async fn start_gateway(children: &mut Children, home: &Path, agents: &[String; 3], port: u16) -> Result<String, Error> {
    let path = home.join("watertight.toml");
    std::fs::write(&path, configuration(home, agents, port))?;
    let path = path.to_string_lossy();
    let url = children.start("gateway", &["serve", "--config", &path, "--exit-with-stdin"]).await?;
    output::progress(&format!("gateway on {url}, agents on {}", agents.join(", ")));
    Ok(url)
}

/// The bulkheads of the example, and a breaker on hotels that opens after its eight slots have been cut once.
fn configuration(home: &Path, agents: &[String; 3], port: u16) -> String {
    let data = quoted(&home.join("data"));
    // Ctrl-C ends the demo at once, whatever hangs in it.
    let mut text = format!("listen = \"127.0.0.1:{port}\"\n\n[store]\npath = {data}\n\n[drain]\nlimit = \"500ms\"\n");
    for (agent, url) in Agent::ALL.iter().zip(agents) {
        let limits = agent.bulkhead();
        let _infallible = write!(
            text,
            "\n[agents.{agent}]\nurl = \"{url}\"\nmax_in_flight = {}\nmax_waiting = {}\nmax_wait = \"{}ms\"\n",
            limits.max_in_flight,
            limits.max_waiting,
            limits.max_wait.as_millis()
        );
    }
    text + "\n[agents.hotels.breaker]\nconsecutive_failures = 8\nejection_base = \"3s\"\nejection_max = \"10s\"\n"
}

/// A JSON string is a TOML basic string.
fn quoted(path: &Path) -> Value {
    Value::from(path.to_string_lossy())
}

/// One call to each agent before the clock starts: the first pays for connections, and says early what does not work.
async fn warm_up(doors: &[String; 3]) -> Result<(), Error> {
    for (agent, door) in Agent::ALL.into_iter().zip(doors) {
        let call = json!({"jsonrpc": "2.0", "id": 0, "method": "SendMessage", "params": {"message": {
            "messageId": format!("warm-up-{agent}"), "role": "ROLE_USER", "parts": [{"text": "hello"}],
        }}});
        let answer = tokio::time::timeout(Duration::from_secs(20), Client::new(door.clone()).post("", &call)).await;
        let answer = answer.unwrap_or_else(|_| Err("no answer in 20 s".to_owned()));
        let answer = answer.map_err(|why| Error::Broken(format!("the first call to {agent} failed: {why}")))?;
        let state = &answer["result"]["task"]["status"]["state"];
        if state != "TASK_STATE_COMPLETED" {
            return Err(Error::Broken(format!("the first call to {agent} did not complete: {answer}")));
        }
    }
    Ok(())
}

/// Sends every trip when it is due and waits for the last answer.
async fn trips(
    orchestrator: &Arc<Orchestrator>,
    watcher: &Watcher,
    hotels: &Client,
    schedule: Schedule,
) -> Result<(), Error> {
    let clock = orchestrator.clock;
    let mut open = JoinSet::new();
    for number in 0..schedule.trips {
        let due = Schedule::at(number);
        if number == schedule.fault_from {
            clock.sleep_until(due - LEAD).await;
            set_latency(hotels, SLOW).await?;
            watcher.seen().fault_from = Some(clock.now());
        }
        if number == schedule.fault_to {
            clock.sleep_until(due - LEAD).await;
            set_latency(hotels, Agent::Hotels.normal_latency()).await?;
            watcher.seen().fault_to = Some(clock.now());
        }
        clock.sleep_until(due).await;
        let (orchestrator, phase) = (Arc::clone(orchestrator), schedule.phase(number));
        open.spawn(async move { orchestrator.trip(number, phase).await });
        while let Some(done) = open.try_join_next() {
            done.map_err(|e| Error::Broken(e.to_string()))?;
        }
    }
    while let Some(done) = open.join_next().await {
        done.map_err(|e| Error::Broken(e.to_string()))?;
    }
    Ok(())
}

async fn set_latency(agent: &Client, latency: Duration) -> Result<(), Error> {
    let answer = agent.post("/demo/latency", &json!({"ms": latency.as_millis() as u64})).await;
    answer.map(drop).map_err(|why| Error::Broken(format!("cannot set the hotels agent's latency: {why}")))
}

/// Waits for the cancellations that are still on their way, then asks the agent what it did.
async fn settle(hotels: &Client, mode: Mode) -> Result<Value, Error> {
    let patience = if mode == Mode::Walls { SETTLE } else { Duration::ZERO };
    let idle = async {
        while get(hotels, "/demo/stats").await.is_ok_and(|stats| stats["running"] != 0) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _still_running = tokio::time::timeout(patience, idle).await;
    let mut log = get(hotels, "/demo/log").await?;
    log["stats"] = get(hotels, "/demo/stats").await?;
    Ok(log)
}

async fn get(agent: &Client, path: &str) -> Result<Value, Error> {
    let body = agent.get(path).await.map_err(|why| Error::Broken(format!("cannot read {path}: {why}")))?;
    serde_json::from_slice(&body).map_err(|e| Error::Broken(format!("cannot read {path}: {e}")))
}

/// Places the agent's log on the demo's clock; `now` is when the log was read, within a few milliseconds.
fn read_log(log: &Value, now: Duration) -> HotelsLog {
    let agent_now = log["now_ms"].as_f64().unwrap_or_default();
    let at = |ms: f64| now.saturating_sub(Duration::from_secs_f64((agent_now - ms).max(0.0) / 1e3));
    let work = log["tasks"].as_array().into_iter().flatten().filter_map(|task| {
        Some(Work { started: at(task["started_ms"].as_f64()?), ended: task["ended_ms"].as_f64().map(at) })
    });
    HotelsLog {
        work: work.collect(),
        canceled: log["stats"]["canceled"].as_u64().unwrap_or_default(),
        still_running: log["stats"]["running"].as_u64().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_s_log_is_read_on_our_clock() {
        let log = json!({"now_ms": 5_000.0, "tasks": [{"started_ms": 1_000.0, "ended_ms": 2_500.0},
            {"started_ms": 4_000.0, "ended_ms": null}], "stats": {"canceled": 3, "running": 1}});
        let log = read_log(&log, Duration::from_secs(60));
        assert_eq!(
            (log.work[0].started, log.work[0].ended),
            (Duration::from_secs(56), Some(Duration::from_millis(57_500)))
        );
        assert_eq!((log.work[1].started, log.work[1].ended), (Duration::from_secs(59), None));
        assert_eq!((log.canceled, log.still_running), (3, 1));
    }

    #[test]
    fn the_configuration_names_the_example_s_walls() {
        let urls = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"].map(str::to_owned);
        let text = configuration(Path::new("/tmp/x y"), &urls, 0);
        assert!(text.starts_with("listen = \"127.0.0.1:0\"\n\n[store]\npath = \"/tmp/x y/data\"\n\n[drain]\n"));
        let fx =
            "[agents.fx]\nurl = \"http://127.0.0.1:3\"\nmax_in_flight = 4\nmax_waiting = 8\nmax_wait = \"200ms\"\n";
        assert!(text.contains(fx));
    }
}
