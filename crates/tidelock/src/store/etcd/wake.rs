//! Waiting: each waiter watches only the key directly before its own. So a release wakes one waiter, not all of them.
//!
//! All watches of a client share one stream. If the stream ends, all waiters are woken; they retry and watch again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::store::WakeChannels;
use crate::store::etcd::api::{
    LeaseRequest, RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse, Watching,
};
use crate::store::etcd::connection::Connection;
use crate::store::etcd::errors::RequestError;
use crate::store::etcd::live_connection;

/// Filter `NOPUT`: the server reports deletions only.
const NO_PUTS: i32 = 0;

/// The watches of all waiters. A waiter's channel is its own key.
pub(crate) struct Watcher {
    connection: Arc<Connection>,
    signals: WakeChannels,
    state: Mutex<WatcherState>,
    /// For the stream's task. A strong reference there would keep the store alive.
    this: Weak<Self>,
}

#[derive(Default)]
struct WatcherState {
    /// By channel. Each has an entry in `channels`, and the reverse.
    watches: HashMap<Arc<str>, KeyWatch>,
    /// By watch id.
    channels: HashMap<i64, Arc<str>>,
    /// The last watch id. Each watch gets a new one. Otherwise a late response for a cancelled watch could match the
    /// next.
    last_id: i64,
    /// Sends requests to the stream. Present while a stream exists or is being opened.
    stream: Option<UnboundedSender<WatchRequest>>,
    /// The number of streams in a row that ended without a response. Determines the backoff.
    failures: u32,
}

struct KeyWatch {
    id: i64,
    key: Vec<u8>,
    /// A revision at which the key existed.
    seen: i64,
}

impl Watcher {
    pub(crate) fn new(
        connection: Arc<Connection>,
        signals: WakeChannels,
        this: &Weak<Self>,
    ) -> Self {
        Self {
            connection,
            signals,
            state: Mutex::default(),
            this: this.clone(),
        }
    }

    /// Wakes a waiter when `key` is deleted. The key existed at revision `seen`.
    ///
    /// The watch starts at the current revision. When it is established, we read the key once, in case it was deleted
    /// before. A watch that starts in the past would be slower: the server serves those only every 100 ms.
    pub(crate) fn follow(&self, channel: &str, key: &[u8], seen: i64) {
        let mut state = self.lock();
        if state
            .watches
            .get(channel)
            .is_some_and(|watch| watch.key == key)
        {
            return;
        }
        state.forget(channel);
        state.last_id += 1;
        let (id, channel) = (state.last_id, Arc::<str>::from(channel));
        state.channels.insert(id, Arc::clone(&channel));
        let key = key.to_vec();
        let create = WatchCreateRequest {
            key: key.clone(),
            filters: vec![NO_PUTS],
            watch_id: id,
        };
        state.watches.insert(channel, KeyWatch { id, key, seen });
        let stream = match &state.stream {
            Some(stream) => stream.clone(),
            None => self.begin(&mut state),
        };
        // An error means that the stream has just ended. Its end wakes all waiters.
        let _ = stream.send(WatchRequest {
            watching: Some(Watching::Create(create)),
        });
    }

    /// Cancels the watch of a channel that has no waiter any more.
    pub(crate) fn leave(&self, channel: &str) {
        let mut state = self.lock();
        // A waiter may have retried and returned to the channel meanwhile.
        if !self.signals.is_watched(channel) {
            state.forget(channel);
        }
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        *state = WatcherState::default();
    }

    /// Opens the stream in the background. Requests are buffered until it is open.
    fn begin(&self, state: &mut WatcherState) -> UnboundedSender<WatchRequest> {
        let (say, said) = unbounded_channel();
        state.stream = Some(say.clone());
        let (this, mine) = (self.this.clone(), say.downgrade());
        let (timers, connection) = (
            self.connection.endpoint.timers.clone(),
            Arc::clone(&self.connection),
        );
        self.connection.endpoint.background.spawn(async move {
            let end = listen(&this, &connection, said).await;
            drop(connection);
            let Some(watcher) = this.upgrade() else {
                return;
            };
            let Some(failures) = watcher.ended(&mine) else {
                return; // closed
            };
            tracing::debug!(error = %end, "the watch stream has ended; all waiters retry");
            // Each woken waiter retries and opens a new stream. Without a backoff, a stream that always fails would
            // cause a busy loop.
            timers.after(pause(failures)).await;
            watcher.signals.wake_each();
        });
        say
    }

