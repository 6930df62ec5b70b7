//! Callers that wait for results: what a thousand of them cost while nothing comes, and how soon one has what comes.

use std::fmt::Write as _;
use std::fs;
use std::thread;

use crate::ask::Asker;
use crate::call::{Request, authorized, find, get};
use crate::clock::{now, seconds};
use crate::figures::Waits;
use crate::model::Waiting;
use crate::route::{self, Kind, Place};
use crate::run::{SETTLED, quantiles, say};
use crate::{Failure, RunArgs, stop};

/// How long each of their requests is held: the longest that the gateway holds one.
const HELD_S: u64 = 50;
/// Results in one round, each for another of them.
const RESULTS: usize = 200;

pub(crate) fn measure(place: &Place, args: &RunArgs) -> Result<Waiting, Failure> {
    let callers = args.waiting;
    say(&format!("{callers} callers that wait for results"));
    let (_agent, agent) = route::agent(place)?;
    let mut found = Waiting { callers, held: HELD_S, ..Waiting::default() };
    for round in 0..args.rounds {
        stop::check()?;
        let dir = route::fresh(place, "waiting")?;
        let mut config = route::agents(Kind::Durable, agent);
        for n in 0..callers {
            let file = dir.join(format!("token-{n}"));
            fs::write(&file, token(n))?;
            write!(config, "\n[callers.c{n}]\ntoken = \"file:{}\"\noutbox = true\n", file.display())?;
        }
        let (gateway, addr) = route::gateway(place, &dir, &config)?;
        thread::sleep(SETTLED);
        let before = gateway.used();
        let wait = |n: usize| authorized(get(addr, &format!("/v1/outbox?wait={HELD_S}")), &token(n));
        let mut waiting = Vec::with_capacity(callers);
        for n in 0..callers {
            let mut asker = Asker::new(addr)?;
            asker.begin(&wait(n))?;
            waiting.push(asker);
        }
        thread::sleep(SETTLED);
        let begun = gateway.used();
        thread::sleep(seconds(args.seconds));
        let after = gateway.used();
        let each = after.bytes.saturating_sub(before.bytes) as f64 / callers.max(1) as f64;
        found.each.push(each);
        found.cpu.push((after.cpu - begun.cpu).as_secs_f64() / args.seconds);

        // From the message of who delegates to the result in the hands of who waits; the agent answers at once.
        let mut sender = Asker::new(addr)?;
        let mut waits = Waits::default();
        for (n, asker) in waiting.iter_mut().enumerate().take(RESULTS) {
            stop::check()?;
            let mut request = Request::at_once(addr, "/agents/echo");
            let request = authorized(request.number((round * RESULTS + n) as u64).to_vec(), &token(n));
            let sent = now();
            sender.begin(&request)?;
            let answer = asker.finish(sent)?;
            waits.add(answer.took);
            if find(&answer.body, br#""TASK_STATE_COMPLETED""#).is_none() {
                let text = String::from_utf8_lossy(&answer.body).escape_debug().to_string();
                return Err(format!("no result? {}: {text}", answer.status).into());
            }
            sender.finish(sent)?;
        }
        found.arrives.push(quantiles(&mut waits));
        let arrives = &found.arrives[round];
        say(&format!(
            "{callers} that wait, round {}: {:.1} KiB each, CPU {:.2} %, a result arrives after p50 {:.2} ms, p99 {:.2} ms",
            round + 1,
            each / 1024.0,
            found.cpu[round] * 100.0,
            arrives.p50,
            arrives.p99
        ));
    }
    Ok(found)
}

fn token(n: usize) -> String {
    format!("token-of-caller-number-{n:06}")
}
