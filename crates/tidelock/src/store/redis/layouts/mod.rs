//! How a lock is written: the keys and scripts of Redisson's layout and of the plain lock.

pub(crate) mod answer;
mod counts;
pub(crate) mod fair;
mod foreign;
mod grant;
pub(crate) mod job;
mod permits;
pub(crate) mod plain;
mod raise;
mod redisson;
pub(crate) mod renew;
mod renew_slots;
pub(crate) mod scripts;
mod tell_job;
pub(crate) mod tokens;

pub(crate) use crate::store::redis::handle::Layout;

use crate::error::Result;
use crate::snapshot::Snapshot;
use crate::store::redis::Redis;
use crate::store::redis::topology::router::Router;
use crate::store::{
    AttemptReply, AttemptRequest, BoxFuture, Capabilities, LockKind, Name, Released, Renewal,
    Renewed, Ticket,
};

impl Layout {
    /// The capabilities of a store with locks of this layout.
    pub(crate) const fn capabilities(self) -> Capabilities {
        Capabilities {
            kinds: match self {
                Self::Redisson => &[
                    LockKind::Mutex,
                    LockKind::Fenced,
                    LockKind::Read,
                    LockKind::Write,
                    LockKind::Fair,
                    LockKind::FairFenced,
                    LockKind::ReadFenced,
                    LockKind::WriteFenced,
                    LockKind::Permits(1),
                    LockKind::Spin,
                    LockKind::SpinFenced,
                ],
                Self::Plain => &[LockKind::Mutex, LockKind::Fenced],
            },
            wakes: matches!(self, Self::Redisson),
            queues: false,
            shared: true,
            durable: false,
            delays: false,
            sequencers: false,
            raises_tokens: true,
            marks: true,
            counts: matches!(self, Self::Redisson),
        }
    }
}

/// The layout decides once, here. What follows concerns that layout only.
impl Redis {
    pub(crate) fn decide<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        match self.layout {
            Layout::Redisson => Box::pin(async {
                let mut in_doubt = false;
                let outcome = if ask.ticket.kind.is_fair() {
                    Box::pin(self.attempt_fair(ask, &mut in_doubt)).await
                } else {
                    self.attempt_redisson(ask, &mut in_doubt).await
                };
                let outcome = match outcome {
                    Err(error) => Err(Box::pin(self.name_foreign(&ask.ticket.name, error)).await),
                    ok => ok,
                };
                AttemptReply { outcome, in_doubt }
            }),
            Layout::Plain => Box::pin(async {
                let mut in_doubt = false;
                let outcome = self.attempt_plain(ask, &mut in_doubt).await;
                AttemptReply { outcome, in_doubt }
            }),
        }
    }

    pub(crate) fn keep_each<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        match &self.router {
            Router::One(_) => self.renew_slot(batch),
            Router::Cluster(cluster, _) => Box::pin(self.renew_slots(cluster, batch)),
        }
    }

    /// Renews locks whose keys may be in one script.
    pub(crate) fn renew_slot<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        match self.layout {
            Layout::Redisson => Box::pin(self.renew_redisson(batch)),
            Layout::Plain => Box::pin(self.renew_plain(batch)),
        }
    }

    pub(crate) fn end<'a>(
        &'a self,
        ticket: &'a Ticket,
        withdraw: bool,
    ) -> BoxFuture<'a, Result<Released>> {
        match self.layout {
            Layout::Redisson if ticket.kind.is_fair() => {
                Box::pin(self.release_fair(ticket, withdraw))
            }
            Layout::Redisson if ticket.kind.is_read_write() => {
                Box::pin(self.release_side(ticket, withdraw))
            }
            Layout::Redisson if ticket.kind.is_permits() => {
                Box::pin(self.release_permits(ticket, withdraw))
            }
            Layout::Redisson => Box::pin(self.release_redisson(ticket, withdraw)),
            Layout::Plain => Box::pin(self.release_plain(ticket, withdraw)),
        }
    }

    pub(crate) fn free<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        match self.layout {
            Layout::Redisson => Box::pin(self.force_release_redisson(name, seen)),
            Layout::Plain => Box::pin(self.force_release_plain(name, seen)),
        }
    }
}

#[cfg(test)]
mod tests;