    /// Removes a stream that has ended, with all its watches. Returns the number of failures in a row. `None`: the
    /// watcher was closed, or already has another stream.
    fn ended(&self, mine: &tokio::sync::mpsc::WeakUnboundedSender<WatchRequest>) -> Option<u32> {
        let mut state = self.lock();
        let current = mine.upgrade().zip(state.stream.as_ref());
        if !current.is_some_and(|(mine, current)| mine.same_channel(current)) {
            return None;
        }
        state.stream = None;
        state.watches.clear();
        state.channels.clear();
        state.failures += 1;
        Some(state.failures)
    }

    /// Handles one response of the stream.
    fn hear(&self, said: &WatchResponse) {
        let mut state = self.lock();
        state.failures = 0;
        if is_refused(said) {
            tracing::debug!(
                reason = said.cancel_reason,
                "a watch was refused; its waiter polls instead"
            );
        }
        if said.created && !said.canceled {
            self.look_back(&state, said);
        }
        let tells = !said.events.is_empty() || said.canceled;
        let Some(channel) = state.channels.get(&said.watch_id).cloned() else {
            return;
        };
        if !tells {
            return;
        }
        state.forget(&channel);
        drop(state);
        // Compacted revisions may include the deletion of the key, so we wake the waiter. After any other refusal the
        // waiter polls.
        if !said.events.is_empty() || said.compact_revision != 0 {
            self.signals.wake_one(&channel);
        }
    }

    /// Reads the key of a new watch, and wakes the waiter if it was deleted before the watch was established.
    fn look_back(&self, state: &WatcherState, said: &WatchResponse) {
        let now = said
            .header
            .as_ref()
            .map_or(i64::MAX, |header| header.revision);
        let Some(channel) = state.channels.get(&said.watch_id).cloned() else {
            return;
        };
        let Some(watch) = state.watches.get(&channel).filter(|watch| watch.seen < now) else {
            return; // the store has not changed since
        };
        let key = RangeRequest {
            key: watch.key.clone(),
            keys_only: true,
            ..RangeRequest::default()
        };
        let (connection, signals) = (Arc::clone(&self.connection), self.signals.clone());
        self.connection.endpoint.background.spawn(async move {
            let found = connection.range(key, connection.deadline()).await;
            // On an error we also wake the waiter: its own retry reports the error.
            if !found.is_ok_and(|found| !found.kvs.is_empty()) {
                signals.wake_one(&channel);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, WatcherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatcherState {
    /// Removes and cancels the watch of a channel, if there is one.
    fn forget(&mut self, channel: &str) {
        let Some(watch) = self.watches.remove(channel) else {
            return;
        };
        self.channels.remove(&watch.id);
        if let Some(stream) = &self.stream {
            // An error means that the stream has ended, and the watch with it.
            let _ = stream.send(WatchRequest {
                watching: Some(Watching::Cancel(LeaseRequest { id: watch.id })),
            });
        }
    }
}

/// Runs the stream: sends the requests and handles the responses. Returns why the stream ended.
async fn listen(
    watcher: &Weak<Watcher>,
    connection: &Arc<Connection>,
    said: UnboundedReceiver<WatchRequest>,
) -> RequestError {
    let conn = match connection.get(connection.deadline()).await {
        Ok(conn) => conn,
        Err(error) => return RequestError::NoWay(error),
    };
    let questions = stream::unfold(said, |mut said| async {
        let question = said.recv().await?;
        Some((question, said))
    });
    let mut answers = match conn.talk("/etcdserverpb.Watch/Watch", questions).await {
        Ok(answers) => answers,
        Err(failure) => return failure,
    };
    loop {
        match live_connection::next::<WatchResponse>(&mut answers).await {
            // The stream uses the token of its old connection. Requests have reconnected with a new login since, so we
            // end the stream, and the waiters open one on the new connection.
            Ok(Some(answer)) if is_refused(&answer) && !connection.uses(&conn) => {
                return RequestError::Unsent("the token has run out".to_owned());
            }
            Ok(Some(answer)) => match watcher.upgrade() {
                Some(watcher) => watcher.hear(&answer),
                None => return RequestError::Unsent("the client has gone".to_owned()),
            },
            Ok(None) => return RequestError::Broken("the server has ended the stream".to_owned()),
            Err(failure) => return failure,
        }
    }
}

/// Whether the server cancelled the watch for a reason other than compaction.
fn is_refused(said: &WatchResponse) -> bool {
    said.canceled && said.compact_revision == 0
}

/// Exponential backoff: 20 ms after the first failure, 1.28 s at most.
fn pause(failures: u32) -> Duration {
    Duration::from_millis(10 << failures.min(7))
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("watches", &self.lock().watches.len())
            .finish_non_exhaustive()
    }
}
