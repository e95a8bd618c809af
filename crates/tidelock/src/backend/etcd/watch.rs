//! Waiting: each that waits watches the key before its own, and no other, all over one stream.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::api::{
    LeaseRequest, RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse, Watching,
};
use super::conn;
use super::errors::Trouble;
use super::link::Link;
use crate::backend::Signals;

/// Only keys that go away are told.
const NO_PUTS: i32 = 0;

/// Who is watched for whom. A channel is the waiter's own key.
pub(super) struct Watcher {
    link: Arc<Link>,
    signals: Signals,
    books: Mutex<Books>,
    /// For the task of the stream, which must not keep the store.
    this: Weak<Self>,
}

#[derive(Default)]
struct Books {
    watches: HashMap<Arc<str>, Watch>,
    channels: HashMap<i64, Arc<str>>,
    last_id: i64,
    /// While there is a stream, or one is being made: what is to be said on it.
    stream: Option<UnboundedSender<WatchRequest>>,
    /// How many streams in a row have ended without a word.
    failures: u32,
}

struct Watch {
    id: i64,
    key: Vec<u8>,
    /// At this revision the key was there.
    seen: i64,
}

impl Watcher {
    pub(super) fn new(link: Arc<Link>, signals: Signals, this: &Weak<Self>) -> Self {
        Self {
            link,
            signals,
            books: Mutex::default(),
            this: this.clone(),
        }
    }

    /// Wakes a waiter when that key has gone, which was there at that revision.
    ///
    /// The watch is for what happens from now on, and what happened before it stood is looked up: what a watch is to
    /// tell of the past the server tells it only every 100 ms.
    pub(super) fn follow(&self, channel: &str, key: &[u8], seen: i64) {
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
        books.watches.insert(channel, Watch { id, key, seen });
        let stream = match &books.stream {
            Some(stream) => stream.clone(),
            None => self.begin(&mut books),
        };
        // An error means that the stream has just ended: then all are woken.
        let _ = stream.send(WatchRequest {
            watching: Some(Watching::Create(create)),
        });
    }

    /// Nobody waits there any more.
    pub(super) fn leave(&self, channel: &str) {
        let mut books = self.lock();
        // Somebody may have come meanwhile: a waiter that asks anew.
        if !self.signals.is_watched(channel) {
            books.forget(channel);
        }
    }

    pub(super) fn close(&self) {
        let mut books = self.lock();
        *books = Books::default();
    }

    fn begin(&self, books: &mut Books) -> UnboundedSender<WatchRequest> {
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
            // Whoever is woken asks again and watches again: not without a pause, where that fails each time.
            timers.after(pause(failures)).await;
            watcher.signals.wake_each();
        });
        say
    }

    /// Takes a stream that has ended out of the books, with all that was to be told on it.
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
        // What was compacted away may have been the end of that key. Refused for another reason, it looks later by itself.
        if !said.events.is_empty() || said.compact_revision != 0 {
            self.signals.wake_one(&channel);
        }
    }

    /// Has the key been there up to now?
    fn look_back(&self, books: &Books, said: &WatchResponse) {
        let now = said
            .header
            .as_ref()
            .map_or(i64::MAX, |header| header.revision);
        let Some(channel) = books.channels.get(&said.watch_id).cloned() else {
            return;
        };
        let Some(watch) = books.watches.get(&channel).filter(|watch| watch.seen < now) else {
            return; // nothing at all has happened
        };
        let key = RangeRequest {
            key: watch.key.clone(),
            keys_only: true,
            ..RangeRequest::default()
        };
        let (link, signals) = (Arc::clone(&self.link), self.signals.clone());
        self.link.gate.background.spawn(async move {
            let found = link.range(key, link.deadline()).await;
            // Without an answer it asks again by itself, and hears what is wrong.
            if !found.is_ok_and(|found| !found.kvs.is_empty()) {
                signals.wake_one(&channel);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
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

/// Says what is to be said and hears what is told, until the stream ends.
async fn listen(
    watcher: &Weak<Watcher>,
    link: &Arc<Link>,
    said: UnboundedReceiver<WatchRequest>,
) -> Trouble {
    let conn = match link.get(link.deadline()).await {
        Ok(conn) => conn,
        Err(error) => return Trouble::NoWay(error),
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
        match conn::next::<WatchResponse>(&mut answers).await {
            // The stream is as old as its connection, and so is its token; requests have logged in anew since.
            Ok(Some(answer)) if is_refused(&answer) && !link.uses(&conn) => {
                return Trouble::Unsent("the token has run out".to_owned());
            }
            Ok(Some(answer)) => match watcher.upgrade() {
                Some(watcher) => watcher.hear(&answer),
                None => return Trouble::Unsent("the client has gone".to_owned()),
            },
            Ok(None) => return Trouble::Broken("the server has ended the stream".to_owned()),
            Err(trouble) => return trouble,
        }
    }
}

fn is_refused(said: &WatchResponse) -> bool {
    said.canceled && said.compact_revision == 0
}

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
