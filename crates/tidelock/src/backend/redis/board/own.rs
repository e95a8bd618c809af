//! The channel on which nothing is ever said, and to which only tidelock's waiters listen, so that the server can count
//! them.
//!
//! A process that waits listens to a lock's channel in every form. From the number of listeners alone nobody could tell
//! whether one of them hears the plain form only; with the number of those on this channel everybody can. It must never
//! count somebody who does not listen in every form: then a Java service would not be told, and sleep. So it is joined
//! last and left first, on the same connection.

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

/// How this process is counted by the server, as far as it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Counted {
    /// In how many forms it listens.
    pub(in super::super) forms: i64,
    /// Whether it is on the own channel. `None`: it may be or not.
    pub(in super::super) own: Option<bool>,
}

impl Counted {
    /// This process does not listen.
    pub(in super::super) const NOWHERE: Self = Self {
        forms: 0,
        own: Some(false),
    };
}

impl Board {
    /// In which form the own channel is listened to: the last, which in a cluster belongs to the slot.
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

    /// A listener to the sharded form alone does not join: it would hide a client that hears only the plain form.
    fn may_be_counted(&self, state: &State, now: Moment) -> bool {
        let refused = state.uncounted_until.is_some_and(|until| now < until);
        self.forms.contains(&Form::Plain) && !refused
    }

    /// Whether the other clients of this program's kind are counted, as far as this one can know: they have the same
    /// settings and rights as a rule.
    pub(in super::super) fn counts_its_kind(&self) -> bool {
        self.may_be_counted(&self.lock(), self.timers().now())
    }

    /// Has this process counted, once it listens in every form on one connection.
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

    /// To be called before any subscription to that channel is given up or moved.
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

    /// The server counts this process.
    pub(super) fn joined(&self, session: &Arc<Session>, form: Form, channel: &str) {
        if let Some(entry) = self.lock().books.get_mut(form, channel)
            && entry.is_on(session)
            && entry.own == Own::Joining
        {
            entry.own = Own::In;
        }
    }

    /// It does no more. Unasked where the slot has gone elsewhere: with it goes the subscription, which is made anew.
    pub(super) fn parted(&self, session: &Arc<Session>, form: Form, channel: &str) {
        if let Some(entry) = self.lock().books.get_mut(form, channel)
            && entry.is_on(session)
            && entry.own == Own::In
        {
            entry.own = Own::Out;
        }
    }

    /// The server does not let us join. Then this process is taken for a stranger, which costs a message too many.
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

    /// How the server counts this process among those who wait on that channel.
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
