//! The subscription registry: the phase of every channel, the pub/sub connection that serves it, and the commands that
//! this connection still has to send.
//!
//! A channel has up to two forms, plain and sharded, each with an entry of its own. The algorithm:
//!
//! 1. A waiter wants a channel. The registry creates the entry and queues a SUBSCRIBE at the pub/sub connection of the
//!    server that serves the channel. The first channel of a server starts the task of its pub/sub connection.
//! 2. The confirmation makes the entry live. The waiter arms its wake and sends its attempt.
//! 3. A message wakes a waiter. If the connection is lost, the entry is pending again; once it is live again we wake
//!    one waiter, because a message may have been missed. If the next connection fails too, or the server refuses the
//!    subscription, we wake one at once: it polls.
//! 4. A periodic sweep unsubscribes channels without waiters and moves channels whose slot has a new owner.
//!
//! ```text
//!              want                  confirmed, no UNSUBSCRIBE open
//!    absent ──────────► Pending ───────────────────────────────────► Live
//!                       ▲ │  ▲                                        │ no waiter for LINGER
//!            retry time │ │  │ want: SUBSCRIBE again                  ▼
//!                       │ ▼  └──────────────────────────────────── Leaving ── last confirmation ──► absent
//!                     Refused ── retry time, no waiter ──► absent
//!
//!    Connection lost, or slot moved: Pending with a new SUBSCRIBE, or still Refused; absent if nobody waits.
//!    Close: every channel is absent.
//! ```
//!
//! Invariants:
//! 1. A wake is armed under the state lock and only while a form is live. So it sees each later message in that form,
//!    until the connection is lost.
//! 2. A confirmed SUBSCRIBE counts only if no UNSUBSCRIBE of ours is open: otherwise it confirms an older subscription.
//! 3. An event of a connection changes the phase only of its own entries: an entry may have moved meanwhile.
//! 4. All forms of a channel use the same connection, except for a moment while a slot moves. So they are lost
//!    together, and messages arrive in the order in which they were published.
//! 5. A pub/sub task runs exactly while its connection is in `sessions`. Both change under the state lock, so a channel
//!    either keeps the old task alive or starts a new one.
//! 6. Only a pending entry has callers. We leave the lock before we notify or drop a caller that still waits.
//!
//! Lock order: the state lock first. Under it we may take a connection's queue of commands, the cluster's slot map
//! (read), and the lock of the signals (`arm`, `is_watched`). Under none of these is the state lock taken. We wake
//! waiters only after we have left the state lock. `notify_one` is the exception: it wakes only the pub/sub task. The
//! idle hook of the signals takes the state lock; it runs after the signals' lock is released.

mod moves;
mod on_push;
mod own;
mod state;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use self::state::{Channel, ChannelPhase, OwnChannel, RegistryState};
pub(crate) use self::state::{ListenerCount, PubSubConnection, SubscribeCommand};
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::wire::reply::MessageForm;
use crate::store::{Background, BootInstant, BoxFuture, ReleasesSeen, Timers, Wake, WakeChannels};
use crate::types::Escaped;

/// The time between a refused subscription and the next attempt. The waiters poll meanwhile.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// The task of a pub/sub connection: it serves the connection until no channel needs it.
pub(crate) type PubSubTask =
    fn(Arc<SubscriptionRegistry>, Arc<PubSubConnection>) -> BoxFuture<'static, ()>;

/// The registry. The callers and the tasks of the pub/sub connections share it.
pub(crate) struct SubscriptionRegistry {
    /// The forms in which a release may be published.
    forms: &'static [MessageForm],
    pub(crate) channel_router: ChannelRouter,
    signals: WakeChannels,
    background: Background,
    /// The task of a pub/sub connection.
    task: PubSubTask,
    state: Mutex<RegistryState>,
    /// The number of entries. While it is zero, requests that do not wait skip the lock. Changes with the state locked.
    known: AtomicUsize,
    /// A warning about missing subscriptions was logged. Reset by the next confirmed subscription.
    complained: AtomicBool,
}

