//! Wake-ups: one connection for all subscriptions of a process, on the steward's thread. A scripts' connection never
//! subscribes, because a push that nobody asked for could be taken for the answer to a script.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::gate::Gate;
use super::reply::Push;
use super::session;
use crate::backend::{Background, Moment, Signals, Wake};

/// How long a subscription is kept after its last waiter, for the next one.
pub(super) const LINGER: Duration = Duration::from_millis(2500);

/// How long a refused subscription is not asked for again: the waiters poll meanwhile.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// Hands out wakes that are armed on channels of the server.
pub(super) struct Subscriber(pub(super) Arc<Shared>);

/// What the callers and the connection's task share.
pub(super) struct Shared {
    pub(super) gate: Arc<Gate>,
    pub(super) signals: Signals,
    background: Background,
    state: Mutex<State>,
    /// Number of channels, so that whoever does not wait need not take the lock.
    known: AtomicUsize,
    /// Rung when there is something to do for the connection's task.
    pub(super) bell: Notify,
    complained: AtomicBool,
}

#[derive(Default)]
struct State {
    channels: HashMap<Arc<str>, Channel>,
    /// What is to be sent, in order.
    todo: Vec<Order>,
    running: bool,
    closed: bool,
}

/// Something to be sent to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    Subscribe(Arc<str>),
    Unsubscribe(Arc<str>),
}

struct Channel {
    phase: Phase,
    /// Callers that wait for the subscription to stand.
    callers: Vec<oneshot::Sender<()>>,
    /// Since when nobody is known to wait.
    idle_since: Option<Moment>,
    /// Unsubscribes of ours that have not been confirmed yet.
    leaving: u32,
    /// Messages may have been missed: when it stands again, a waiter asks.
    missed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Asked for.
    Pending,
    /// Confirmed: every message from now on is heard.
    Live,
    /// Given up, not confirmed yet.
    Leaving,
    /// The server does not allow it; not asked for again before then.
    Refused(Moment),
}

impl Channel {
    fn new() -> Self {
        Self {
            phase: Phase::Pending,
            callers: Vec::new(),
            idle_since: None,
            leaving: 0,
            missed: false,
        }
    }
}

impl Subscriber {
    pub(super) fn new(gate: Arc<Gate>, background: Background) -> Self {
        Self(Arc::new_cyclic(|weak: &Weak<Shared>| {
            let weak = weak.clone();
            let signals = Signals::new(gate.timers.clone(), move |channel| {
                if let Some(shared) = weak.upgrade() {
                    shared.idle(channel);
                }
            });
            Shared {
                gate,
                signals,
                background,
                state: Mutex::default(),
                known: AtomicUsize::new(0),
                bell: Notify::new(),
                complained: AtomicBool::new(false),
            }
        }))
    }

    /// A wake on a channel that is subscribed already; costs no traffic.
    pub(super) fn arm_if_live(&self, channel: impl FnOnce() -> String) -> Option<Wake> {
        if self.0.known.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let channel = channel();
        let state = self.0.lock();
        let live = state.channels.get(channel.as_str())?.phase == Phase::Live;
        // Under the lock: the subscription cannot be given up in between.
        live.then(|| self.0.signals.arm(&channel))
    }

    /// A wake on a channel, subscribed first if need be. `None`: it cannot be had just now, and the caller polls.
    pub(super) async fn arm(&self, channel: &str, limit: Duration) -> Option<Wake> {
        let subscribed = match self.0.want(channel) {
            Want::Armed(wake) => return Some(wake),
            Want::Refused => return None,
            Want::Pending(subscribed) => subscribed,
        };
        // An error means that the subscription was refused or the connection could not be made.
        self.0.gate.timers.limit(limit, subscribed).await?.ok()?;
        let mut state = self.0.lock();
        let entry = state.channels.get_mut(channel)?;
        (entry.phase == Phase::Live).then(|| {
            entry.idle_since = None;
            self.0.signals.arm(channel)
        })
    }

    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let channels = std::mem::take(&mut state.channels);
        self.0.known.store(0, Ordering::SeqCst);
        drop(state);
        drop(channels); // not under the lock: it wakes callers
        self.0.bell.notify_one();
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("signals", &self.0.signals)
            .finish_non_exhaustive()
    }
}

