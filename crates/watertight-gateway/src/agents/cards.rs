//! The agent's card: fetched in the background by one task, kept while the agent does not answer, and what follows from
//! it: where to send, how, and under which tenant.
//!
//! Nobody waits for a card but the first send, and that one not long. A card is a wish, not an order: an interface at
//! another scheme, host or port than the configured one is not used, since the credentials are for that one alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{HeaderValue, Uri, header};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};
use watertight_a2a::card::{self, CardView, MAX_CARD_BYTES};
use watertight_a2a::json::Json;
use watertight_a2a::text;
use watertight_engine::record::Delivery;
use watertight_policy::reason::Reason;

use super::ask::{self, Answer, Asker};
use super::endpoints::Endpoints;
use super::fault::Failure;
use super::{Agent, AgentConfig};

/// The longest that a fetch may take.
pub(super) const FETCH_LIMIT: Duration = Duration::from_secs(10);
/// How long a card counts as fresh: as it says, within these, and if it says nothing.
const MIN_AGE: Duration = Duration::from_secs(30);
const MAX_AGE: Duration = Duration::from_secs(3_600);
const USUAL_AGE: Duration = Duration::from_secs(300);
/// When to look again where there was no card.
const ABSENT_AGE: Duration = Duration::from_secs(60);
/// The longest pause between two failed fetches; the first is a second, and it doubles.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Between two fetches at the least, however great the doubt.
const LEAST_PAUSE: Duration = Duration::from_secs(1);
/// The longest that a send waits for a newer card where nobody is at the places that the last one names.
const NEWER_LIMIT: Duration = Duration::from_secs(2);

/// A card, as it was last seen.
#[derive(Clone, Debug)]
pub struct Card {
    /// As the agent published it.
    pub raw: Json,
    /// What it says.
    pub view: CardView,
    /// Where it is published.
    pub source: Uri,
    /// When it was last seen, or last said to be the same.
    pub fetched: Instant,
    /// The last fetch failed: it may say something else by now.
    pub stale: bool,
    /// Its interfaces are at another scheme, host or port than the configured one, which is used instead.
    pub elsewhere: bool,
}

#[derive(Debug)]
pub(super) struct Cards {
    state: Mutex<State>,
    /// Fetches that have ended, one way or the other.
    looked: watch::Sender<u64>,
    doubt: Arc<Notify>,
    /// The last fetch failed.
    missing: AtomicBool,
    born: Instant,
}

#[derive(Debug)]
struct State {
    card: Option<Arc<Card>>,
    etag: Option<HeaderValue>,
    endpoints: Arc<Endpoints>,
    failures: u32,
    /// When the last fetch ended.
    since: Option<Instant>,
}

impl Cards {
    pub(super) fn new(config: &AgentConfig) -> Cards {
        let endpoints = Arc::new(Endpoints::of(None, config).0);
        let state = State { card: None, etag: None, endpoints, failures: 0, since: None };
        Cards {
            state: Mutex::new(state),
            looked: watch::Sender::new(0),
            doubt: Arc::default(),
            missing: AtomicBool::new(false),
            born: Instant::now(),
        }
    }

    pub(super) fn card(&self) -> Option<Arc<Card>> {
        self.lock().card.clone()
    }

    pub(super) fn endpoints(&self) -> Arc<Endpoints> {
        self.lock().endpoints.clone()
    }

    /// The endpoints, after a short wait for the first card.
    pub(super) async fn settled_endpoints(&self, wait: Duration) -> Arc<Endpoints> {
        if *self.looked.borrow() == 0 {
            let mut looked = self.looked.subscribe();
            let _ = timeout_at(self.born + wait, looked.wait_for(|looked| *looked > 0)).await;
        }
        self.endpoints()
    }

    /// Nobody is where these lead: the endpoints of a newer card, if one comes soon.
    pub(super) async fn newer_than(&self, old: &Arc<Endpoints>) -> Option<Arc<Endpoints>> {
        let newer = || Some(self.endpoints()).filter(|endpoints| !Arc::ptr_eq(endpoints, old));
        let mut looked = self.looked.subscribe();
        let before = *looked.borrow_and_update();
        let since = self.lock().since;
        if let Some(newer) = newer() {
            return Some(newer);
        }
        // What was said a moment ago is not asked for again, and the first card is being asked for already.
        if since.is_none_or(|since| since.elapsed() >= LEAST_PAUSE) {
            if since.is_some() {
                self.doubt();
            }
            let _ = timeout(NEWER_LIMIT, looked.wait_for(|looked| *looked != before)).await;
        }
        newer()
    }

