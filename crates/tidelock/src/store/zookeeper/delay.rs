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

use std::collections::HashMap;
use std::time::Duration;

use futures_util::FutureExt;
use zookeeper_client as zk;

use crate::engine::runtime::sync::Mutex;
use crate::error::{ErrorKind, Result};
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::entry::QueueNode;
use crate::store::zookeeper::queue::{see, some};
use crate::store::zookeeper::{Shared, errors, keys};
use crate::store::{AttemptRequest, BootInstant, Name, Ticket};

/// The parent of all delay nodes. No lock can have this name.
const DELAYS_PARENT: &str = "%delays";
/// Bounds how many first observations are remembered. Beyond it all of them are forgotten.
const MAX_SIGHTINGS: usize = 256;

/// The content of a delay node: the hold it belongs to, and the delay that applies if that hold ends without a
/// release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DelayMark {
    /// The transaction that created the holder's node.
    pub(crate) generation: i64,
    delay: Duration,
    /// A waiter has found this delay node after the holder's node had gone.
    seen: bool,
    version: i32,
    /// When the delay node was last written, by the server's clock, in milliseconds.
    at: i64,
}

/// For each lock, which delay node this process has found without its holder, and when it first did.
#[derive(Debug, Default)]
pub(crate) struct DelaySightings(Mutex<HashMap<Name, (i64, BootInstant)>>);

impl DelaySightings {
    /// How long this process has known the delay node.
    fn since(&self, name: &Name, generation: i64, now: BootInstant) -> Duration {
        let mut sightings = self.0.lock();
        match sightings.get(name) {
            Some((known, at)) if *known == generation => now.since(*at),
            _ => {
                if sightings.len() >= MAX_SIGHTINGS {
                    sightings.clear(); // the forgotten delays start over
                }
                sightings.insert(name.clone(), (generation, now));
                Duration::ZERO
            }
        }
    }

    fn forget(&self, name: &Name) {
        let mut sightings = self.0.lock();
        sightings.remove(name);
    }
}

/// The path of a lock's delay node.
pub(crate) fn path(shared: &Shared, name: &Name) -> String {
    let home = shared.connection.address().path(DELAYS_PARENT);
    format!("{home}/{}", keys::escape(name.as_str()))
}

/// Encodes a delay node.
pub(crate) fn written(generation: i64, delay: Duration, seen: bool) -> String {
    let seen = if seen { " seen" } else { "" };
    format!("{generation} {}{seen}", delay.as_millis())
}

/// Decodes a delay node. Unreadable data counts as a delay that is over; otherwise it would block the lock without
/// end.
pub(crate) fn read(data: &[u8]) -> (i64, Duration, bool) {
    let text = std::str::from_utf8(data).unwrap_or_default();
    let mut words = text.split(' ');
    let generation = words.next().and_then(|word| word.parse().ok());
    let delay = words.next().and_then(|word| word.parse().ok());
    match (generation, delay) {
        (Some(generation), Some(delay)) => {
            let seen = words.next() == Some("seen");
            (generation, Duration::from_millis(delay), seen)
        }
        _ => (0, Duration::ZERO, true),
    }
}

/// `None`: there is no delay node.
pub(crate) fn mark(
    answer: std::result::Result<(Vec<u8>, zk::Stat), zk::Error>,
) -> Result<Option<DelayMark>> {
    Ok(some(answer)?.map(|(data, stat)| {
        let (generation, delay, seen) = read(&data);
        DelayMark {
            generation,
            delay,
            seen,
            version: stat.version,
            at: stat.mtime,
        }
    }))
}

/// Lists the queue after a `sync`, then reads the delay node, in one round trip. A holder writes its delay node before
/// its grant is reported. So if the holder's own node has gone, its delay node is visible here.
pub(crate) async fn read_node(
    shared: &Shared,
    session: &ZooKeeperSession,
    name: &Name,
    deadline: BootInstant,
) -> Result<(Vec<String>, Option<DelayMark>)> {
    let mark = Some(path(shared, name));
    let sight = see(shared, session, &shared.path(name), mark, deadline).await?;
    Ok((sight.nodes.unwrap_or_default(), sight.mark))
}

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
            let seen = written(mark.generation, mark.delay, true);
            let path = path(self.shared, name);
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
        let path = path(self.shared, &self.ask.ticket.name);
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
        let path = path(self.shared, name);
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
        written(self.node.zxid, self.ask.delay, false)
    }

    /// Records the delay node before the write is sent. Otherwise a release after a lost reply would leave it behind.
    fn will_be_marked(&self) {
        let owner = &self.ask.ticket.owner;
        self.shared.registry.marks(owner, self.node);
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
    ticket: &Ticket,
    node: &QueueNode,
    deadline: BootInstant,
) -> Result<Option<bool>> {
    let path = path(shared, &ticket.name);
    let answer = shared
        .timers
        .until(deadline, session.client.get_data(&path));
    let answer = answer.await;
    let mark = mark(answer.ok_or_else(|| errors::late(ErrorKind::Unavailable))?)?;
    let Some(mark) = mark.filter(|mark| mark.generation == node.zxid) else {
        return Ok(None);
    };
    let own = format!("{}/{}", shared.path(&ticket.name), node.name);
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

/// Deletes a delay node, whichever hold it belongs to.
pub(crate) async fn remove(
    shared: &Shared,
    session: &ZooKeeperSession,
    name: &Name,
    deadline: BootInstant,
) -> Result<()> {
    let path = path(shared, name);
    let gone = session.client.delete(&path, None);
    match shared.timers.until(deadline, gone).await {
        Some(Ok(()) | Err(zk::Error::NoNode)) => Ok(()),
        Some(Err(error)) => Err(errors::unwritten(error)),
        None => Err(errors::late(ErrorKind::OutcomeUnknown)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_delay_is_read_and_nothing_else_bars_anybody() {
        for (delay, seen) in [(0, false), (30_000, false), (1, true), (u64::MAX, true)] {
            let delay = Duration::from_millis(delay);
            let text = written(77, delay, seen);
            assert_eq!(read(text.as_bytes()), (77, delay, seen), "{text}");
        }
        for junk in [b"".as_slice(), b"x", b"7", b"7 x", b"\xff 1", b"7 -1"] {
            assert_eq!(read(junk), (0, Duration::ZERO, true));
        }
    }
}
