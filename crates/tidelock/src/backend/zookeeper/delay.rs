//! Lock-delay: a node beside the locks that says which hold it is for, removed together with that hold's node by a release.
//!
//! It has no session, so it stands when the holder's node has gone with its own: then whoever is first in the queue waits
//! for the delay before it has the lock. It bars nobody for ever. The first who finds it after the end notes that in it, by
//! which the others know by the server's clock when the delay is over; and whoever has waited that long by its own clock
//! goes on whatever the server's says. It is no node of the queue: Curator, which would wait for it without end, sees none.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use zookeeper_client as zk;

use super::entry::Node;
use super::link::Session;
use super::turn::{see, some};
use super::{Shared, names, trouble};
use crate::backend::{Ask, Moment, Name, Ticket};
use crate::error::{ErrorKind, Result};

/// The node above all of them. No lock has that name.
const HOME: &str = "%delays";
/// More first sights than this are not remembered.
const MOST: usize = 256;

/// What a hold has left, or is to leave if it ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// The transaction that made the holder's node.
    pub(super) generation: i64,
    delay: Duration,
    /// Somebody has found it when the holder's node had gone.
    seen: bool,
    version: i32,
    /// When it was written, by the server's clock, in milliseconds.
    at: i64,
}

/// When this process first found which mark without its holder.
#[derive(Debug, Default)]
pub(super) struct Sights(Mutex<HashMap<Name, (i64, Moment)>>);

impl Sights {
    /// For how long it has been known here.
    fn since(&self, name: &Name, generation: i64, now: Moment) -> Duration {
        let mut sights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match sights.get(name) {
            Some((known, at)) if *known == generation => now.since(*at),
            _ => {
                if sights.len() >= MOST {
                    sights.clear(); // those delays are counted anew
                }
                sights.insert(name.clone(), (generation, now));
                Duration::ZERO
            }
        }
    }

    fn forget(&self, name: &Name) {
        let mut sights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sights.remove(name);
    }
}

/// Where the mark of a lock is.
pub(super) fn path(shared: &Shared, name: &Name) -> String {
    let home = shared.link.place().path(HOME);
    format!("{home}/{}", names::escape(name.as_str()))
}

/// What is written for a hold.
pub(super) fn written(generation: i64, delay: Duration, seen: bool) -> String {
    let seen = if seen { " seen" } else { "" };
    format!("{generation} {}{seen}", delay.as_millis())
}

/// What was written. Whatever else stands there is over already: it must bar nobody.
pub(super) fn read(data: &[u8]) -> (i64, Duration, bool) {
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

/// `None`: there is none.
pub(super) fn mark(
    answer: std::result::Result<(Vec<u8>, zk::Stat), zk::Error>,
) -> Result<Option<Mark>> {
    Ok(some(answer)?.map(|(data, stat)| {
        let (generation, delay, seen) = read(&data);
        Mark {
            generation,
            delay,
            seen,
            version: stat.version,
            at: stat.mtime,
        }
    }))
}

/// The nodes of a queue as the leader knows them, and behind them, in the same trip, the mark: whoever has the lock wrote
/// its mark before, so where its node has gone its mark is seen.
pub(super) async fn look(
    shared: &Shared,
    session: &Session,
    name: &Name,
    deadline: Moment,
) -> Result<(Vec<String>, Option<Mark>)> {
    let mark = Some(path(shared, name));
    let sight = see(shared, session, &shared.path(name), mark, deadline).await?;
    Ok((sight.nodes.unwrap_or_default(), sight.mark))
}

/// Whether the first of a queue may have the lock.
#[derive(Debug)]
pub(super) enum Way {
    /// It has it, and its own mark stands if it wants one.
    Open,
    /// Not for so long yet.
    Barred(Duration),
    /// Something was different from what had been seen.
    Again,
}

/// The first of a queue, before it is told that it holds.
pub(super) struct First<'a> {
    pub(super) shared: &'a Shared,
    pub(super) session: &'a Session,
    pub(super) ask: &'a Ask,
    pub(super) node: &'a Node,
    pub(super) deadline: Moment,
}

