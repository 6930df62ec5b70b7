//! A long queue: accepted before an agent that takes nothing, looked at, killed, and started on again.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::ask::Asker;
use crate::call::{Request, find, get};
use crate::clock::now;
use crate::model::Backlog;
use crate::route::{self, Kind, Place};
use crate::run::{SETTLED, say};
use crate::{Failure, RunArgs, stop};

/// Callers that fill it.
const CALLERS: usize = 32;

/// A gateway that is not ready by then does not get there.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn measure(place: &Place, args: &RunArgs) -> Result<Backlog, Failure> {
    let tasks = args.backlog;
    say(&format!("a queue of {tasks}"));
    let (_agent, agent) = route::agent(place)?;
    let mut found = Backlog { tasks, ..Backlog::default() };
    for round in 0..args.rounds {
        stop::check()?;
        let dir = route::fresh(place, "backlog")?;
        let agents = format!(
            "[server]\nmax_delegations = {more}\nmax_queued_per_tenant = {more}\n\n{}max_queued = {more}\n",
            route::agents(Kind::Durable, agent),
            more = tasks + 1_000
        );
        let (gateway, addr) = route::gateway(place, &dir, &agents)?;
        Asker::new(addr)?.post("/v1/agents/echo/drain", "{}")?;
        let began = now();
        fill(addr, tasks)?;
        found.rates.push(tasks as f64 / began.elapsed().as_secs_f64());
        thread::sleep(SETTLED);
        found.resident.push(gateway.used().bytes);
        found.threads = gateway.threads();
        gateway.kill();
        let (gateway, addr) = route::gateway(place, &dir, &agents)?;
        found.ready.push(ready(addr, gateway.ready.map_or(Duration::ZERO, |(_, at)| at))?.as_secs_f64() * 1e3);
        say(&format!("a queue of {tasks}, round {}: ready after {:.0} ms", round + 1, found.ready[round]));
    }
    Ok(found)
}

/// Each is accepted, and waits.
fn fill(addr: SocketAddr, tasks: usize) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                scope.spawn(|| {
                    let (mut asker, mut request) = (Asker::new(addr)?, Request::at_once(addr, "/agents/echo"));
                    loop {
                        let n = next.fetch_add(1, Relaxed);
                        if n >= tasks {
                            return Ok(());
                        }
                        stop::check()?;
                        let answer = asker.send(request.number(n as u64))?;
                        if find(&answer.body, br#""TASK_STATE_SUBMITTED""#).is_none() {
                            let text = String::from_utf8_lossy(&answer.body).escape_debug().to_string();
                            return Err::<(), Failure>(format!("a full queue? {}: {text}", answer.status).into());
                        }
                    }
                })
            })
            .collect();
        callers.into_iter().try_for_each(|caller| caller.join().map_err(|_| "a caller panicked")?)
    })
}

/// From its start to the first `/readyz` that says so.
fn ready(addr: SocketAddr, listening: Duration) -> Result<Duration, Failure> {
    let began = now();
    let request = get(addr, "/readyz");
    while began.elapsed() < PATIENCE {
        stop::check()?;
        if Asker::new(addr)?.send(&request)?.status == 200 {
            return Ok(listening + began.elapsed());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err("the gateway was not ready in time".into())
}