    /// The agent behaves differently from what its card says: look again soon.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// The agent answers, and its card did not: it may do so by now.
    pub(super) fn missed(&self) {
        if self.missing.load(Ordering::Relaxed) {
            self.doubt();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches once, and says when to do it again.
    async fn refresh(&self, asker: &Asker) -> Duration {
        let fetched = timeout(FETCH_LIMIT, self.fetch(asker)).await.unwrap_or_else(|_| {
            let what = format!("no card within {} s", FETCH_LIMIT.as_secs());
            Err(Failure::new(Reason::AgentNoAnswer, Delivery::NotSent, what))
        });
        let mut state = self.lock();
        let pause = match fetched {
            Ok(Fetched::Same(age)) => {
                state.failures = 0;
                if let Some(card) = &mut state.card {
                    let card = Arc::make_mut(card);
                    (card.stale, card.fetched) = (false, Instant::now());
                }
                age
            }
            Ok(Fetched::New { card, etag, age }) => {
                let changed = state.card.as_ref().is_none_or(|old| old.raw != card.raw);
                if changed {
                    // Not what it says of itself: logs are read by models too.
                    tracing::info!(agent = %asker.config.name, streaming = card.view.streaming, "the agent's card is new");
                }
                if changed && card.elsewhere {
                    tracing::warn!(agent = %asker.config.name, "the card names another host; the configured URL is used");
                }
                if changed {
                    let (mut endpoints, _) = Endpoints::of(Some(&card.view), &asker.config);
                    endpoints.former = state.card.is_some().then(|| state.endpoints.without_former());
                    state.endpoints = Arc::new(endpoints);
                }
                let endpoints = state.endpoints.clone();
                *state = State { card: Some(card), etag, endpoints, failures: 0, since: None };
                age
            }
            Ok(Fetched::Absent) => {
                state.failures = 0;
                state.age();
                ABSENT_AGE
            }
            Err(failure) => {
                let pause = Duration::from_secs(1 << state.failures.min(6)).min(MAX_PAUSE);
                state.failures = state.failures.saturating_add(1);
                state.age();
                let what = &failure.detail.what;
                tracing::debug!(agent = %asker.config.name, reason = %failure.reason, %what, "no card");
                pause
            }
        };
        state.since = Some(Instant::now());
        self.missing.store(state.failures > 0, Ordering::Relaxed);
        drop(state);
        self.looked.send_modify(|looked| *looked += 1);
        pause
    }

    async fn fetch(&self, asker: &Asker) -> Result<Fetched, Failure> {
        let (etag, known) = {
            let state = self.lock();
            (state.etag.clone(), state.card.as_ref().map(|card| card.source.clone()))
        };
        // Where it was the last time; if it is there no more, where else it may be.
        let others = places(&asker.config).into_iter().filter(|place| Some(place) != known.as_ref());
        for place in known.clone().into_iter().chain(others) {
            let etag = etag.as_ref().filter(|_| known.as_ref() == Some(&place));
            match look(asker, &place, etag).await? {
                Found::Nothing { .. } => {}
                Found::Same { age } => return Ok(Fetched::Same(age)),
                Found::Card { raw, view, etag, age } => {
                    let (_, elsewhere) = Endpoints::of(Some(&view), &asker.config);
                    let (source, fetched) = (place, Instant::now());
                    let card = Arc::new(Card { raw, view: *view, source, fetched, stale: false, elsewhere });
                    return Ok(Fetched::New { card, etag, age });
                }
            }
        }
        Ok(Fetched::Absent)
    }
}

impl State {
    /// Nobody can say whether the card is still true.
    fn age(&mut self) {
        if let Some(card) = self.card.as_mut().filter(|card| !card.stale) {
            Arc::make_mut(card).stale = true;
        }
    }
}

enum Fetched {
    Same(Duration),
    New { card: Arc<Card>, etag: Option<HeaderValue>, age: Duration },
    Absent,
}

/// What is at one place.
pub(super) enum Found {
    /// No card: 404, 405 or 410.
    Nothing {
        status: u16,
    },
    /// The one whose tag was given.
    Same {
        age: Duration,
    },
    Card {
        raw: Json,
        view: Box<CardView>,
        etag: Option<HeaderValue>,
        age: Duration,
    },
}

/// Looks for a card at a place. An error: nobody can say whether there is one.
pub(super) async fn look(asker: &Asker, place: &Uri, etag: Option<&HeaderValue>) -> Result<Found, Failure> {
    let conditional = etag.map(|etag| (header::IF_NONE_MATCH, etag.clone()));
    let mut answer = asker.get(place, conditional.as_slice()).await?;
    let age = max_age(&answer);
    match answer.head.status {
        304 if etag.is_some() => return Ok(Found::Same { age }),
        status @ (404 | 405 | 410) => return Ok(Found::Nothing { status }),
        200..=299 if answer.head.encoding().is_some() => return Err(ask::encoded(&answer.head)),
        200..=299 => {}
        status => {
            let what = format!("the card was refused (HTTP {status})");
            let mut failure = Failure::new(Reason::AgentHttpError, Delivery::NotSent, what);
            failure.detail.status = Some(status);
            return Err(failure);
        }
    }
    let body = answer.body.whole(MAX_CARD_BYTES).await.map_err(|stop| Failure::of_body(&stop, &answer.head))?;
    let malformed = |error: card::CardError| {
        let mut failure = Failure::new(Reason::AgentMalformed, Delivery::Delivered, error.to_string());
        failure.detail.status = Some(answer.head.status);
        failure.detail.content_type = answer.head.content_type().map(|kind| text::clean(kind, 100));
        failure
    };
    let view = CardView::read(&body, &card::CARD_LIMITS).map_err(malformed)?;
    // Hosts with several agents have one root, and its card may be another one's.
    if is_guess(&asker.config, place) && !concerns(&view, asker.config.url.path()) {
        tracing::debug!(agent = %asker.config.name, place = %text::clean(&place.to_string(), 200), "another agent's card");
        return Ok(Found::Nothing { status: answer.head.status });
    }
    let raw = card::keep(body).map_err(malformed)?;
    let etag = answer.head.headers.get(header::ETAG).cloned();
    Ok(Found::Card { raw, view: Box::new(view), etag, age })
}

/// Keeps the card fresh until the agent is let go of.
pub(super) async fn keep(agent: Weak<Agent>) {
    loop {
        let Some(strong) = agent.upgrade() else { return };
        let pause = strong.cards.refresh(&strong.asker).await;
        let doubt = strong.cards.doubt.clone();
        // However great the doubt, once a second is enough, and less often where it keeps failing.
        let failures = strong.cards.lock().failures;
        let least = if failures > 0 { pause / 4 } else { Duration::ZERO };
        let least = least.max(LEAST_PAUSE).min(pause);
        drop(strong);
        tokio::time::sleep(least).await;
        let _ = timeout(pause - least, doubt.notified()).await;
    }
}

/// Where an agent's card may be.
pub(super) fn places(config: &AgentConfig) -> Vec<Uri> {
    config.card.clone().map_or_else(|| well_known(&config.url), |place| vec![place])
}

/// Below the URL, and at the root of its host; with the URL's query, which may hold what opens the door.
fn well_known(url: &Uri) -> Vec<Uri> {
    const SUFFIX: &str = "/.well-known/agent-card.json";
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else { return Vec::new() };
    let below = url.path().trim_end_matches('/');
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut places = vec![format!("{scheme}://{authority}{below}{SUFFIX}{query}")];
    if !below.is_empty() {
        places.push(format!("{scheme}://{authority}{SUFFIX}{query}"));
    }
    places.iter().filter_map(|place| place.parse().ok()).collect()
}

/// Whether a place is the root of a host, where nobody said that this agent's card is.
fn is_guess(config: &AgentConfig, place: &Uri) -> bool {
    config.card.is_none() && well_known(&config.url).get(1) == Some(place)
}

/// Whether a card has an interface at a path or below it. Hosts are not looked at: a card may know its own by another name.
fn concerns(view: &CardView, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    view.interfaces.iter().chain(&view.v03_interfaces).any(|interface| {
        let url = interface.url.parse::<Uri>().ok();
        let rest = url.as_ref().and_then(|url| url.path().strip_prefix(path));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn max_age(answer: &Answer) -> Duration {
    let cache = answer.head.headers.get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    let Some(cache) = cache else { return USUAL_AGE };
    let cache = cache.to_ascii_lowercase();
    let words = || cache.split(',').map(str::trim);
    if words().any(|word| matches!(word, "no-store" | "no-cache")) {
        return MIN_AGE;
    }
    let age = words().find_map(|word| word.strip_prefix("max-age=")?.trim_matches('"').parse().ok());
    age.map_or(USUAL_AGE, Duration::from_secs).clamp(MIN_AGE, MAX_AGE)
}