pub(crate) enum SubscribeOutcome {
    Pending(oneshot::Receiver<()>),
    /// The subscription is live or refused, or the registry is closed.
    Settled,
}

impl SubscriptionRegistry {
    pub(crate) fn new(
        forms: &'static [MessageForm],
        channel_router: ChannelRouter,
        signals: WakeChannels,
        background: Background,
        task: PubSubTask,
    ) -> Self {
        Self {
            forms,
            channel_router,
            signals,
            background,
            task,
            state: Mutex::default(),
            known: AtomicUsize::new(0),
            complained: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock()
    }

    pub(crate) fn forms(&self) -> &'static [MessageForm] {
        self.forms
    }

    pub(crate) fn timers(&self) -> &Timers {
        self.channel_router.timers()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.load(Ordering::SeqCst) == 0
    }

    fn count(&self, state: &RegistryState) {
        self.known.store(state.channels.count(), Ordering::SeqCst);
    }

    /// A wake, if no form needs another SUBSCRIBE and at least one form is live.
    pub(crate) fn arm_if_settled(&self, channel: &str) -> Option<Wake> {
        let state = self.lock();
        let phases = self
            .forms
            .iter()
            .map(|form| state.channels.get(*form, channel));
        let settled = |one: Option<&Channel>| {
            one.is_some_and(|one| {
                matches!(one.phase, ChannelPhase::Live | ChannelPhase::Refused(_))
            })
        };
        let all = phases.into_iter().all(settled);
        all.then(|| self.arm(state, channel)).flatten()
    }

    /// A wake, if at least one form is live.
    pub(crate) fn arm_if_any(&self, channel: &str) -> Option<Wake> {
        self.arm(self.lock(), channel)
    }

    fn arm(&self, mut state: MutexGuard<'_, RegistryState>, channel: &str) -> Option<Wake> {
        // We arm under the lock. Otherwise a sweep could unsubscribe in between.
        self.use_channel(&mut state, channel)
            .then(|| self.signals.arm(channel))
    }

    /// Marks a channel as needed. Returns whether at least one form is live.
    fn use_channel(&self, state: &mut RegistryState, channel: &str) -> bool {
        let mut is_live = false;
        for form in self.forms {
            if let Some(entry) = state.channels.get_mut(*form, channel) {
                is_live |= entry.phase == ChannelPhase::Live;
                entry.idle_since = None;
            }
        }
        is_live
    }

    /// The releases received on a channel. `None`: this process is not subscribed in every form.
    pub(crate) fn releases_seen(&self, channel: &str) -> Option<ReleasesSeen> {
        let state = self.lock();
        let entry = |form: &MessageForm| {
            let entry = state.channels.get(*form, channel)?;
            matches!(entry.phase, ChannelPhase::Live | ChannelPhase::Leaving).then_some(entry)
        };
        let each: Option<Vec<&Channel>> = self.forms.iter().map(entry).collect();
        let each = each?;
        Some(ReleasesSeen {
            count: each.iter().map(|entry| entry.releases_seen).sum(),
            last: each.iter().map(|entry| entry.last).max()?,
        })
    }

    /// Whether this process is subscribed in every form.
    pub(crate) fn hears_all(&self, channel: &str) -> bool {
        let state = self.lock();
        self.forms.iter().all(|form| {
            let phase = state.channels.get(*form, channel).map(|one| one.phase);
            matches!(phase, Some(ChannelPhase::Live | ChannelPhase::Leaving))
        })
    }

