//! The counting channel: a channel without messages, to which only tidelock's waiters subscribe, so that the server can
//! count them.
//!
//! A waiting process subscribes to a lock's channel in every form. The number of subscribers alone does not show
//! whether one of them, such as a Java service with Redisson, receives the plain form only; the number on the counting
//! channel does. Invariant: a process on the counting channel is subscribed in every form. Otherwise it would hide a
//! Java service, which would not get the plain message and would go on sleeping. So we subscribe to the counting
//! channel last and unsubscribe from it first, on the same connection.

use std::sync::Arc;

use super::super::keys;
use super::super::pipe::Subscription;
use super::super::reply::Form;
use super::{Board, Order, Phase, REFUSED_FOR, Session, State};
use crate::backend::Moment;

/// Whether the server counts this process among tidelock's waiters for a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Out,
    Joining,
    In,
}

/// The part of this process in the server's counts, as far as we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Counted {
    /// In how many forms it is subscribed.
    pub(in super::super) forms: i64,
    /// Whether it is on the counting channel. `None`: unknown, because it is not confirmed yet.
    pub(in super::super) own: Option<bool>,
}

impl Counted {
    /// This process is not subscribed.
    pub(in super::super) const NOWHERE: Self = Self {
        forms: 0,
        own: Some(false),
    };
}

impl Board {
    /// The form of the counting channel: the last one, which in a cluster is the form that moves with the slot.
    fn own_form(&self) -> Form {
        self.forms.last().copied().unwrap_or(Form::Plain)
    }

    fn order_own(session: &Session, form: Form, ends: bool, channel: &str) {
        if let Some(own) = keys::own_channel(channel) {
            session.order(Order {
                of: Subscription { form, ends },
                channel: own.into(),
                own: true,
            });
        }
    }

    /// Whether this process may join. A process that is subscribed in the sharded form only must not: it would hide a
    /// client that receives only the plain form.
    fn may_be_counted(&self, state: &State, now: Moment) -> bool {
        let refused = state.uncounted_until.is_some_and(|until| now < until);
        self.forms.contains(&Form::Plain) && !refused
    }

    /// Whether we may assume that other tidelock processes are counted. We assume that they have our settings and
    /// rights.
    pub(in super::super) fn counts_its_kind(&self) -> bool {
        self.may_be_counted(&self.lock(), self.timers().now())
    }

    /// Subscribes to the counting channel, if every form is live on one connection.
    pub(super) fn join(&self, state: &mut State, channel: &str, now: Moment) {
        if !self.may_be_counted(state, now) || keys::own_channel(channel).is_none() {
            return;
        }
        let form = self.own_form();
        let Some(entry) = state.books.get(form, channel) else {
            return;
        };
        let session = Arc::clone(&entry.session);
        let stands = |form: &Form| {
            let entry = state.books.get(*form, channel);
            entry.is_some_and(|entry| entry.phase == Phase::Live && entry.is_on(&session))
        };
        if !self.forms.iter().all(stands) {
            return;
        }
        if let Some(entry) = state.books.get_mut(form, channel)
            && entry.own == Own::Out
        {
            entry.own = Own::Joining;
            Self::order_own(&session, form, false, channel);
        }
    }

    /// Unsubscribes from the counting channel. Callers must do this before they end or move any subscription to the
    /// lock's channel.
    pub(super) fn part(&self, state: &mut State, channel: &str) {
        let form = self.own_form();
        if let Some(entry) = state.books.get_mut(form, channel)
            && entry.own != Own::Out
        {
            entry.own = Own::Out;
            let session = Arc::clone(&entry.session);
            Self::order_own(&session, form, true, channel);
        }
    }

    /// Records the confirmation: the server counts this process.
    pub(super) fn joined(&self, session: &Arc<Session>, form: Form, channel: &str) {
        if let Some(entry) = self.lock().books.get_mut(form, channel)
            && entry.is_on(session)
            && entry.own == Own::Joining
        {
            entry.own = Own::In;
        }
    }

    /// Records that the server no longer counts this process. If we did not ask for this, the slot has moved; the
    /// lock's channel is then subscribed again at the new owner, and this channel after it.
    pub(super) fn parted(&self, session: &Arc<Session>, form: Form, channel: &str) {
        if let Some(entry) = self.lock().books.get_mut(form, channel)
            && entry.is_on(session)
            && entry.own == Own::In
        {
            entry.own = Own::Out;
        }
    }

    /// Records that the server refused the counting channel. Others then treat this process as a foreign client, which
    /// costs one extra message per release.
    pub(in super::super) fn uncounted(&self, session: &Arc<Session>, form: Form, own: &str) {
        let until = self.timers().now() + REFUSED_FOR;
        let mut state = self.lock();
        state.uncounted_until = Some(until);
        let channel = keys::channel_of_own(own);
        if let Some(entry) = channel.and_then(|channel| state.books.get_mut(form, &channel))
            && entry.is_on(session)
        {
            entry.own = Own::Out;
        }
    }

    /// The part of this process in the server's counts for a channel.
    pub(in super::super) fn counted(&self, channel: &str) -> Counted {
        let state = self.lock();
        let heard = self.forms.iter().filter(|form| {
            let phase = state.books.get(**form, channel).map(|entry| entry.phase);
            matches!(phase, Some(Phase::Live | Phase::Leaving))
        });
        let forms = i64::try_from(heard.count()).unwrap_or(0);
        let own = state.books.get(self.own_form(), channel).map(|one| one.own);
        Counted {
            forms,
            own: match own {
                Some(Own::In) => Some(true),
                Some(Own::Joining) => None,
                Some(Own::Out) | None => Some(false),
            },
        }
    }
}
