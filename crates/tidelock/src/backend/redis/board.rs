//! The books of the subscriptions: which channel is wanted, where it stands, and what is still to be sent.

mod moves;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::gate::Gate;
use super::reply::Push;
use super::session;
use super::stations::Stations;
use super::{events, keys};
use crate::backend::{Background, Moment, Signals, Timers, Wake};

/// How long a refused subscription is not asked for again: the waiters poll meanwhile.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// What the callers and the connections' tasks share.
pub(super) struct Board {
    /// Channels belong to slots here, and are heard only where their slot is.
    pub(super) sharded: bool,
    pub(super) stations: Stations,
    signals: Signals,
    background: Background,
    state: Mutex<State>,
    /// Number of channels, so that whoever does not wait need not take the lock.
    known: AtomicUsize,
    complained: AtomicBool,
}

#[derive(Default)]
struct State {
    channels: HashMap<Arc<str>, Channel>,
    /// One for each server that is listened to.
    sessions: Vec<Arc<Session>>,
    closed: bool,
}

/// The subscriptions on one server.
pub(super) struct Session {
    pub(super) gate: Arc<Gate>,
    /// What is to be sent, in order.
    todo: Mutex<Vec<Order>>,
    /// Rung when there is something to do.
    pub(super) bell: Notify,
}

/// Something to be sent to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    Subscribe(Arc<str>),
    Unsubscribe(Arc<str>),
}

struct Channel {
    phase: Phase,
    session: Arc<Session>,
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

pub(super) enum Want {
    Armed(Wake),
    Pending(oneshot::Receiver<()>),
    Refused,
}

impl Channel {
    fn is_on(&self, session: &Arc<Session>) -> bool {
        Arc::ptr_eq(&self.session, session)
    }
}

impl Session {
    fn order(&self, order: Order) {
        self.todo().push(order);
        self.bell.notify_one();
    }