    /// Subscribes to a channel, unless it is live or was refused recently.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        form: MessageForm,
        channel: &str,
    ) -> SubscribeOutcome {
        let now = self.timers().now();
        let mut state = self.lock();
        if state.closed {
            return SubscribeOutcome::Settled;
        }
        let (caller, subscribed) = oneshot::channel();
        if let Some((channel, _)) = state.channels.of(form).get_key_value(channel) {
            let channel = Arc::clone(channel);
            let Some(entry) = state.channels.get_mut(form, &channel) else {
                return SubscribeOutcome::Settled;
            };
            entry.idle_since = None;
            match entry.phase {
                ChannelPhase::Live => return SubscribeOutcome::Settled,
                ChannelPhase::Refused(until) if now < until => return SubscribeOutcome::Settled,
                ChannelPhase::Refused(_) | ChannelPhase::Leaving => {
                    entry.phase = ChannelPhase::Pending;
                    entry.queue_command(form, false, &channel);
                }
                ChannelPhase::Pending => {}
            }
            entry.callers.retain(|caller| !caller.is_closed());
            entry.callers.push(caller);
            return SubscribeOutcome::Pending(subscribed);
        }
        let Some(session) = self.session_for(&mut state, channel) else {
            return SubscribeOutcome::Settled;
        };
        let channel: Arc<str> = channel.into();
        let entry = Channel {
            phase: ChannelPhase::Pending,
            session,
            callers: vec![caller],
            idle_since: None,
            leaving: 0,
            missed: false,
            told: false,
            own: OwnChannel::Out,
            twin: false,
            releases_seen: 0,
            last: now,
        };
        entry.queue_command(form, false, &channel);
        state.channels.of_mut(form).insert(channel, entry);
        self.count(&state);
        SubscribeOutcome::Pending(subscribed)
    }

    /// The pub/sub connection that serves a channel now; starts its task if needed. `None`: no server has the slot.
    fn session_for(
        self: &Arc<Self>,
        state: &mut RegistryState,
        channel: &str,
    ) -> Option<Arc<PubSubConnection>> {
        let endpoint = self.channel_router.of(channel)?;
        let mut running = state.sessions.iter();
        if let Some(session) = running.find(|session| Arc::ptr_eq(&session.endpoint, &endpoint)) {
            return Some(Arc::clone(session));
        }
        let session = Arc::new(PubSubConnection::new(endpoint));
        state.sessions.push(Arc::clone(&session));
        let task = (self.task)(Arc::clone(self), Arc::clone(&session));
        self.background.spawn(task);
        Some(session)
    }

    /// Records that the last waiter of a channel has left.
    pub(crate) fn idle(&self, channel: &str) {
        let now = self.timers().now();
        let mut state = self.lock();
        self.note_idle(&mut state, channel, now);
        self.leaves_turns(&mut state, channel, now);
    }

    fn note_idle(&self, state: &mut RegistryState, channel: &str, now: BootInstant) {
        for form in self.forms {
            if let Some(entry) = state.channels.get_mut(*form, channel) {
                entry.idle_since.get_or_insert(now);
            }
        }
    }

    /// Records that the server refused a subscription.
    pub(crate) fn refused(
        &self,
        session: &Arc<PubSubConnection>,
        form: MessageForm,
        channel: &str,
        why: &crate::Error,
    ) {
        let until = self.timers().now() + REFUSED_FOR;
        let mut callers = Vec::new();
        if let Some(entry) = self.lock().channels.get_mut(form, channel) {
            if !entry.is_on(session) {
                return;
            }
            entry.phase = ChannelPhase::Refused(until);
            callers = std::mem::take(&mut entry.callers);
        }
        drop(callers); // after the lock, because it wakes them
        // A waiter may be armed from before. It may have missed a message and will miss the next one, so it asks now.
        self.wake(channel);
        self.complain(why);
    }

    /// Logs the reason why waiters poll, once until the next confirmed subscription.
    fn complain(&self, why: &crate::Error) {
        if !self.complained.swap(true, Ordering::SeqCst) {
            tracing::warn!(error = %Escaped(&why), "cannot subscribe at the moment; waiters poll instead of being woken");
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let channels = std::mem::take(&mut state.channels);
        let sessions = state.sessions.clone();
        self.count(&state);
        drop(state);
        drop(channels); // after the lock, because it wakes the callers
        for session in sessions {
            session.notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