impl First<'_> {
    pub(super) async fn pass(&self, mark: Option<Mark>) -> Result<Way> {
        let Some(mark) = mark else {
            return if self.ask.delay.is_zero() {
                Ok(Way::Open)
            } else {
                self.leave().await
            };
        };
        if mark.generation == self.node.zxid {
            return Ok(Way::Open); // asked again: it is its own
        }
        let way = self.wait(&mark).await?;
        if matches!(way, Way::Open) {
            self.overrule(&mark).await
        } else {
            Ok(way)
        }
    }

    /// What is left of the delay of a hold that has ended.
    async fn wait(&self, mark: &Mark) -> Result<Way> {
        let (name, now) = (&self.ask.ticket.name, self.shared.timers.now());
        let here = self.shared.sights.since(name, mark.generation, now);
        if here >= mark.delay {
            return Ok(Way::Open);
        }
        if !mark.seen {
            let seen = written(mark.generation, mark.delay, true);
            let path = path(self.shared, name);
            let noted = self
                .session
                .client
                .set_data(&path, seen.as_bytes(), Some(mark.version));
            let noted = self.changed(noted.map(|noted| noted.map(drop))).await?;
            return Ok(if noted {
                Way::Barred(mark.delay)
            } else {
                Way::Again
            });
        }
        // A write says what time it is at the server.
        let own = format!("{}/{}", self.shared.path(name), self.node.name);
        let note = self.shared.note(&self.ask.ticket);
        let answer = self.session.client.set_data(&own, &note, None);
        let answer = self.shared.timers.until(self.deadline, answer).await;
        let stat = match answer.ok_or_else(|| trouble::late(ErrorKind::Unavailable))? {
            Err(zk::Error::NoNode) => return Ok(Way::Again),
            stat => stat.map_err(trouble::unread)?,
        };
        let passed = stat.mtime.saturating_sub(mark.at).saturating_sub(1);
        let passed = Duration::from_millis(u64::try_from(passed).unwrap_or(0)).max(here);
        let left = mark.delay.saturating_sub(passed);
        Ok(if left.is_zero() {
            Way::Open
        } else {
            Way::Barred(left)
        })
    }

    /// A mark of its own, where there is none.
    async fn leave(&self) -> Result<Way> {
        let path = path(self.shared, &self.ask.ticket.name);
        self.will_be_marked();
        let mode = zk::CreateMode::Persistent.with_acls(self.shared.link.rights());
        let data = self.own();
        let answer = self.session.client.create(&path, data.as_bytes(), &mode);
        let answer = self.shared.timers.until(self.deadline, answer).await;
        match answer.ok_or_else(|| trouble::late(ErrorKind::OutcomeUnknown))? {
            Ok(_) => Ok(Way::Open),
            Err(zk::Error::NodeExists) => Ok(Way::Again),
            Err(zk::Error::NoNode) => {
                let home = self.shared.link.place().path(HOME);
                let answer = self.session.client.mkdir(&home, &mode);
                let answer = self.shared.timers.until(self.deadline, answer).await;
                let answer = answer.ok_or_else(|| trouble::late(ErrorKind::Unavailable))?;
                answer.map_err(trouble::unread)?;
                Ok(Way::Again)
            }
            Err(error) => Err(trouble::unwritten(error)),
        }
    }

    /// In the place of one whose time is over: its own mark, or none.
    async fn overrule(&self, mark: &Mark) -> Result<Way> {
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
            return Ok(Way::Again);
        }
        self.shared.sights.forget(name);
        Ok(Way::Open)
    }

    fn own(&self) -> String {
        written(self.node.zxid, self.ask.delay, false)
    }

    /// Before it is sent: whatever becomes of the reply, a release looks for it.
    fn will_be_marked(&self) {
        let owner = &self.ask.ticket.owner;
        self.shared.books.marks(owner, self.node);
    }

    /// False: it is not what it was any more.
    async fn changed(
        &self,
        change: impl Future<Output = std::result::Result<(), zk::Error>>,
    ) -> Result<bool> {
        let answer = self.shared.timers.until(self.deadline, change).await;
        match answer.ok_or_else(|| trouble::late(ErrorKind::OutcomeUnknown))? {
            Ok(()) => Ok(true),
            Err(zk::Error::NoNode | zk::Error::BadVersion) => Ok(false),
            Err(error) => Err(trouble::unwritten(error)),
        }
    }
}

/// Ends a hold in good order: its node and its mark go together. `None`: the mark is not its own, or went meanwhile, and
/// the node is to be removed by itself. False: the node had gone before, and its mark stays.
pub(super) async fn release(
    shared: &Shared,
    session: &Session,
    ticket: &Ticket,
    node: &Node,
    deadline: Moment,
) -> Result<Option<bool>> {
    let path = path(shared, &ticket.name);
    let answer = shared
        .timers
        .until(deadline, session.client.get_data(&path));
    let answer = answer.await;
    let mark = mark(answer.ok_or_else(|| trouble::late(ErrorKind::Unavailable))?)?;
    let Some(mark) = mark.filter(|mark| mark.generation == node.zxid) else {
        return Ok(None);
    };
    let own = format!("{}/{}", shared.path(&ticket.name), node.name);
    let both = {
        let mut both = session.client.new_multi_writer();
        let added = both.add_delete(&own, None);
        added
            .and(both.add_delete(&path, Some(mark.version)))
            .map_err(trouble::unread)?;
        both.commit()
    };
    let done = shared.timers.until(deadline, both).await;
    match done.ok_or_else(|| trouble::late(ErrorKind::OutcomeUnknown))? {
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
        ) => Err(trouble::unwritten(source)),
    }
}

/// Removes a mark by force.
pub(super) async fn remove(
    shared: &Shared,
    session: &Session,
    name: &Name,
    deadline: Moment,
) -> Result<()> {
    let path = path(shared, name);
    let gone = session.client.delete(&path, None);
    match shared.timers.until(deadline, gone).await {
        Some(Ok(()) | Err(zk::Error::NoNode)) => Ok(()),
        Some(Err(error)) => Err(trouble::unwritten(error)),
        None => Err(trouble::late(ErrorKind::OutcomeUnknown)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else_bars_anybody() {
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