enum Want {
    Armed(Wake),
    Pending(oneshot::Receiver<()>),
    Refused,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn want(self: &Arc<Self>, channel: &str) -> Want {
        let now = self.gate.timers.now();
        let mut state = self.lock();
        if state.closed {
            return Want::Refused;
        }
        let channel: Arc<str> = channel.into();
        let mut ask = false;
        let entry = state
            .channels
            .entry(Arc::clone(&channel))
            .or_insert_with(|| {
                ask = true;
                Channel::new()
            });
        entry.idle_since = None;
        match entry.phase {
            Phase::Live => return Want::Armed(self.signals.arm(&channel)),
            Phase::Refused(until) if now < until => return Want::Refused,
            Phase::Refused(_) | Phase::Leaving => {
                entry.phase = Phase::Pending;
                ask = true;
            }
            Phase::Pending => {}
        }
        let (caller, subscribed) = oneshot::channel();
        entry.callers.retain(|caller| !caller.is_closed());
        entry.callers.push(caller);
        if ask {
            state.todo.push(Order::Subscribe(channel));
        }
        self.known.store(state.channels.len(), Ordering::SeqCst);
        if !std::mem::replace(&mut state.running, true) {
            self.background.spawn(session::run(Arc::clone(self)));
        }
        drop(state);
        self.bell.notify_one();
        Want::Pending(subscribed)
    }

    /// The last waiter of a channel has left.
    fn idle(&self, channel: &str) {
        let now = self.gate.timers.now();
        if let Some(entry) = self.lock().channels.get_mut(channel) {
            entry.idle_since.get_or_insert(now);
        }
    }

    /// What the server says on the connection of the subscriptions.
    pub(super) fn hear(&self, push: Push) {
        match push {
            // Redisson: 1 after the last reader or a writer has gone, when all may try.
            Push::Message { channel, payload } if payload == b"1" => {
                self.signals.wake_all(&channel);
            }
            Push::Message { channel, .. } => self.signals.wake_one(&channel),
            Push::Subscribed(channel) => self.subscribed(&channel),
            Push::Unsubscribed(channel) => self.unsubscribed(&channel),
        }
    }

    fn subscribed(&self, channel: &str) {
        let now = self.gate.timers.now();
        let mut state = self.lock();
        let Some(entry) = state.channels.get_mut(channel) else {
            return;
        };
        if entry.phase != Phase::Pending || entry.leaving > 0 {
            return; // an older subscription, given up meanwhile; another confirmation will come
        }
        entry.phase = Phase::Live;
        entry.idle_since = Some(now);
        self.complained.store(false, Ordering::SeqCst);
        let missed = std::mem::take(&mut entry.missed);
        let callers = std::mem::take(&mut entry.callers);
        drop(state);
        for caller in callers {
            // An error means that the caller has left; the subscription lingers and goes.
            let _ = caller.send(());
        }
        if missed {
            self.signals.wake_one(channel);
        }
    }

    fn unsubscribed(&self, channel: &str) {
        let mut state = self.lock();
        let Some(entry) = state.channels.get_mut(channel) else {
            return;
        };
        if entry.leaving > 0 {
            entry.leaving -= 1;
            if entry.phase == Phase::Leaving && entry.leaving == 0 {
                state.channels.remove(channel);
                self.known.store(state.channels.len(), Ordering::SeqCst);
            }
            return;
        }
        // Nobody asked for that. It counts as a wake-up, and the channel is subscribed anew.
        entry.phase = Phase::Pending;
        entry.missed = true;
        state.todo.push(Order::Subscribe(channel.into()));
        drop(state);
        self.signals.wake_one(channel);
        self.bell.notify_one();
    }

