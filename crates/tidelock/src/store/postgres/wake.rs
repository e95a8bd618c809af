//! The notify listener: one connection with `LISTEN` that wakes all waiters of a client.
//!
//! A pooler that passes connections on after each transaction accepts `LISTEN`, but delivers no notifications. So we
//! trust the subscription only after a test message from another connection has arrived.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::engine::runtime::backoff::RECONNECT;
use crate::engine::runtime::event::Flag;
use crate::store::postgres::connection::Connection;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::prepared::LiveClient;
use crate::store::postgres::schema::{HAS_ROOM, Sql};
use crate::store::{Env, Wake, WakeChannels};
use crate::types::Escaped;

/// How long we wait before we try again behind a pooler that delivers no notifications.
const POOLER_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// Why no release sends a notification.
const NO_ROOM: &str = "the server's queue of notifications is almost full; a session that listens may have left a transaction open";

/// How often we check that the connection still answers, and that the server's queue of messages has room.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// Whether notifications arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenState {
    /// Not tried yet, or a try is in progress.
    Unknown,
    /// They arrive.
    Live,
    /// The server cannot be reached, its queue has no room, or a pooler delivers no notifications.
    Deaf,
}

pub(crate) struct NotifyListener {
    connection: Connection,
    /// Another connection, which sends the test message.
    mouth: Connection,
    channel: String,
    /// The statement that sends a notification on `channel`.
    tell: String,
    signals: WakeChannels,
    state: watch::Sender<ListenState>,
    /// The listener task has started.
    begun: AtomicBool,
    closed: Flag,
    /// Called with the name of a lock that was left free.
    released: Arc<OnceLock<ReleaseHook>>,
}

type ReleaseHook = Box<dyn Fn(&str) + Send + Sync>;

impl NotifyListener {
    pub(crate) fn new(
        connection: Connection,
        mouth: Connection,
        sql: &Sql,
        env: &Env,
    ) -> Arc<Self> {
        Arc::new(Self {
            connection,
            mouth,
            channel: sql.channel.clone(),
            tell: sql.tell.clone(),
            signals: WakeChannels::new(env.timers.clone(), |_| {}),
            state: watch::Sender::new(ListenState::Unknown),
            begun: AtomicBool::new(false),
            closed: Flag::default(),
            released: Arc::default(),
        })
    }

    /// Arms a wake, if notifications arrive now or within this time.
    pub(crate) async fn arm(self: &Arc<Self>, name: &str, within: Duration) -> Option<Wake> {
        (self.hears(within).await == ListenState::Live).then(|| self.signals.arm(name))
    }

    /// Starts the listener on first use, and waits at most this long for its result.
    pub(crate) async fn hears(self: &Arc<Self>, within: Duration) -> ListenState {
        if !self.begun.swap(true, Ordering::SeqCst) {
            let listener = Arc::downgrade(self);
            self.connection.background().spawn(listen(listener));
        }
        let mut state = self.state.subscribe();
        let known = state.wait_for(|state| *state != ListenState::Unknown);
        match self.connection.timers().limit(within, known).await {
            Some(Ok(state)) => *state,
            _ => ListenState::Unknown,
        }
    }

    /// Whether notifications arrive now.
    pub(crate) fn is_live(&self) -> bool {
        *self.state.borrow() == ListenState::Live
    }

    /// The waiters that notifications wake, by the name or the owner in the message.
    pub(crate) fn signals(&self) -> WakeChannels {
        self.signals.clone()
    }

    /// Calls this with the name of each lock that was left free. Only the first call has an effect.
    pub(crate) fn on_release(&self, hook: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.released.set(Box::new(hook));
    }

    /// Listens, or goes on listening. Returns whether the server's queue of messages has room: without it no release sends
    /// one.
    async fn listen_with(&self, client: &Client) -> Result<bool, String> {
        let (timers, limit) = (self.connection.timers(), self.connection.limit());
        // It begins with `LISTEN`, so the session shows in `pg_stat_activity` what it is for.
        let text = format!("LISTEN {}; SELECT {HAS_ROOM}", self.channel);
        let answer = match timers.limit(limit, client.simple_query(&text)).await {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => return Err(RequestError::of(&error).to_string()),
            None => return Err(format!("no answer within {limit:?}")),
        };
        Ok(answer.iter().any(|message| match message {
            SimpleQueryMessage::Row(row) => matches!(row.try_get(0), Ok(Some("t"))),
            _ => false,
        }))
    }

    /// Notes whether notifications arrive. If that has changed, the waiters ask again: they may have missed one, or there
    /// will be none, and then they poll.
    fn set_state(&self, state: ListenState) {
        if self.state.send_replace(state) != state {
            self.signals.wake_each();
        }
    }

    /// Notes that the server's queue of messages has no room.
    fn has_no_room(&self) {
        let before = *self.state.borrow();
        if before != ListenState::Deaf {
            tracing::warn!(store = %Escaped(&self.connection), "{NO_ROOM}; waiters poll instead of being woken");
        }
        self.set_state(ListenState::Deaf);
    }

    pub(crate) fn close(&self) {
        self.closed.set();
        self.mouth.close();
    }
}

/// The listener task: connects, listens, and reconnects until the store closes.
async fn listen(listener: Weak<NotifyListener>) {
    let (mut told, mut failures) = (false, 0);
    while let Some(listener) = listener.upgrade() {
        tokio::select! {
            biased;
            // A close ends a connect, a wait for messages and a pause.
            () = listener.closed.happened() => return,
            () = listen_once(&listener, &mut told, &mut failures) => {}
        }
    }
}

