//! The books of the subscriptions: which channel is wanted, where it stands, and what is still to be sent.
//!
//! Both forms of a channel have the same connection, so that they live and die together, and what is told in both is
//! heard in the order in which it was told.

mod hear;
mod moves;
mod own;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

pub(super) use self::own::Counted;
use self::own::Own;
use super::gate::Gate;
use super::pipe::Subscription;
use super::reply::Form;
use super::session;
use super::stations::Stations;
use crate::backend::{Background, Heard, Moment, Signals, Timers, Wake};

/// How long a refused subscription is not asked for again: the waiters poll meanwhile.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// What the callers and the connections' tasks share.
pub(super) struct Board {
    /// In which forms a release may be told.
    forms: &'static [Form],
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
    books: Books,
    /// One for each server that is listened to.
    sessions: Vec<Arc<Session>>,
    closed: bool,
    /// The server does not let us be counted; not asked for again before then.
    uncounted_until: Option<Moment>,
}

/// The channels of each form.
#[derive(Default)]
struct Books([HashMap<Arc<str>, Channel>; 2]);

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
pub(super) struct Order {
    pub(super) of: Subscription,
    pub(super) channel: Arc<str>,
    /// It is the channel by which tidelock's waiters are counted, see [`own`].
    pub(super) own: bool,
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
    own: Own,
    /// Of the plain form: the message heard last may be told in the sharded form as well.
    twin: bool,
    /// How many releases were heard on this channel, and when the last was.
    heard: u64,
    last: Moment,
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
    Pending(oneshot::Receiver<()>),
    /// It stands, or it is refused.
    Settled,
}

impl Books {
    fn of(&self, form: Form) -> &HashMap<Arc<str>, Channel> {
        &self.0[form as usize]
    }

    fn of_mut(&mut self, form: Form) -> &mut HashMap<Arc<str>, Channel> {
        &mut self.0[form as usize]
    }

    fn get(&self, form: Form, channel: &str) -> Option<&Channel> {
        self.of(form).get(channel)
    }

    fn get_mut(&mut self, form: Form, channel: &str) -> Option<&mut Channel> {
        self.of_mut(form).get_mut(channel)
    }

    fn all(&self) -> impl Iterator<Item = &Channel> {
        self.0.iter().flat_map(HashMap::values)
    }

    /// The channels that are listened to on that server.
    fn on(&self, form: Form, session: &Arc<Session>) -> Vec<Arc<str>> {
        let mine = self.of(form).iter().filter(|(_, one)| one.is_on(session));
        mine.map(|(channel, _)| Arc::clone(channel)).collect()
    }
}

impl Channel {
    fn is_on(&self, session: &Arc<Session>) -> bool {
        Arc::ptr_eq(&self.session, session)
    }

