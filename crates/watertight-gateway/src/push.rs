//! Push notifications: news of a task, posted to where its caller said.
//!
//! A hook is kept until the end of its task has arrived there: what is due follows from the task's state and from what
//! arrived last, so that a restart finds it. Each hook has a task of its own here, and one that is dead delays no other. It is
//! posted at least once, tried again with a growing pause for a day, and then given up on.
//!
//! Assumes that strangers choose the URLs: the address of each connection is judged when it is opened, redirects are not
//! followed, and what is kept is sealed under the instance key, since it holds secrets of the receiver. Leaves out chunks: who
//! wants those subscribes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use http::{HeaderName, HeaderValue, Uri, header};
use watertight_a2a::call::{Call, PushConfig};
use watertight_a2a::event::wrap;
use watertight_a2a::json::Json;
use watertight_a2a::jsonrpc::Method;
use watertight_engine::ids::TaskId;
use watertight_engine::record::TaskState;
use watertight_policy::time::{Span, Time};
use watertight_store::{Hook, HookChange};

use crate::agents::{self, Guard};
use crate::config::{InstanceKey, Net};
use crate::driver::shared::Shared;
use crate::handle::Handle;
use crate::http::task_json;
use crate::hub::TaskView;

/// Hooks of one task, and of all.
pub(crate) const OF_ONE: usize = 8;
const OF_ALL: usize = 10_000;

/// How long one post may take.
const LIMIT: Duration = Duration::from_secs(10);
/// Between two tries, the first time and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// After so long it is given up on.
const GIVE_UP: Span = Span::from_secs(86_400);

/// The longest secret.
const MAX_SECRET: usize = 4_096;

/// Whether news is pushed, and where it may go beside the public internet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// It is.
    pub enabled: bool,
    /// Also to these.
    pub allow: Vec<Net>,
}

pub(crate) struct Pushes {
    settings: RwLock<Settings>,
    key: InstanceKey,
    hooks: Mutex<BTreeMap<(TaskId, String), One>>,
    /// There is one: who has none pays nothing for looking.
    any: AtomicBool,
}

#[derive(Clone)]
struct One {
    target: Target,
    told: Option<(u32, TaskState)>,
    running: bool,
    /// Something may have happened since its runner looked.
    stirred: bool,
}

/// Where it goes.
#[derive(Clone)]
pub(crate) struct Target {
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// As its caller gave it, with the ids that it has here.
    raw: Json,
}

/// Why there is no hook.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// This member of its configuration cannot be.
    Field(&'static str, String),
    /// There are too many.
    TooMany,
    /// It cannot be written.
    Store,
}

impl Target {
    /// Judges a configuration.
    pub(crate) fn of(config: &PushConfig, settings: &Settings) -> Result<Target, Wrong> {
        let wrong = |field, why: &str| Wrong::Field(field, why.to_owned());
        let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let url = settings.guard().url(&config.url).map_err(|why| Wrong::Field("url", why))?;
        let secret =
            |field, text: &str| match text.len() <= MAX_SECRET && text.bytes().all(|b| matches!(b, b' '..=b'~')) {
                true => HeaderValue::from_str(text).map_err(|_| wrong(field, "cannot be written in a header")),
                false => Err(wrong(field, "must be at most 4096 printable ASCII characters")),
            };
        let mut headers = Vec::new();
        if let Some(token) = &config.token {
            headers.push((HeaderName::from_static("x-a2a-notification-token"), secret("token", token)?));
        }
        if let Some((scheme, credentials)) = &config.authentication {
            if scheme.is_empty() || !plain(scheme) {
                return Err(wrong("authentication.scheme", "is no name of a scheme"));
            }
            let value =
                [Some(scheme.as_str()), credentials.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
            headers.push((header::AUTHORIZATION, secret("authentication.credentials", &value)?));
        }
        Ok(Target { url, headers, raw: config.raw.clone() })
    }
}

impl Settings {
    fn guard(&self) -> Arc<Guard> {
        Arc::new(Guard::of_news(self.allow.clone()))
    }
}

impl Pushes {
    pub(crate) fn new(key: InstanceKey) -> Pushes {
        Pushes { settings: RwLock::default(), key, hooks: Mutex::default(), any: AtomicBool::new(false) }
    }