/// Serves one connection until it ends, and pauses before the next.
async fn listen_once(listener: &Arc<NotifyListener>, told: &mut bool, failures: &mut u32) {
    let test = TestNotification::default();
    let ended = Arc::new(Notify::new());
    let pause = match hear(listener, &test, &ended).await {
        Ok((client, sender)) => {
            if sender.is_some() {
                listener.set_state(ListenState::Live);
            } else {
                listener.has_no_room();
            }
            until_it_ends(listener, &client, (&test, sender), &ended).await;
            drop(client);
            listener.set_state(ListenState::Unknown);
            *failures = 0;
            None
        }
        Err(why) => {
            if !std::mem::replace(told, true) {
                tracing::warn!(store = %Escaped(&listener.connection), why = %Escaped(&why), "cannot listen for releases; waiters poll instead of being woken");
            }
            listener.set_state(ListenState::Deaf);
            why.pause
        }
    };
    let pause = pause.unwrap_or_else(|| RECONNECT.pause(*failures));
    *failures += 1;
    listener.connection.timers().after(pause).await;
}

/// Waits until the connection has ended, or the server does not answer on it. A half-open connection looks alive until we
/// send something, and a waiter would sleep until the holder's lease ends.
///
/// While the server's queue has no room, the waiters poll. The connection stays: a new one could have to read the whole
/// queue.
///
/// The callers may reach another server by now, and the former one may still answer here. So a new connection of theirs is
/// tested, as the first one was. No connection was tested before there was room.
async fn until_it_ends(
    listener: &Arc<NotifyListener>,
    client: &Client,
    (test, mut sender): (&TestNotification, Option<Weak<LiveClient>>),
    ended: &Arc<Notify>,
) {
    let timers = listener.connection.timers();
    loop {
        tokio::select! {
            () = ended.notified() => return,
            () = timers.after(CHECK_INTERVAL) => {}
        }
        let Ok(has_room) = listener.listen_with(client).await else {
            return;
        };
        if has_room {
            let now = listener.mouth.current();
            let is_tested = sender.as_ref().is_some_and(|it| Weak::ptr_eq(it, &now));
            if !is_tested {
                let Ok(tested) = test.send(listener).await else {
                    return;
                };
                sender = Some(tested);
            }
            listener.set_state(ListenState::Live);
            continue;
        }
        listener.has_no_room();
    }
}

/// Why no notifications arrive.
struct ListenFailure {
    why: String,
    /// How long we wait before the next try. `None`: longer after each failure.
    pause: Option<Duration>,
}

impl std::fmt::Display for ListenFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

fn failed(why: String) -> ListenFailure {
    ListenFailure { why, pause: None }
}

/// A message that the connection of the callers sends to the one that listens.
struct TestNotification {
    text: String,
    heard: Arc<Notify>,
}

impl Default for TestNotification {
    fn default() -> Self {
        Self {
            text: format!("h{}", uuid::Uuid::new_v4()),
            heard: Arc::default(),
        }
    }
}

impl TestNotification {
    /// Sends it, and waits until it is heard. Returns the connection that has sent it.
    async fn send(&self, listener: &NotifyListener) -> Result<Weak<LiveClient>, ListenFailure> {
        // If another connection sends it, that one is tested again.
        let sender = listener.mouth.current();
        let say = [(&self.text as _, Type::TEXT)];
        let said = listener.mouth.ask(&listener.tell, &say).await;
        said.map_err(|failure| failed(failure.error().to_string()))?;
        let (timers, limit) = (listener.connection.timers(), listener.connection.limit());
        match timers.limit(limit, self.heard.notified()).await {
            Some(()) => Ok(sender),
            None => Err(ListenFailure {
                why: "what one connection says another does not hear; a pooler between may give connections away after each transaction".to_owned(),
                // The server answered every request.
                pause: Some(POOLER_RETRY_PAUSE),
            }),
        }
    }
}

/// Opens a connection that listens, and proves it with a test message from another connection. Returns both. `None`: the
/// server's queue of messages has no room, so there was no test.
async fn hear(
    listener: &Arc<NotifyListener>,
    test: &TestNotification,
    ended: &Arc<Notify>,
) -> Result<(Client, Option<Weak<LiveClient>>), ListenFailure> {
    let ear = {
        let (signals, end) = (listener.signals.clone(), Arc::clone(ended));
        let (hello, heard) = (test.text.clone(), Arc::clone(&test.heard));
        let released = Arc::clone(&listener.released);
        Box::new(move |said: Option<&str>| match said {
            Some(said) if said == hello => heard.notify_one(),
            Some(said) => {
                if let Some(name) = said.strip_prefix('f') {
                    signals.wake_one(name);
                    released.get().iter().for_each(|hook| hook(name));
                }
            }
            None => end.notify_one(),
        })
    };
    let timers = listener.connection.timers();
    let limit = listener.connection.limit();
    let client = match timers
        .limit(limit, listener.connection.connect(Some(ear)))
        .await
    {
        Some(Ok(client)) => client,
        Some(Err(failure)) => return Err(failed(failure.error().to_string())),
        None => return Err(failed(format!("no answer within {limit:?}"))),
    };
    if !listener.listen_with(&client).await.map_err(failed)? {
        return Ok((client, None));
    }
    // We send the test message after `LISTEN` has succeeded. Otherwise it could be lost.
    let sender = test.send(listener).await?;
    Ok((client, Some(sender)))
}

#[cfg(test)]
mod tests;
