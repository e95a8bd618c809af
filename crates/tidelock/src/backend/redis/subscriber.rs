//! Wake-ups: connections kept for subscriptions, on the steward's thread. A scripts' connection never subscribes, because
//! a push that nobody asked for could be taken for the answer to a script.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::board::{Board, Counted, Want};
use super::reply::Form;
use super::stations::Stations;
use crate::backend::{Awaited, Background, Heard, Released, Signals, Wake};

/// How a release is told. One server has only the plain form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ways {
    Plain,
    Sharded,
    /// Sharded, and in the plain form too while somebody listens who hears only that one.
    Auto,
    /// Every release in both forms.
    Both,
}

impl Ways {
    /// As the scripts take it. `settled`: who listens where has had time to follow the slots of the cluster.
    pub(super) fn word(self, settled: bool) -> &'static str {
        match self {
            Self::Plain => "publish",
            Self::Sharded => "spublish",
            Self::Auto if settled => "auto",
            Self::Auto => "settling",
            Self::Both => "both",
        }
    }

    /// The forms that are listened to, and in which a release may be told.
    pub(super) fn forms(self) -> &'static [Form] {
        match self {
            Self::Plain => &[Form::Plain],
            Self::Sharded => &[Form::Sharded],
            Self::Auto | Self::Both => &[Form::Plain, Form::Sharded],
        }
    }
}

impl Form {
    pub(super) fn command(self) -> &'static str {
        match self {
            Self::Plain => "PUBLISH",
            Self::Sharded => "SPUBLISH",
        }
    }

    /// What of `PUBSUB` counts who listens.
    pub(super) fn counts(self) -> &'static str {
        match self {
            Self::Plain => "numsub",
            Self::Sharded => "shardnumsub",
        }
    }
}

/// How often an answer is looked for that only the doctor waits for.
const LOOK: Duration = Duration::from_millis(10);

/// Hands out wakes that are armed on channels of the server.
pub(super) struct Subscriber {
    board: Arc<Board>,
    signals: Signals,
}

/// Who waits for a lock, as the server counted when it was released.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listeners {
    pub(super) all: i64,
    /// Those of tidelock. `None`: that could not be counted.
    pub(super) ours: Option<i64>,
}

impl Subscriber {
    pub(super) fn new(stations: &Stations, ways: Ways, background: &Background) -> Self {
        let board: Arc<std::sync::OnceLock<std::sync::Weak<Board>>> = Arc::default();
        let idle = Arc::clone(&board);
        let signals = Signals::new(stations.timers().clone(), move |channel| {
            if let Some(board) = idle.get().and_then(std::sync::Weak::upgrade) {
                board.idle(channel);
            }
        });
        let (stations, background) = (stations.clone(), background.clone());
        let made = Board::new(ways.forms(), stations, signals.clone(), background);
        let made = Arc::new(made);
        board.get_or_init(|| Arc::downgrade(&made));
        Self {
            board: made,
            signals,
        }
    }

    /// A wake on a channel that is subscribed already; costs no traffic.
    pub(super) fn arm_if_live(&self, channel: impl FnOnce() -> String) -> Option<Wake> {
        if self.board.is_empty() {
            return None;
        }
        self.board.arm_if_settled(&channel())
    }

    /// A wake on a channel, subscribed first if need be. `None`: it cannot be had just now, and the caller polls.
    pub(super) async fn arm(&self, channel: &str, limit: Duration) -> Option<Wake> {
        let mut pending = Vec::new();
        for &form in self.board.forms() {
            if let Want::Pending(subscribed) = self.board.want(form, channel) {
                pending.push(subscribed);
            }
        }
        if !pending.is_empty() {
            // An error means that the subscription was refused or the connection could not be made.
            self.board.timers().limit(limit, join_all(pending)).await;
        }
        self.board.arm_if_any(channel)
    }

    /// Listens to a channel for a while, even with no waiter in this process: others get turns before its next one, and it has
    /// to hear of them.
    pub(super) fn listen(&self, channel: &str) {
        for &form in self.board.forms() {
            drop(self.board.want(form, channel));
        }
    }

    /// A release may be told in a form that is not heard here just now: whoever waits has to ask now and then.
    pub(super) fn is_deaf(&self, channel: impl FnOnce() -> String) -> bool {
        self.board.forms().len() > 1 && !self.board.hears_all(&channel())
    }

    /// Whether the server counts this process among tidelock's waiters, if it waits.
    pub(super) async fn is_counted(&self, channel: &str, limit: Duration) -> bool {
        let Some(_wake) = self.arm(channel, limit).await else {
            return false;
        };
        let timers = self.board.timers();
        let end = timers.now() + limit;
        while self.board.counted(channel).own.is_none() && timers.now() < end {
            timers.after(LOOK).await;
        }
        self.board.counted(channel).own == Some(true)
    }

    /// Whoever waits on that channel hears what is said there now.
    pub(super) fn listens(&self, channel: &str) -> bool {
        !self.board.is_empty() && self.board.hears_all(channel)
    }

    /// What has been heard of the releases on a channel.
    pub(super) fn heard(&self, channel: impl FnOnce() -> String) -> Option<Heard> {
        if self.board.is_empty() {
            return None;
        }
        self.board.heard(&channel())
    }

    /// The outcome of a release to these listeners. `before`: what this process had heard before it.
    pub(super) fn freed(
        &self,
        channel: &str,
        listeners: Listeners,
        before: Option<Heard>,
    ) -> Released {
        let Counted { forms, own } = if self.board.is_empty() {
            Counted::NOWHERE
        } else {
            self.board.counted(channel)
        };
        let counts_us = i64::from(own == Some(true));
        // As the script counts: with both forms and the own channel it is still one process.
        let us = match listeners.ours {
            Some(_) => forms - counts_us * (forms - 1).max(0),
            None => forms.min(1),
        };
        let others = (listeners.all - us).max(0);
        // Without the count of our own, or if this process does not know whether it is in it, we treat nobody as a stranger:
        // processes of tidelock that take each other for strangers hold back without need.
        let counted = self.board.counts_its_kind() && own == Some(forms > 0);
        let kin = match listeners.ours {
            Some(ours) if counted => (ours - counts_us).clamp(0, others),
            _ => others,
        };
        let awaited = Awaited {
            others: u32::try_from(others).unwrap_or(u32::MAX),
            strangers: u32::try_from(others - kin).unwrap_or(u32::MAX),
            polled: false,
            // The message of this release reaches this process too, if it listens.
            heard: before.map_or(0, |before| before.count) + u64::from(forms > 0),
        };
        if awaited.strangers > 0 {
            self.listen(channel);
        }
        released(awaited)
    }

    pub(super) fn close(&self) {
        self.board.close();
    }
}

pub(super) fn released(awaited: Awaited) -> Released {
    if awaited.is_anybody() {
        Released::Awaited(awaited)
    } else {
        Released::Freed
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
            .field("signals", &self.signals)
            .finish_non_exhaustive()
    }
}