    /// The server does not allow a subscription.
    pub(super) fn refused(&self, channel: &str, why: &crate::Error) {
        let until = self.gate.timers.now() + REFUSED_FOR;
        let mut callers = Vec::new();
        if let Some(entry) = self.lock().channels.get_mut(channel) {
            entry.phase = Phase::Refused(until);
            callers = std::mem::take(&mut entry.callers);
        }
        drop(callers); // not under the lock: it wakes them
        // Who was armed before may have missed a message, and the next one will not reach it.
        self.signals.wake_one(channel);
        self.complain(why);
    }

    /// Says once per outage what makes waiters poll.
    fn complain(&self, why: &crate::Error) {
        if !self.complained.swap(true, Ordering::SeqCst) {
            tracing::warn!(error = %why, "no subscription just now: waiters ask again and again instead of being woken");
        }
    }

    /// What is to be sent now.
    pub(super) fn orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.lock().todo)
    }

    /// Gives up channels nobody has waited for in a while. False: none is left.
    pub(super) fn sweep(&self) -> bool {
        let now = self.gate.timers.now();
        let mut state = self.lock();
        let State { channels, todo, .. } = &mut *state;
        channels.retain(|channel, entry| {
            if self.signals.is_watched(channel) {
                entry.idle_since = None;
                if matches!(entry.phase, Phase::Refused(until) if now >= until) {
                    // Whoever waits was armed before the refusal, and nobody else would ask again for it.
                    entry.phase = Phase::Pending;
                    entry.missed = true;
                    todo.push(Order::Subscribe(Arc::clone(channel)));
                }
                return true;
            }
            match entry.phase {
                Phase::Live => {
                    if now.since(*entry.idle_since.get_or_insert(now)) >= LINGER {
                        entry.phase = Phase::Leaving;
                        entry.leaving += 1;
                        todo.push(Order::Unsubscribe(Arc::clone(channel)));
                    }
                    true
                }
                Phase::Refused(until) => now < until,
                Phase::Pending | Phase::Leaving => true,
            }
        });
        self.known.store(channels.len(), Ordering::SeqCst);
        !channels.is_empty()
    }

    /// The connection is gone: nothing stands, and messages may have been missed. What is still wanted is ordered anew.
    pub(super) fn disconnected(&self) {
        let mut state = self.lock();
        let State { channels, todo, .. } = &mut *state;
        todo.clear();
        channels.retain(|channel, entry| {
            entry.callers.retain(|caller| !caller.is_closed());
            entry.leaving = 0;
            if matches!(entry.phase, Phase::Refused(_)) {
                return true;
            }
            let wanted = self.signals.is_watched(channel) || !entry.callers.is_empty();
            if wanted {
                entry.missed |= entry.phase == Phase::Live;
                entry.phase = Phase::Pending;
                todo.push(Order::Subscribe(Arc::clone(channel)));
            }
            wanted
        });
        self.known.store(channels.len(), Ordering::SeqCst);
    }

    /// No connection can be made: whoever waits for one polls instead.
    pub(super) fn unreachable(&self, why: &crate::Error) {
        let mut state = self.lock();
        let channels = state.channels.values_mut();
        let callers: Vec<_> = channels
            .map(|entry| std::mem::take(&mut entry.callers))
            .collect();
        drop(state);
        drop(callers); // not under the lock: it wakes them
        self.complain(why);
        self.disconnected();
    }

    /// Whether the connection's task should go on. If not, it has ended with this answer.
    pub(super) fn goes_on(&self) -> bool {
        let mut state = self.lock();
        let needed = !state.closed && (!state.channels.is_empty() || !state.todo.is_empty());
        if !needed {
            state.running = false;
        }
        needed
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}
