//! Waiting: each waiter watches only the key directly before its own. So a release wakes one waiter, not all of them. A
//! waiter for permits watches the number of all permits too, and the first one all holders instead of a waiter.
//!
//! All watches of a client share one stream. If the stream ends, all waiters are woken; they retry and watch again. It
//! ends with the connection, and also when requests give the connection up: a silent server never ends it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use futures_util::stream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::engine::runtime::backoff::RECONNECT;
use crate::engine::runtime::event::Flag;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::WakeChannels;
use crate::store::etcd::api::{LeaseRequest, WatchRequest, WatchResponse, Watching};
use crate::store::etcd::connection::Connection;
use crate::store::etcd::errors::RequestError;
use crate::store::etcd::live_connection::{self, LiveConnection};
use crate::store::etcd::watched::WatchRange;
use crate::types::Escaped;

/// The watches of all waiters. A waiter's channel is its own key.
pub(crate) struct Watcher {
    connection: Arc<Connection>,
    signals: WakeChannels,
    state: Mutex<WatcherState>,
    /// The stream ends when this is set, and none is opened after that.
    closed: Arc<Flag>,
    /// For the stream's task. A strong reference there would keep the store alive.
    this: Weak<Self>,
}

#[derive(Default)]
struct WatcherState {
    /// By channel. Each has an entry in `channels`, and the reverse.
    watches: HashMap<Arc<str>, Vec<KeyWatch>>,
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
    keys: WatchRange,
    /// The revision at which the keys were seen.
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
            closed: Arc::default(),
            this: this.clone(),
        }
    }

    /// Wakes a waiter when something happens to one of these keys. They were seen at revision `seen`.
    ///
    /// A watch starts at the current revision. When it is established, we read its keys once, in case one was deleted
    /// before. A watch that starts in the past would be slower: the server serves those only every 100 ms.
    pub(crate) fn follow(&self, channel: &str, keys: Vec<WatchRange>, seen: i64) {
        let mut state = self.lock();
        // We check under the lock that `close` takes after it has set the flag. Otherwise a stream that is opened in
        // between would stay. A closed client wakes its waiters itself.
        if self.closed.is_set() {
            return;
        }
        let known = state.watches.get(channel);
        if known.is_some_and(|known| known.iter().map(|watch| &watch.keys).eq(&keys)) {
            return;
        }
        state.forget(channel);
        let channel = Arc::<str>::from(channel);
        let mut watches = Vec::with_capacity(keys.len());
        for keys in keys {
            state.last_id += 1;
            let id = state.last_id;
            state.channels.insert(id, Arc::clone(&channel));
            watches.push(KeyWatch { id, keys, seen });
        }
        let creates = watches.iter().map(|watch| watch.keys.create(watch.id));
        let creates: Vec<_> = creates.collect();
        state.watches.insert(channel, watches);
        let stream = match &state.stream {
            Some(stream) => stream.clone(),
            None => self.begin(&mut state),
        };
        for create in creates {
            // An error means that the stream has just ended. Its end wakes all waiters.
            let _ = stream.send(WatchRequest {
                watching: Some(Watching::Create(create)),
            });
        }
    }

    /// Cancels the watches of a channel that has no waiter any more.
    pub(crate) fn leave(&self, channel: &str) {
        let mut state = self.lock();
        // A waiter may have retried and returned to the channel meanwhile.
        if !self.signals.is_watched(channel) {
            state.forget(channel);
        }
    }

    pub(crate) fn close(&self) {
        self.closed.set();
        *self.lock() = WatcherState::default();
    }

    /// Opens the stream in the background. Requests are buffered until it is open.
    fn begin(&self, state: &mut WatcherState) -> UnboundedSender<WatchRequest> {
        let (say, said) = unbounded_channel();
        state.stream = Some(say.clone());
        let (this, mine) = (self.this.clone(), say.downgrade());
        let (timers, connection, closed) = (
            self.connection.endpoint.timers.clone(),
            Arc::clone(&self.connection),
            Arc::clone(&self.closed),
        );
        self.connection.endpoint.background.spawn(async move {
            let end = tokio::select! {
                end = listen(&this, &connection, said) => end,
                // A server that does not answer must not keep the task and its connection.
                () = closed.happened() => return,
            };
            drop(connection);
            let Some(watcher) = this.upgrade() else {
                return;
            };
            let Some(failures) = watcher.ended(&mine) else {
                return; // closed
            };
            tracing::debug!(error = %Escaped(&end), "the watch stream has ended; all waiters retry");
            // Each woken waiter retries and opens a new stream. Without a backoff, a stream that always fails would
            // cause a busy loop.
            timers.after(RECONNECT.pause(failures)).await;
            watcher.signals.wake_each();
        });
        say
    }

    /// Removes a stream that has ended, with all its watches. Returns the number of failures in a row before it. `None`: the
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
        let before = state.failures;
        state.failures += 1;
        Some(before)
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

    /// Reads the keys of a new watch, and wakes the waiter if something happened to them before the watch was established.
    fn look_back(&self, state: &WatcherState, said: &WatchResponse) {
        let now = said
            .header
            .as_ref()
            .map_or(i64::MAX, |header| header.revision);
        let Some(channel) = state.channels.get(&said.watch_id).cloned() else {
            return;
        };
        let watches = state.watches.get(&channel).map_or(&[][..], |all| all);
        let watch = watches.iter().find(|watch| watch.id == said.watch_id);
        let Some(watch) = watch.filter(|watch| watch.seen < now) else {
            return; // the store has not changed since
        };
        let (keys, seen) = (watch.keys.clone(), watch.seen);
        let (connection, signals) = (Arc::clone(&self.connection), self.signals.clone());
        self.connection.endpoint.background.spawn(async move {
            let look = keys.look(seen);
            let found = connection.range(look, connection.deadline()).await;
            // On an error we also wake the waiter: its own retry reports the error.
            if !found.is_ok_and(|found| keys.is_unchanged(&found.kvs, seen)) {
                signals.wake_one(&channel);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, WatcherState> {
        self.state.lock()
    }
}

impl WatcherState {
    /// Removes and cancels the watches of a channel.
    fn forget(&mut self, channel: &str) {
        for watch in self.watches.remove(channel).unwrap_or_default() {
            self.channels.remove(&watch.id);
            if let Some(stream) = &self.stream {
                // An error means that the stream has ended, and the watch with it.
                let _ = stream.send(WatchRequest {
                    watching: Some(Watching::Cancel(LeaseRequest { id: watch.id })),
                });
            }
        }
    }
}

/// Runs the stream on the connection that requests use, and while they use it. Returns why the stream ended.
async fn listen(
    watcher: &Weak<Watcher>,
    connection: &Arc<Connection>,
    said: UnboundedReceiver<WatchRequest>,
) -> RequestError {
    let conn = match connection.get(connection.deadline()).await {
        Ok(conn) => conn,
        Err(error) => return RequestError::Classified(error),
    };
    tokio::select! {
        end = listen_on(&conn, watcher, said) => end,
        // A server that has gone silent does not end the stream, and an old token gets no new watches.
        () = conn.given_up() => RequestError::Unsent("the connection was given up".to_owned()),
    }
}

/// Sends the requests of the stream and handles the responses.
async fn listen_on(
    conn: &LiveConnection,
    watcher: &Weak<Watcher>,
    said: UnboundedReceiver<WatchRequest>,
) -> RequestError {
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

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher")
            .field("watches", &self.lock().watches.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::Credentials;
    use crate::store::connect_once::ConnectionRuntime;
    use crate::store::etcd::address::Address;
    use crate::store::etcd::api::Nothing;
    use crate::store::etcd::connection::Endpoint;
    use crate::store::{Background, Clock, Env, Timers};

    const LONG: Duration = Duration::from_secs(60);

    /// A watcher of a server that accepts connections and never answers.
    fn watcher_of(mute: &TcpListener, background: &Background) -> Arc<Watcher> {
        let timers = Timers::new(Clock::Boot);
        background.spawn(timers.clone().drive());
        let env = Env::of_limits(timers.clone(), background.clone(), LONG);
        let url = format!("etcd://{}", mute.local_addr().unwrap());
        let places = Address::parse(&url).unwrap().places;
        let home = ConnectionRuntime::Background(background.clone());
        let endpoint = Arc::new(Endpoint::new(places, Credentials::default(), &env));
        let connection = Connection::new(endpoint, home);
        let signals = WakeChannels::new(timers, |_| {});
        Arc::new_cyclic(|this| Watcher::new(Arc::new(connection), signals, this))
    }

    #[tokio::test]
    async fn a_closed_watcher_opens_no_stream_and_keeps_none() {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let accepted = Arc::<AtomicUsize>::default();
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let watcher = watcher_of(&mute, &background);
        let count = Arc::clone(&accepted);
        let (first, had_first) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut first = Some(first);
            let mut open = Vec::new();
            while let Ok((stream, _)) = mute.accept().await {
                open.push(stream);
                count.fetch_add(1, Ordering::SeqCst);
                first.take().map(|first| first.send(()));
            }
        });
        watcher.follow("a", vec![WatchRange::until_deleted(b"a")], 1);
        timeout(LONG, had_first).await.unwrap().unwrap();
        let connection = Arc::downgrade(&watcher.connection);
        watcher.close();
        // Only the watcher itself keeps the connection now: the task of the stream has ended.
        let ended = async {
            while connection.strong_count() > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LONG / 6, ended)
            .await
            .expect("the stream has ended");
        // A request that was in flight during the close.
        watcher.follow("b", vec![WatchRange::until_deleted(b"b")], 1);
        assert!(watcher.lock().stream.is_none());
        assert_eq!(accepted.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_watch_that_is_refused_wakes_nobody_unless_events_may_be_missing() {
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let watcher = watcher_of(&mute, &background);
        for (events, canceled, compact_revision, is_over, wakes) in [
            (0, false, 0, false, false),
            (0, true, 0, true, false),
            (0, true, 7, true, true),
            (1, false, 0, true, true),
        ] {
            let mut wake = watcher.signals.arm("a");
            watcher.follow("a", vec![WatchRange::until_deleted(b"a")], 1);
            let mut said = WatchResponse {
                watch_id: watcher.lock().last_id + 1,
                events: vec![Nothing {}; events],
                canceled,
                compact_revision,
                ..WatchResponse::default()
            };
            // That of another watch.
            watcher.hear(&said);
            assert!(wake.woken().now_or_never().is_none(), "{said:?}");
            said.watch_id -= 1;
            watcher.hear(&said);
            assert_eq!(watcher.lock().watches.is_empty(), is_over, "{said:?}");
            let is_woken = wake.woken().now_or_never().is_some();
            assert_eq!(is_woken, wakes, "{said:?}");
            drop(wake);
            watcher.leave("a");
            assert!(watcher.lock().channels.is_empty());
        }
    }
}
