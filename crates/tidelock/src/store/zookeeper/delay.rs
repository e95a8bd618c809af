//! Lock-delay: a persistent node beside the queue that names the hold it belongs to. A release deletes it together
//! with the hold's own node.
//!
//! The delay node belongs to no session, so it stays when the holder's session expires. The first ticket in the queue
//! then waits for the delay before it takes the lock.
//!
//! Every delay ends. The first waiter that finds the delay node without its holder marks the node as seen; from that
//! write on all clients measure the delay by the server's clock. A client that has waited for the delay by its own
//! clock continues, whatever the server's clock says.
//!
//! The delay node is not part of the queue, so Curator does not see it. Otherwise Curator would wait for it without
//! end.

use std::time::Duration;

use futures_util::FutureExt;
use zookeeper_client as zk;

use crate::error::{ErrorKind, Result};
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::delay_node::{DELAYS_PARENT, DelayMark};
use crate::store::zookeeper::entry::QueueNode;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::{delay_node, errors};
use crate::store::{AttemptRequest, BootInstant, Name};

/// Whether the first ticket of a queue may take the lock.
#[derive(Debug)]
pub(crate) enum DelayDecision {
    /// It may, and its own delay node is written if it wants one.
    Open,
    /// A delay runs for this much longer.
    Barred(Duration),
    /// The queue or the delay node has changed since we read it.
    Again,
}

/// The first ticket of a queue, before its grant is reported.
pub(crate) struct FirstInQueue<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) session: &'a ZooKeeperSession,
    pub(crate) ask: &'a AttemptRequest,
    pub(crate) node: &'a QueueNode,
    pub(crate) deadline: BootInstant,
}

impl FirstInQueue<'_> {
    /// Waits for a delay that a former hold left, then writes or deletes the delay node for this hold.
    pub(crate) async fn pass(&self, mark: Option<DelayMark>) -> Result<DelayDecision> {
        let Some(mark) = mark else {
            return if self.ask.delay.is_zero() {
                Ok(DelayDecision::Open)
            } else {
                self.leave().await
            };
        };
        if mark.generation == self.node.zxid {
            return Ok(DelayDecision::Open); // a repeated attempt: the delay node is its own
        }
        let way = self.wait(&mark).await?;
        if matches!(way, DelayDecision::Open) {
            self.overrule(&mark).await
        } else {
            Ok(way)
        }
    }

    /// The rest of the delay of a hold that ended without a release.
    async fn wait(&self, mark: &DelayMark) -> Result<DelayDecision> {
        let (name, now) = (&self.ask.ticket.name, self.shared.timers.now());
        let here = self.shared.sightings.since(name, mark.generation, now);
        if here >= mark.delay {
            return Ok(DelayDecision::Open);
        }
        // If no client has marked it as seen, our write does, and starts the delay for all clients.
        if !mark.seen {
            let seen = delay_node::written(mark.generation, mark.delay, true);
            let path = self.shared.delay_path(name);
            let noted = self
                .session
                .client
                .set_data(&path, seen.as_bytes(), Some(mark.version));
            let noted = self.changed(noted.map(|noted| noted.map(drop))).await?;
            return Ok(if noted {
                DelayDecision::Barred(mark.delay)
            } else {
                DelayDecision::Again
            });
        }
        // The reply to a write tells the server's time, so we rewrite our own node.
        let own = format!("{}/{}", self.shared.path(name), self.node.name);
        let note = self.shared.note(&self.ask.ticket);
        let answer = self.session.client.set_data(&own, &note, None);
        let answer = self.shared.timers.until(self.deadline, answer).await;
        let stat = match answer.ok_or_else(|| errors::late(ErrorKind::Unavailable))? {
            Err(zk::Error::NoNode) => return Ok(DelayDecision::Again),
            stat => stat.map_err(errors::unread)?,
        };
        // One millisecond less: both times are rounded down, so their difference may be too large by up to that much.
        let passed = stat.mtime.saturating_sub(mark.at).saturating_sub(1);
        let passed = Duration::from_millis(u64::try_from(passed).unwrap_or(0)).max(here);
        let left = mark.delay.saturating_sub(passed);
        Ok(if left.is_zero() {
            DelayDecision::Open
        } else {
            DelayDecision::Barred(left)
        })
    }

    /// Writes this hold's delay node where there is none.
    async fn leave(&self) -> Result<DelayDecision> {
        let path = self.shared.delay_path(&self.ask.ticket.name);
        self.will_be_marked();
        let mode = zk::CreateMode::Persistent.with_acls(self.shared.connection.rights());
        let data = self.own();
        let answer = self.session.client.create(&path, data.as_bytes(), &mode);
        let answer = self.shared.timers.until(self.deadline, answer).await;
        match answer.ok_or_else(|| errors::late(ErrorKind::OutcomeUnknown))? {
            Ok(_) => Ok(DelayDecision::Open),
            Err(zk::Error::NodeExists) => Ok(DelayDecision::Again),
            Err(zk::Error::NoNode) => {
                let home = self.shared.connection.address().path(DELAYS_PARENT);
                let answer = self.session.client.mkdir(&home, &mode);
                let answer = self.shared.timers.until(self.deadline, answer).await;
                let answer = answer.ok_or_else(|| errors::late(ErrorKind::Unavailable))?;
                answer.map_err(errors::unread)?;
                Ok(DelayDecision::Again)
            }
            Err(error) => Err(errors::unwritten(error)),
        }
    }

    /// Replaces a delay node whose delay is over with this hold's own, or deletes it if this hold wants none.
    async fn overrule(&self, mark: &DelayMark) -> Result<DelayDecision> {
        let name = &self.ask.ticket.name;
        let path = self.shared.delay_path(name);
        let done = if self.ask.delay.is_zero() {
            let gone = self.session.client.delete(&path, Some(mark.version));
            self.changed(gone).await?
        } else {
            self.will_be_marked();
            let data = self.own();
            let set = self
                .session
                .client
                .set_data(&path, data.as_bytes(), Some(mark.version));
            self.changed(set.map(|set| set.map(drop))).await?
        };
        if !done {
            return Ok(DelayDecision::Again);
        }
        self.shared.sightings.forget(name);
        Ok(DelayDecision::Open)
    }

    fn own(&self) -> String {
        delay_node::written(self.node.zxid, self.ask.delay, false)
    }

    /// Records the delay node before the write is sent. Otherwise a release after a lost reply would leave it behind.
    fn will_be_marked(&self) {
        self.shared.registry.marks(&self.ask.ticket, self.node);
    }

    /// Awaits a conditional change. False: the node has changed or gone since we read it.
    async fn changed(
        &self,
        change: impl Future<Output = std::result::Result<(), zk::Error>>,
    ) -> Result<bool> {
        let answer = self.shared.timers.until(self.deadline, change).await;
        match answer.ok_or_else(|| errors::late(ErrorKind::OutcomeUnknown))? {
            Ok(()) => Ok(true),
            Err(zk::Error::NoNode | zk::Error::BadVersion) => Ok(false),
            Err(error) => Err(errors::unwritten(error)),
        }
    }
}

