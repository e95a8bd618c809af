//! Wake-ups: connections kept for subscriptions, on the steward's thread. A scripts' connection never subscribes, because
//! a push that nobody asked for could be taken for the answer to a script.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::board::{Board, Want};
use super::stations::Stations;
use crate::backend::{Background, Released, Signals, Wake};

/// How a cluster is told of a release. One server has only the plain way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ways {
    /// `PUBLISH`: to all nodes.
    Plain,
    /// `SPUBLISH`: to those that have the slot of the channel.
    Sharded,
    /// One after the other, for fleets where some know one and some the other.
    Both,
}

impl Ways {
    /// As the scripts take it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Plain => "publish",
            Self::Sharded => "spublish",
            Self::Both => "both",
        }
    }

    /// What of `PUBSUB` counts who listens.
    pub(super) fn counts(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["numsub"],
            Self::Sharded => &["shardnumsub"],
            Self::Both => &["numsub", "shardnumsub"],
        }
    }

    pub(super) fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["PUBLISH"],
            Self::Sharded => &["SPUBLISH"],
            Self::Both => &["PUBLISH", "SPUBLISH"],
        }
    }

    fn sharded(self) -> &'static [bool] {
        match self {
            Self::Plain => &[false],
            Self::Sharded => &[true],
            Self::Both => &[false, true],
        }
    }
}

/// Hands out wakes that are armed on channels of the server.
pub(super) struct Subscriber {
    /// One for each way.
    boards: Vec<Arc<Board>>,
    signals: Signals,
}

impl Subscriber {
    pub(super) fn new(stations: &Stations, ways: Ways, background: &Background) -> Self {
        let boards: Arc<std::sync::OnceLock<Vec<std::sync::Weak<Board>>>> = Arc::default();
        let idle = Arc::clone(&boards);
        let signals = Signals::new(stations.timers().clone(), move |channel| {
            let boards = idle.get().into_iter().flatten();
            for board in boards.filter_map(std::sync::Weak::upgrade) {
                board.idle(channel);
            }
        });
        let each = ways.sharded().iter().map(|&sharded| {
            let (stations, background) = (stations.clone(), background.clone());
            Arc::new(Board::new(sharded, stations, signals.clone(), background))
        });
        let each: Vec<Arc<Board>> = each.collect();
        boards.get_or_init(|| each.iter().map(Arc::downgrade).collect());
        Self {
            boards: each,
            signals,
        }
    }

    /// A wake on a channel that is subscribed already; costs no traffic.
    pub(super) fn arm_if_live(&self, channel: impl FnOnce() -> String) -> Option<Wake> {
        if self.boards.iter().any(|board| board.is_empty()) {
            return None;
        }
        let channel = channel();
        let mut wake = None;
        for board in &self.boards {
            // One place among the waiters is enough; the first is armed while the others are looked at.
            wake = Some(board.arm_if_live(&channel)?).or(wake);
        }
        wake
    }

    /// A wake on a channel, subscribed first if need be. `None`: it cannot be had just now, and the caller polls.
    pub(super) async fn arm(&self, channel: &str, limit: Duration) -> Option<Wake> {
        let [board] = &self.boards[..] else {
            let each = self.boards.iter().map(|board| arm(board, channel, limit));
            let wakes = futures_util::future::join_all(each).await;
            // All of them, else a release that is told in the other form only is not heard; one place is enough.
            let wakes: Option<Vec<Wake>> = wakes.into_iter().collect();
            return wakes?.into_iter().next();
        };
        arm(board, channel, limit).await
    }

    /// Whoever waits on that channel hears what is said there now.
    pub(super) fn listens(&self, channel: &str) -> bool {
        self.boards
            .iter()
            .all(|board| !board.is_empty() && board.listens(channel))
    }

    /// What became of a release whose message reached so many connections: others than our own wait too, or they do not.
    pub(super) fn freed(&self, channel: &str, heard: i64) -> Released {
        let listens = |board: &&Arc<Board>| !board.is_empty() && board.listens(channel);
        let own = if heard == 0 {
            0
        } else {
            self.boards.iter().filter(listens).count()
        };
        let others = usize::try_from(heard).unwrap_or(0).saturating_sub(own);
        match u32::try_from(others).unwrap_or(u32::MAX) {
            0 => Released::Freed,
            others => Released::Awaited(others),
        }
    }

    pub(super) fn close(&self) {
        for board in &self.boards {
            board.close();
        }
    }
}

async fn arm(board: &Arc<Board>, channel: &str, limit: Duration) -> Option<Wake> {
    let subscribed = match board.want(channel) {
        Want::Armed(wake) => return Some(wake),
        Want::Refused => return None,
        Want::Pending(subscribed) => subscribed,
    };
    // An error means that the subscription was refused or the connection could not be made.
    board.timers().limit(limit, subscribed).await?.ok()?;
    board.arm_if_live(channel)
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
