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
    link: Arc<Connection>,
    signals: WakeChannels,
    books: Mutex<WatcherState>,
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
    pub(crate) fn new(link: Arc<Connection>, signals: WakeChannels, this: &Weak<Self>) -> Self {
        Self {
            link,
            signals,
            books: Mutex::default(),
            this: this.clone(),
        }
    }

    /// Wakes a waiter when `key` is deleted. The key existed at revision `seen`.
    ///
    /// The watch starts at the current revision. When it is established, we read the key once, in case it was deleted
    /// before. A watch that starts in the past would be slower: the server serves those only every 100 ms.
    pub(crate) fn follow(&self, channel: &str, key: &[u8], seen: i64) {
        let mut books = self.lock();
        if books
            .watches
            .get(channel)
            .is_some_and(|watch| watch.key == key)
        {
            return;
        }
        books.forget(channel);
        books.last_id += 1;
        let (id, channel) = (books.last_id, Arc::<str>::from(channel));
        books.channels.insert(id, Arc::clone(&channel));
        let key = key.to_vec();
        let create = WatchCreateRequest {
            key: key.clone(),
            filters: vec![NO_PUTS],
            watch_id: id,
        };
        books.watches.insert(channel, KeyWatch { id, key, seen });
        let stream = match &books.stream {
            Some(stream) => stream.clone(),
            None => self.begin(&mut books),
        };
        // An error means that the stream has just ended. Its end wakes all waiters.
        let _ = stream.send(WatchRequest {
            watching: Some(Watching::Create(create)),
        });
    }

    /// Cancels the watch of a channel that has no waiter any more.
    pub(crate) fn leave(&self, channel: &str) {
        let mut books = self.lock();
        // A waiter may have retried and returned to the channel meanwhile.
        if !self.signals.is_watched(channel) {
            books.forget(channel);
        }
    }

    pub(crate) fn close(&self) {
        let mut books = self.lock();
        *books = WatcherState::default();
    }

    /// Opens the stream in the background. Requests are buffered until it is open.
    fn begin(&self, books: &mut WatcherState) -> UnboundedSender<WatchRequest> {
        let (say, said) = unbounded_channel();
        books.stream = Some(say.clone());
        let (this, mine) = (self.this.clone(), say.downgrade());
        let (timers, link) = (self.link.gate.timers.clone(), Arc::clone(&self.link));
        self.link.gate.background.spawn(async move {
            let end = listen(&this, &link, said).await;
            drop(link);
            let Some(watcher) = this.upgrade() else {
                return;
            };
            let Some(failures) = watcher.ended(&mine) else {
                return; // closed
            };
            tracing::debug!(error = %end, "the watches have ended; all that wait ask again");
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
        let mut books = self.lock();
        let current = mine.upgrade().zip(books.stream.as_ref());
        if !current.is_some_and(|(mine, current)| mine.same_channel(current)) {
            return None;
        }
        books.stream = None;
        books.watches.clear();
        books.channels.clear();
        books.failures += 1;
        Some(books.failures)
    }

    /// Handles one response of the stream.
    fn hear(&self, said: &WatchResponse) {
        let mut books = self.lock();
        books.failures = 0;
        if is_refused(said) {
            tracing::debug!(
                reason = said.cancel_reason,
                "a watch was refused; its waiter looks by itself"
            );
        }
        if said.created && !said.canceled {
            self.look_back(&books, said);
        }
        let tells = !said.events.is_empty() || said.canceled;
        let Some(channel) = books.channels.get(&said.watch_id).cloned() else {
            return;
        };
        if !tells {
            return;
        }
        books.forget(&channel);
        drop(books);
        // Compacted revisions may include the deletion of the key, so we wake the waiter. After any other refusal the
        // waiter polls.
        if !said.events.is_empty() || said.compact_revision != 0 {
            self.signals.wake_one(&channel);
        }
    }

    /// Reads the key of a new watch, and wakes the waiter if it was deleted before the watch was established.
    fn look_back(&self, books: &WatcherState, said: &WatchResponse) {
        let now = said
            .header
            .as_ref()
            .map_or(i64::MAX, |header| header.revision);
        let Some(channel) = books.channels.get(&said.watch_id).cloned() else {
            return;
        };
        let Some(watch) = books.watches.get(&channel).filter(|watch| watch.seen < now) else {
            return; // the store has not changed since
        };
        let key = RangeRequest {
            key: watch.key.clone(),
            keys_only: true,
            ..RangeRequest::default()
        };
        let (link, signals) = (Arc::clone(&self.link), self.signals.clone());
        self.link.gate.background.spawn(async move {
            let found = link.range(key, link.deadline()).await;
            // On an error we also wake the waiter: its own retry reports the error.
            if !found.is_ok_and(|found| !found.kvs.is_empty()) {
                signals.wake_one(&channel);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, WatcherState> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
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
    link: &Arc<Connection>,
    said: UnboundedReceiver<WatchRequest>,
) -> RequestError {
    let conn = match link.get(link.deadline()).await {
        Ok(conn) => conn,
        Err(error) => return RequestError::NoWay(error),
    };
    let questions = stream::unfold(said, |mut said| async {
        let question = said.recv().await?;
        Some((question, said))
    });
    let mut answers = match conn.talk("/etcdserverpb.Watch/Watch", questions).await {
        Ok(answers) => answers,
        Err(trouble) => return trouble,
    };
    loop {
        match live_connection::next::<WatchResponse>(&mut answers).await {
            // The stream uses the token of its old connection. Requests have reconnected with a new login since, so we
            // end the stream, and the waiters open one on the new connection.
            Ok(Some(answer)) if is_refused(&answer) && !link.uses(&conn) => {
                return RequestError::Unsent("the token has run out".to_owned());
            }
            Ok(Some(answer)) => match watcher.upgrade() {
                Some(watcher) => watcher.hear(&answer),
                None => return RequestError::Unsent("the client has gone".to_owned()),
            },
            Ok(None) => return RequestError::Broken("the server has ended the stream".to_owned()),
            Err(trouble) => return trouble,
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
