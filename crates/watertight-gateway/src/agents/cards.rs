//! The agent's card: fetched in the background by one task, kept while the agent does not answer, and what follows from
//! it: where to send, how, and under which tenant.
//!
//! Nobody waits for a card but the first send, and that one not long. A card is a wish, not an order: an interface at
//! another scheme, host or port than the configured one is not used, since the credentials are for that one alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{HeaderValue, Uri, header};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout, timeout_at};
use watertight_a2a::card::{self, CardView, MAX_CARD_BYTES};
use watertight_a2a::json::Json;
use watertight_engine::record::Delivery;
use watertight_policy::reason::Reason;

use super::ask::{self, Answer, Asker};
use super::endpoints::Endpoints;
use super::fault::Failure;
use super::{Agent, AgentConfig};

/// The longest that a fetch may take.
const FETCH_LIMIT: Duration = Duration::from_secs(10);
/// How long a card counts as fresh: as it says, within these, and if it says nothing.
const MIN_AGE: Duration = Duration::from_secs(30);
const MAX_AGE: Duration = Duration::from_secs(3_600);
const USUAL_AGE: Duration = Duration::from_secs(300);
/// When to look again where there was no card.
const ABSENT_AGE: Duration = Duration::from_secs(60);
/// The longest pause between two failed fetches; the first is a second, and it doubles.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// A card, as it was last seen.
#[derive(Clone, Debug)]
pub struct Card {
    /// As the agent published it.
    pub raw: Json,
    /// What it says.
    pub view: CardView,
    /// The last fetch failed: it may say something else by now.
    pub stale: bool,
    /// Its interfaces are at another scheme, host or port than the configured one, which is used instead.
    pub elsewhere: bool,
}

#[derive(Debug)]
pub(super) struct Cards {
    state: Mutex<State>,
    /// A first fetch has ended, one way or the other.
    looked: watch::Sender<bool>,
    doubt: Arc<Notify>,
    born: Instant,
}

#[derive(Debug)]
struct State {
    card: Option<Arc<Card>>,
    etag: Option<HeaderValue>,
    endpoints: Arc<Endpoints>,
    /// Where the card was found the last time.
    place: Option<Uri>,
    failures: u32,
}

impl Cards {
    pub(super) fn new(config: &AgentConfig) -> Cards {
        let endpoints = Arc::new(Endpoints::of(None, config).0);
        let state = State { card: None, etag: None, endpoints, place: None, failures: 0 };
        Cards {
            state: Mutex::new(state),
            looked: watch::Sender::new(false),
            doubt: Arc::default(),
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
        let mut looked = self.looked.subscribe();
        let _ = timeout_at(self.born + wait, looked.wait_for(|looked| *looked)).await;
        self.endpoints()
    }

    /// The agent behaves differently from what its card says: look again soon.
    pub(super) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// The agent answers, and its card did not: it may do so by now.
    pub(super) fn missed(&self) {
        if self.lock().failures > 0 {
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
                state.mark(false);
                age
            }
            Ok(Fetched::New { card, etag, place, age }) => {
                let changed = state.card.as_ref().is_none_or(|old| old.raw != card.raw);
                if changed {
                    let (name, streaming) = (&card.view.name, card.view.streaming);
                    tracing::info!(agent = %asker.config.name, card = %name, streaming, "the agent's card is new");
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
                *state = State { card: Some(card), etag, endpoints, place: Some(place), failures: 0 };
                age
            }
            Ok(Fetched::Absent) => {
                state.failures = 0;
                state.mark(true);
                ABSENT_AGE
            }
            Err(failure) => {
                let pause = Duration::from_secs(1 << state.failures.min(6)).min(MAX_PAUSE);
                state.failures = state.failures.saturating_add(1);
                state.mark(true);
                let what = &failure.detail.what;
                tracing::debug!(agent = %asker.config.name, reason = %failure.reason, %what, "no card");
                pause
            }
        };
        drop(state);
        self.looked.send_replace(true);
        pause
    }

    async fn fetch(&self, asker: &Asker) -> Result<Fetched, Failure> {
        let (etag, known) = {
            let state = self.lock();
            (state.etag.clone(), state.place.clone())
        };
        let places = match (&known, &asker.config.card) {
            (Some(place), _) => vec![place.clone()],
            (None, Some(place)) => vec![place.clone()],
            (None, None) => well_known(&asker.config.url),
        };
        for place in places {
            let conditional = etag.clone().filter(|_| known.is_some()).map(|etag| (header::IF_NONE_MATCH, etag));
            let mut answer = asker.get(&place, conditional.as_slice()).await?;
            let age = max_age(&answer);
            match answer.head.status {
                304 if known.is_some() => return Ok(Fetched::Same(age)),
                404 | 405 | 410 => continue,
                200..=299 if answer.head.encoding().is_some() => return Err(ask::encoded(&answer.head)),
                200..=299 => {}
                status => {
                    let what = format!("the card was refused (HTTP {status})");
                    return Err(Failure::new(Reason::AgentHttpError, Delivery::NotSent, what));
                }
            }
            let body = answer.body.whole(MAX_CARD_BYTES).await.map_err(|stop| Failure::of_body(&stop, &answer.head))?;
            let malformed =
                |error: card::CardError| Failure::new(Reason::AgentMalformed, Delivery::Delivered, error.to_string());
            let view = CardView::read(&body, &card::CARD_LIMITS).map_err(malformed)?;
            let raw = card::keep(body).map_err(malformed)?;
            let (_, elsewhere) = Endpoints::of(Some(&view), &asker.config);
            let card = Arc::new(Card { raw, view, stale: false, elsewhere });
            let etag = answer.head.headers.get(header::ETAG).cloned();
            return Ok(Fetched::New { card, etag, place, age });
        }
        Ok(Fetched::Absent)
    }
}

impl State {
    fn mark(&mut self, stale: bool) {
        if let Some(card) = &mut self.card
            && card.stale != stale
        {
            Arc::make_mut(card).stale = stale;
        }
    }
}

enum Fetched {
    Same(Duration),
    New { card: Arc<Card>, etag: Option<HeaderValue>, place: Uri, age: Duration },
    Absent,
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
        let least = least.max(Duration::from_secs(1)).min(pause);
        drop(strong);
        tokio::time::sleep(least).await;
        let _ = timeout(pause - least, doubt.notified()).await;
    }
}

/// Below the URL, and at the root of its host.
fn well_known(url: &Uri) -> Vec<Uri> {
    const SUFFIX: &str = "/.well-known/agent-card.json";
    let (Some(scheme), Some(authority)) = (url.scheme_str(), url.authority()) else { return Vec::new() };
    let below = url.path().trim_end_matches('/');
    let mut places = vec![format!("{scheme}://{authority}{below}{SUFFIX}")];
    if !below.is_empty() {
        places.push(format!("{scheme}://{authority}{SUFFIX}"));
    }
    places.iter().filter_map(|place| place.parse().ok()).collect()
}

fn max_age(answer: &Answer) -> Duration {
    let cache = answer.head.headers.get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    let Some(cache) = cache else { return USUAL_AGE };
    let cache = cache.to_ascii_lowercase();
    let mut words = cache.split(',').map(str::trim);
    let age = words.find_map(|word| word.strip_prefix("max-age=")?.trim_matches('"').parse().ok());
    age.map_or(USUAL_AGE, Duration::from_secs).clamp(MIN_AGE, MAX_AGE)
}