    fn order(&self, form: Form, ends: bool, channel: &Arc<str>) {
        self.session.order(Order {
            of: Subscription { form, ends },
            channel: Arc::clone(channel),
            own: false,
        });
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
        forms: &'static [Form],
        stations: Stations,
        signals: Signals,
        background: Background,
    ) -> Self {
        Self {
            forms,
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

    pub(super) fn forms(&self) -> &'static [Form] {
        self.forms
    }

    pub(super) fn timers(&self) -> &Timers {
        self.stations.timers()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.load(Ordering::SeqCst) == 0
    }

    fn count(&self, state: &State) {
        self.known
            .store(state.books.all().count(), Ordering::SeqCst);
    }

    /// A wake, if no form is left to be asked for and one of them is heard.
    pub(super) fn arm_if_settled(&self, channel: &str) -> Option<Wake> {
        let state = self.lock();
        let phases = self
            .forms
            .iter()
            .map(|form| state.books.get(*form, channel));
        let settled = |one: Option<&Channel>| {
            one.is_some_and(|one| matches!(one.phase, Phase::Live | Phase::Refused(_)))
        };
        let all = phases.into_iter().all(settled);
        all.then(|| self.arm(state, channel)).flatten()
    }

    /// A wake, if the channel is heard in one form at least.
    pub(super) fn arm_if_any(&self, channel: &str) -> Option<Wake> {
        self.arm(self.lock(), channel)
    }

    fn arm(&self, mut state: MutexGuard<'_, State>, channel: &str) -> Option<Wake> {
        let mut heard = false;
        for form in self.forms {
            if let Some(entry) = state.books.get_mut(*form, channel) {
                heard |= entry.phase == Phase::Live;
                entry.idle_since = None;
            }
        }
        // Under the lock: the subscription cannot be given up in between.
        heard.then(|| self.signals.arm(channel))
    }

    /// What was heard of the releases on a channel. `None`: this process does not listen in every form.
    pub(super) fn heard(&self, channel: &str) -> Option<Heard> {
        let state = self.lock();
        let entry = |form: &Form| {
            let entry = state.books.get(*form, channel)?;
            matches!(entry.phase, Phase::Live | Phase::Leaving).then_some(entry)
        };
        let each: Option<Vec<&Channel>> = self.forms.iter().map(entry).collect();
        let each = each?;
        Some(Heard {
            count: each.iter().map(|entry| entry.heard).sum(),
            last: each.iter().map(|entry| entry.last).max()?,
        })
    }

    /// Every form is heard.
    pub(super) fn hears_all(&self, channel: &str) -> bool {
        let state = self.lock();
        self.forms.iter().all(|form| {
            let phase = state.books.get(*form, channel).map(|one| one.phase);
            matches!(phase, Some(Phase::Live | Phase::Leaving))
        })
    }

    /// Asks for a channel, unless it stands.
    pub(super) fn want(self: &Arc<Self>, form: Form, channel: &str) -> Want {
        let now = self.timers().now();
        let mut state = self.lock();
        if state.closed {
            return Want::Settled;
        }
        let (caller, subscribed) = oneshot::channel();
        if let Some((channel, _)) = state.books.of(form).get_key_value(channel) {
            let channel = Arc::clone(channel);
            let Some(entry) = state.books.get_mut(form, &channel) else {
                return Want::Settled;
            };
            entry.idle_since = None;
            match entry.phase {
                Phase::Live => return Want::Settled,
                Phase::Refused(until) if now < until => return Want::Settled,
                Phase::Refused(_) | Phase::Leaving => {
                    entry.phase = Phase::Pending;
                    entry.order(form, false, &channel);
                }
                Phase::Pending => {}
            }
            entry.callers.retain(|caller| !caller.is_closed());
            entry.callers.push(caller);
            return Want::Pending(subscribed);
        }
        let Some(session) = self.session_for(&mut state, channel) else {
            return Want::Settled;
        };
        let channel: Arc<str> = channel.into();
        let entry = Channel {
            phase: Phase::Pending,
            session,
            callers: vec![caller],
            idle_since: None,
            leaving: 0,
            missed: false,
            own: Own::Out,
            twin: false,
            heard: 0,
            last: now,
        };
        entry.order(form, false, &channel);
        state.books.of_mut(form).insert(channel, entry);
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
        let mut state = self.lock();
        for form in self.forms {
            if let Some(entry) = state.books.get_mut(*form, channel) {
                entry.idle_since.get_or_insert(now);
            }
        }
    }

    /// The server does not allow a subscription.
    pub(super) fn refused(
        &self,
        session: &Arc<Session>,
        form: Form,
        channel: &str,
        why: &crate::Error,
    ) {
        let until = self.timers().now() + REFUSED_FOR;
        let mut callers = Vec::new();
        if let Some(entry) = self.lock().books.get_mut(form, channel) {
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
        let books = std::mem::take(&mut state.books);
        let sessions = state.sessions.clone();
        self.count(&state);
        drop(state);
        drop(books); // not under the lock: it wakes callers
        for session in sessions {
            session.bell.notify_one();
        }
    }
}