/// Releases a hold: deletes its node and its delay node in one transaction. `None`: the delay node is missing,
/// belongs to another hold or has changed meanwhile, so the caller must delete the hold's node by itself. False: the
/// hold's node had already gone, and the delay node stays.
pub(crate) async fn release(
    shared: &Shared,
    session: &ZooKeeperSession,
    name: &Name,
    node: &QueueNode,
    deadline: BootInstant,
) -> Result<Option<bool>> {
    let path = shared.delay_path(name);
    let answer = shared
        .timers
        .until(deadline, session.client.get_data(&path));
    let answer = answer.await;
    let mark = delay_node::mark(answer.ok_or_else(|| errors::late(ErrorKind::Unavailable))?)?;
    let Some(mark) = mark.filter(|mark| mark.generation == node.zxid) else {
        return Ok(None);
    };
    let own = format!("{}/{}", shared.path(name), node.name);
    let both = {
        let mut both = session.client.new_multi_writer();
        let added = both.add_delete(&own, None);
        added
            .and(both.add_delete(&path, Some(mark.version)))
            .map_err(errors::unread)?;
        both.commit()
    };
    let done = shared.timers.until(deadline, both).await;
    match done.ok_or_else(|| errors::late(ErrorKind::OutcomeUnknown))? {
        Ok(_) => Ok(Some(true)),
        Err(zk::MultiWriteError::OperationFailed {
            index: 0,
            source: zk::Error::NoNode,
        }) => Ok(Some(false)),
        Err(zk::MultiWriteError::OperationFailed {
            source: zk::Error::NoNode | zk::Error::BadVersion,
            ..
        }) => Ok(None),
        Err(
            zk::MultiWriteError::RequestFailed { source }
            | zk::MultiWriteError::OperationFailed { source, .. },
        ) => Err(errors::unwritten(source)),
    }
}

/// Deletes the delay node of this hold, whose own node has gone. That of a later hold stays; otherwise the next holder would
/// lose its delay.
///
/// We read it before we delete it. A waiter may have marked it as seen meanwhile, which changes its version, and the delay node
/// of a later hold may have the version that was read before.
pub(crate) async fn remove(
    shared: &Shared,
    session: &ZooKeeperSession,
    name: &Name,
    generation: i64,
    deadline: BootInstant,
) -> Result<()> {
    let path = shared.delay_path(name);
    loop {
        let now = session.client.get_data(&path);
        let now = shared.timers.until(deadline, now).await;
        let now = delay_node::mark(now.ok_or_else(|| errors::late(ErrorKind::Unavailable))?)?;
        let Some(now) = now.filter(|now| now.generation == generation) else {
            return Ok(());
        };
        let gone = session.client.delete(&path, Some(now.version));
        match shared.timers.until(deadline, gone).await {
            Some(Ok(()) | Err(zk::Error::NoNode)) => return Ok(()),
            Some(Err(zk::Error::BadVersion)) => {}
            Some(Err(error)) => return Err(errors::unwritten(error)),
            None => return Err(errors::late(ErrorKind::OutcomeUnknown)),
        }
    }
}