    /// How many there are whose end has not arrived yet.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(TaskId, String), One>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, settings: Settings) {
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// What the store has. One that cannot be opened any more was sealed under another key, and goes nowhere.
    pub(crate) fn load(&self, hooks: Vec<Hook>) {
        let mut known = self.lock();
        for hook in hooks {
            let opened = self.open(&hook).and_then(|raw| {
                let Ok(Call::CreatePush(config)) = Call::parse(Method::CreateTaskPushNotificationConfig, Some(raw))
                else {
                    return None;
                };
                // What was allowed when it was made is judged again at the connection.
                Target::of(&config, &Settings { enabled: true, allow: everything() }).ok()
            });
            match opened {
                Some(target) => {
                    let one = One { target, told: hook.told, running: false, stirred: false };
                    known.insert((hook.task, hook.id), one);
                }
                None => tracing::warn!(task = %hook.task, "a push configuration cannot be read with this instance key"),
            }
        }
        self.any.store(!known.is_empty(), Ordering::Relaxed);
    }

    /// All of one task, as they were given.
    pub(crate) fn of(&self, task: TaskId) -> Vec<(String, Json)> {
        let known = self.lock();
        let of = known.range((task, String::new())..).take_while(|((of, _), _)| *of == task);
        of.map(|((_, id), one)| (id.clone(), one.target.raw.clone())).collect()
    }

    fn sealer(key: &[u8; 32]) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM, key).ok()
    }

    fn seal(&self, task: TaskId, id: &str, raw: &Json) -> Option<Vec<u8>> {
        let mut sealed = raw.as_bytes().to_vec();
        let key = Pushes::sealer(&self.key.mac("seal", b"push"))?;
        let nonce = key.seal_in_place_append_tag(Aad::from(place(task, id)), &mut sealed).ok()?;
        Some([&nonce.as_ref()[..], &sealed[..]].concat())
    }

    fn open(&self, hook: &Hook) -> Option<Json> {
        let (nonce, sealed) = hook.sealed.split_first_chunk::<NONCE_LEN>()?;
        let opened = self.key.macs("seal", b"push").find_map(|key| {
            let mut bytes = sealed.to_vec();
            let aad = Aad::from(place(hook.task, &hook.id));
            let open = Pushes::sealer(&key)?.open_in_place(Nonce::from(nonce), aad, &mut bytes).ok()?.to_vec();
            Some(open)
        });
        Some(Json::assume(opened?))
    }
}

/// What a sealed one belongs to: it cannot be moved to another task.
fn place(task: TaskId, id: &str) -> Vec<u8> {
    [&task.0.to_be_bytes()[..], id.as_bytes()].concat()
}

fn everything() -> Vec<Net> {
    ["0.0.0.0/0", "::/0"].into_iter().filter_map(|net| net.parse().ok()).collect()
}

/// Keeps a hook, durably, and begins to serve it. Waits for the disk: not for an async thread.
pub(crate) fn keep(shared: &Arc<Shared>, task: TaskId, id: &str, target: Target) -> Result<(), Wrong> {
    let pushes = &shared.pushes;
    {
        let known = pushes.lock();
        let is_new = !known.contains_key(&(task, id.to_owned()));
        let of_one = known.range((task, String::new())..).take_while(|((of, _), _)| *of == task).count();
        if is_new && (of_one >= OF_ONE || known.len() >= OF_ALL) {
            return Err(Wrong::TooMany);
        }
    }
    let sealed = pushes.seal(task, id, &target.raw).ok_or(Wrong::Store)?;
    let hook = Hook { task, id: id.to_owned(), sealed, told: None };
    shared.store.change_hook(HookChange::Put(hook)).map_err(|_| Wrong::Store)?;
    let mut known = pushes.lock();
    let running = known.get(&(task, id.to_owned())).is_some_and(|one| one.running);
    known.insert((task, id.to_owned()), One { target, told: None, running, stirred: false });
    pushes.any.store(true, Ordering::Relaxed);
    drop(known);
    stir(shared, task);
    Ok(())
}

/// Drops a hook. `false`: there is none. Waits for the disk.
pub(crate) fn drop_hook(shared: &Shared, task: TaskId, id: &str) -> Result<bool, Wrong> {
    let was = shared.pushes.lock().contains_key(&(task, id.to_owned()));
    if was {
        shared.store.change_hook(HookChange::Drop(task, id.to_owned())).map_err(|_| Wrong::Store)?;
        shared.pushes.lock().remove(&(task, id.to_owned()));
    }
    Ok(was)
}