    fn todo(&self) -> MutexGuard<'_, Vec<Order>> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be sent now.
    pub(super) fn orders(&self) -> Vec<Order> {
        std::mem::take(&mut *self.todo())
    }
}

impl Board {
    pub(super) fn new(
        sharded: bool,
        stations: Stations,
        signals: Signals,
        background: Background,
    ) -> Self {
        Self {
            sharded,
            stations,
            signals,
            background,
            state: Mutex::default(),
            known: AtomicUsize::new(0),
            complained: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn timers(&self) -> &Timers {
        self.stations.timers()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.load(Ordering::SeqCst) == 0
    }

    fn count(&self, state: &State) {
        self.known.store(state.channels.len(), Ordering::SeqCst);
    }

    pub(super) fn arm_if_live(&self, channel: &str) -> Option<Wake> {
        let mut state = self.lock();
        let entry = state.channels.get_mut(channel)?;
        // Under the lock: the subscription cannot be given up in between.
        (entry.phase == Phase::Live).then(|| {
            entry.idle_since = None;
            self.signals.arm(channel)
        })
    }

    /// The server counts us among those who hear that channel, as far as we know.
    pub(super) fn listens(&self, channel: &str) -> bool {
        let state = self.lock();
        let phase = state.channels.get(channel).map(|channel| channel.phase);
        matches!(phase, Some(Phase::Live | Phase::Leaving))
    }

    /// Asks for a channel, unless it stands.
    pub(super) fn want(self: &Arc<Self>, channel: &str) -> Want {
        let now = self.timers().now();
        let mut state = self.lock();
        if state.closed {
            return Want::Refused;
        }
        let (caller, subscribed) = oneshot::channel();
        if let Some(entry) = state.channels.get_mut(channel) {
            entry.idle_since = None;
            match entry.phase {
                Phase::Live => return Want::Armed(self.signals.arm(channel)),
                Phase::Refused(until) if now < until => return Want::Refused,
                Phase::Refused(_) | Phase::Leaving => {
                    entry.phase = Phase::Pending;
                    entry.session.order(Order::Subscribe(channel.into()));
                }
                Phase::Pending => {}
            }
            entry.callers.retain(|caller| !caller.is_closed());
            entry.callers.push(caller);
            return Want::Pending(subscribed);
        }
        let Some(session) = self.session_for(&mut state, channel) else {
            return Want::Refused;
        };
        let channel: Arc<str> = channel.into();
        session.order(Order::Subscribe(Arc::clone(&channel)));
        let entry = Channel {
            phase: Phase::Pending,
            session,
            callers: vec![caller],
            idle_since: None,
            leaving: 0,
            missed: false,
        };
        state.channels.insert(channel, entry);
        self.count(&state);
        Want::Pending(subscribed)
    }

    /// Where a channel is to be heard now. `None`: nowhere.
    fn session_for(self: &Arc<Self>, state: &mut State, channel: &str) -> Option<Arc<Session>> {
        let gate = self.stations.of(channel)?;
        let mut running = state.sessions.iter();
        if let Some(session) = running.find(|session| Arc::ptr_eq(&session.gate, &gate)) {
            return Some(Arc::clone(session));
        }
        let session = Arc::new(Session {
            gate,
            todo: Mutex::default(),
            bell: Notify::new(),
        });
        state.sessions.push(Arc::clone(&session));
        self.background
            .spawn(session::run(Arc::clone(self), Arc::clone(&session)));
        Some(session)
    }

    /// The last waiter of a channel has left.
    pub(super) fn idle(&self, channel: &str) {
        let now = self.timers().now();
        if let Some(entry) = self.lock().channels.get_mut(channel) {
            entry.idle_since.get_or_insert(now);
        }
    }

    /// What a server says on the connection of its subscriptions.
    pub(super) fn hear(self: &Arc<Self>, session: &Arc<Session>, push: Push) {
        match push {
            Push::Message { channel, payload } if keys::of_events(&channel).is_some() => {
                if events::frees(&payload) {
                    self.signals.wake_one(&channel);
                }
            }
            // Redisson: 1 after the last reader or a writer has gone, when all may try.
            Push::Message { channel, payload } if payload == b"1" => {
                self.signals.wake_all(&channel);
            }
            // A message to the head of Redisson's fair queue concerns all waiters of that lock.
            Push::Message { channel, .. } => self
                .signals
                .wake_one(keys::of_fair_channel(&channel).unwrap_or(&channel)),
            Push::Subscribed(channel) => self.subscribed(session, &channel),
            Push::Unsubscribed(channel) => self.unsubscribed(session, &channel),
        }
    }

    fn subscribed(&self, session: &Arc<Session>, channel: &str) {
        let now = self.timers().now();
        let mut state = self.lock();
        let Some(entry) = state.channels.get_mut(channel) else {
            return;
        };
        if entry.phase != Phase::Pending || entry.leaving > 0 || !entry.is_on(session) {
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

    fn unsubscribed(self: &Arc<Self>, session: &Arc<Session>, channel: &str) {
        let mut state = self.lock();
        let Some(entry) = state.channels.get_mut(channel) else {
            return;
        };
        if !entry.is_on(session) {
            return; // it has been moved to another server
        }
        if entry.leaving > 0 {
            entry.leaving -= 1;
            if entry.phase == Phase::Leaving && entry.leaving == 0 {
                state.channels.remove(channel);
                self.count(&state);
            }
            return;
        }
        drop(state);
        // Nobody asked for that: the slot has gone elsewhere. It counts as a wake-up, and the channel is subscribed anew.
        self.stations.doubt();
        self.again(session, channel);
        self.signals.wake_one(channel);
    }

    /// The server does not allow a subscription.
    pub(super) fn refused(&self, session: &Arc<Session>, channel: &str, why: &crate::Error) {
        let until = self.timers().now() + REFUSED_FOR;
        let mut callers = Vec::new();
        if let Some(entry) = self.lock().channels.get_mut(channel) {
            if !entry.is_on(session) {
                return;
            }
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

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let channels = std::mem::take(&mut state.channels);
        let sessions = state.sessions.clone();
        self.count(&state);
        drop(state);
        drop(channels); // not under the lock: it wakes callers
        for session in sessions {
            session.bell.notify_one();
        }
    }
}
