//! Starts what runs in the background of a client, and puts the client together.

use std::sync::Arc;

use futures_util::future::join;

use super::ClientBuilder;
use crate::client::Client;
use crate::engine::instruments::Instruments;
use crate::engine::job_runs::JobRuns;
use crate::engine::lease::process_info::ProcessInfo;
use crate::engine::lease::steward::Steward;
use crate::engine::local_queue::queue::LocalQueueSettings;
use crate::engine::local_queue::queued_store::QueuedStore;
use crate::engine::own_candidates::OwnCandidates;
use crate::engine::runtime::background;
use crate::engine::runtime::background::{Background, Stop};
use crate::engine::runtime::event::Flag;
use crate::engine::waiting_calls::WaitingCalls;
use crate::engine::{ClientInner, ClientSettings};
use crate::error::Result;
use crate::store::{Env, Store, Timers};
use crate::test_util::Plug;
use crate::types::OwnerMint;

/// What runs before a client has its store.
pub(super) struct ClientStart {
    pub(super) env: Env,
    stop: Stop,
}

impl ClientBuilder {
    /// Checks the settings, and starts what runs in the background.
    pub(super) fn start(&self) -> Result<ClientStart> {
        self.check()?;
        self.warn_of_a_short_lease();
        background::need_runtime()?;
        let (background, stop) = Background::start(self.clock)?;
        let timers = Timers::new(self.clock);
        // We start the timers first, because a store uses them while it opens.
        background.spawn(timers.clone().drive());
        let env = self.env(&timers, &background);
        Ok(ClientStart { env, stop })
    }

    /// The client of a store. `opened`: set when the store is open, if it is not open yet.
    pub(super) fn assemble(
        self,
        started: ClientStart,
        store: Store,
        opened: Option<Arc<Flag>>,
    ) -> Client {
        let ClientStart { env, stop } = started;
        let Env {
            timers, background, ..
        } = env;
        let notify = Arc::default();
        let queue_settings = LocalQueueSettings {
            hand_off: self.hand_off,
            timers: timers.clone(),
            patience: self.lease / 3,
            notify: Arc::clone(&notify),
        };
        let store = Plug::around(self.plug.as_ref(), store);
        let (home, plain) = QueuedStore::of_client(store, opened.clone(), &queue_settings);
        let mint = OwnerMint::new();
        let process_info = ProcessInfo::new(
            mint.client().clone(),
            self.program.clone(),
            self.os_user.clone(),
        );
        let steward = Steward {
            notify,
            process_info: Arc::clone(&process_info),
            home: Arc::clone(&home.store),
            queues: [Some(&home), plain.as_ref()]
                .into_iter()
                .flatten()
                .filter_map(|store| Some(Arc::clone(store.queues.as_ref()?) as _))
                .collect(),
            timers: timers.clone(),
            drift: self.drift,
            response_timeout: self.response_timeout,
            instruments: Arc::new(Instruments::new(&self.labels)),
        };
        let steward = steward.start(background, stop);
        let core = Arc::new(ClientInner {
            home,
            plain,
            settings: self.settings(),
            mint,
            timers,
            steward,
            process_info: Arc::clone(&process_info),
            waiting: Arc::default(),
            waiting_calls: WaitingCalls::default(),
            own_candidates: OwnCandidates::default(),
            job_runs: JobRuns::default(),
        });
        if self.publish_process_info {
            let record = crate::processes::publish(&core, self.program_version.clone());
            publish(&core, process_info, opened, record);
        }
        Client::new(core)
    }

    /// What the store gets from the client.
    fn env(&self, timers: &Timers, background: &Background) -> Env {
        Env {
            timers: timers.clone(),
            background: background.clone(),
            response_timeout: self.response_timeout,
            lease: self.lease,
            acknowledge_within: self.acknowledge_within,
            credentials: self.credentials.clone(),
            tls: self.tls.clone(),
            create: self.create,
        }
    }

    fn settings(&self) -> ClientSettings {
        ClientSettings {
            lease: self.lease,
            response_timeout: self.response_timeout,
            connect_within: self.connect_within,
            drift: self.drift,
            prefix: self.prefix.clone(),
            acknowledge: self.acknowledge,
            slow_acquire: self.slow_acquire,
        }
    }
}

/// Publishes who this process is, until the client is closed or dropped. `opened`: not before the store is open.
/// `record`: writes what this process holds and waits for.
fn publish(
    core: &Arc<ClientInner>,
    process_info: Arc<ProcessInfo>,
    opened: Option<Arc<Flag>>,
    record: impl Future<Output = ()> + Send + 'static,
) {
    let timers = core.timers.clone();
    let alive = Arc::downgrade(core);
    // We count the write as in flight before we check for `close`. `close` waits for what is counted and only then
    // removes the record. Otherwise a late write could leave the record of a client that is gone.
    let begin_write = move || {
        let core = alive.upgrade()?;
        let write = core.steward.owned_in_flight();
        (!core.steward.closed.is_set()).then(|| (write, Arc::clone(&core.home.store)))
    };
    let writes = process_info.publish(timers, begin_write);
    core.steward.background.spawn(async move {
        if let Some(opened) = opened {
            opened.happened().await;
        }
        join(writes, record).await;
    });
}