/// Something may have happened to this task.
pub(crate) fn stir(shared: &Arc<Shared>, task: TaskId) {
    if !shared.pushes.any.load(Ordering::Relaxed) {
        return;
    }
    let mut known = shared.pushes.lock();
    for ((of, id), one) in known.range_mut((task, String::new())..) {
        if *of != task {
            return;
        }
        one.stirred = true;
        if !std::mem::replace(&mut one.running, true) {
            let runner = Runner { shared: shared.clone(), at: (task, id.clone()) };
            shared.runtime.spawn(async move { runner.run().await });
        }
    }
}

/// All of them, after a start.
pub(crate) fn stir_all(shared: &Arc<Shared>) {
    let tasks: Vec<TaskId> = shared.pushes.lock().keys().map(|(task, _)| *task).collect();
    tasks.into_iter().for_each(|task| stir(shared, task));
}

/// Serves one hook until there is nothing to tell.
struct Runner {
    shared: Arc<Shared>,
    at: (TaskId, String),
}

impl Runner {
    async fn run(&self) {
        let (mut pause, mut since) = (AGAIN.0, None::<Time>);
        loop {
            let Some(one) = self.take() else { return };
            let Some(view) = self.news(&one).await else {
                if self.rests() {
                    return;
                }
                continue;
            };
            let now = self.shared.clock.now();
            match self.post(&one, &view).await {
                Ok(()) => {
                    (pause, since) = (AGAIN.0, None);
                    self.arrived(&view).await;
                }
                Err(why) if now.since(*since.get_or_insert(now)) > GIVE_UP => {
                    tracing::warn!(task = %self.at.0, why, "a push notification is given up on");
                    return self.forget().await;
                }
                Err(why) => {
                    tracing::info!(task = %self.at.0, why, again_ms = pause.as_millis(), "a push notification did not arrive");
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.shared.gone() => return,
                    }
                    pause = (pause * 2).min(AGAIN.1);
                }
            }
        }
    }

    /// The hook as it is; what stirred it is looked at now.
    fn take(&self) -> Option<One> {
        let mut known = self.shared.pushes.lock();
        let one = known.get_mut(&self.at)?;
        one.stirred = false;
        Some(one.clone())
    }

    /// `false`: something happened meanwhile.
    fn rests(&self) -> bool {
        let mut known = self.shared.pushes.lock();
        let Some(one) = known.get_mut(&self.at) else { return true };
        one.running = one.stirred;
        !one.running
    }

    /// The task, if its last turn has ended, and that has not arrived.
    async fn news(&self, one: &One) -> Option<TaskView> {
        let view = Handle::new(self.shared.clone()).any_task(self.at.0).await?;
        let settled = view.state.is_terminal() || view.state.is_interrupted();
        (settled && one.told != Some((view.turn, view.state))).then_some(view)
    }

    async fn post(&self, one: &One, view: &TaskView) -> Result<(), String> {
        let settings = self.shared.pushes.settings();
        if !settings.enabled {
            return Err("nothing is pushed: push.enabled is off".to_owned());
        }
        let body = wrap("task", &task_json(view));
        let sent =
            agents::post_to(&one.target.url, body.into(), &one.target.headers, LIMIT, Some(settings.guard())).await?;
        match sent {
            200..=299 => Ok(()),
            300..=399 => Err(format!("it answered {sent}, and redirects are not followed")),
            _ => Err(format!("it answered {sent}")),
        }
    }

    async fn arrived(&self, view: &TaskView) {
        if view.state.is_terminal() {
            return self.forget().await;
        }
        let told = Some((view.turn, view.state));
        let raw = {
            let mut known = self.shared.pushes.lock();
            let Some(one) = known.get_mut(&self.at) else { return };
            one.told = told;
            one.target.raw.clone()
        };
        let Some(sealed) = self.shared.pushes.seal(self.at.0, &self.at.1, &raw) else { return };
        self.change(HookChange::Put(Hook { task: self.at.0, id: self.at.1.clone(), sealed, told })).await;
    }

    async fn forget(&self) {
        self.change(HookChange::Drop(self.at.0, self.at.1.clone())).await;
        self.shared.pushes.lock().remove(&self.at);
    }

    /// What cannot be written is told again after a restart.
    async fn change(&self, change: HookChange) {
        let store = self.shared.store.clone();
        let changed = tokio::task::spawn_blocking(move || store.change_hook(change)).await;
        if !matches!(changed, Ok(Ok(()))) {
            tracing::warn!(task = %self.at.0, "that a push notification arrived could not be written down");
        }
    }
}
