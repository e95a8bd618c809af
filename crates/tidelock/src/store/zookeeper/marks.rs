//! The marks of a job's slots: one persistent node for each, beside the locks.
//!
//! The server has no time to live for such nodes. So a mark says how long it is kept, and counts as gone once the
//! server's clock has passed that time after its last change. Each new mark deletes some that have expired.

use std::time::SystemTime;

use zookeeper_client as zk;

use crate::error::{ErrorKind, Result};
use crate::snapshot::since_epoch;
use crate::store::zookeeper::ZooKeeper;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::errors::{late, unless_missing, unread, unwritten};
use crate::store::zookeeper::keys;
use crate::store::zookeeper::shared::Shared;
use crate::store::{BootInstant, BoxFuture, MarkChange, Marks, Name};

/// The parent of the marks of all jobs. No lock can have this name.
const MARKS_PARENT: &str = "%marks";

/// How many marks a write looks at, to delete those that have expired.
const SWEPT: usize = 4;

/// How many marks are read without waiting for a reply. One after the other, some thousand marks would take longer than
/// anybody waits for one answer.
const READ_AT_ONCE: usize = 256;

/// The marks of one job.
struct JobMarks<'a> {
    shared: &'a Shared,
    /// The node that has a child for each slot.
    parent: String,
    deadline: BootInstant,
}

/// A mark that has not expired.
struct LiveMark {
    text: String,
    stat: zk::Stat,
}

impl<'a> JobMarks<'a> {
    fn of(shared: &'a Shared, name: &Name) -> Self {
        let address = shared.connection.address();
        let parent = address.path(MARKS_PARENT);
        Self {
            shared,
            parent: format!("{parent}/{}", keys::escape(name.as_str())),
            deadline: shared.connection.deadline(),
        }
    }

    fn path(&self, slot: &str) -> String {
        format!("{}/{}", self.parent, keys::escape(slot))
    }

    /// The server's time. Only a reply to a write tells it, so we write the parent.
    async fn now(&self) -> Result<SystemTime> {
        let session = self.shared.connection.session(self.deadline).await?;
        let millis = match self.clock(&session).await? {
            Some(millis) => millis,
            None => self.create_parent(&session).await?,
        };
        Ok(since_epoch(millis.unsigned_abs()))
    }

    /// `None`: there is no parent, so there are no marks.
    async fn clock(&self, session: &ZooKeeperSession) -> Result<Option<i64>> {
        let touched = session.client.set_data(&self.parent, b"", None);
        let touched = self.shared.timers.until(self.deadline, touched).await;
        let stat = unless_missing(touched.ok_or_else(|| late(ErrorKind::Unavailable))?)?;
        Ok(stat.map(|stat| stat.mtime))
    }

    /// Creates the parent, and returns the server's time.
    async fn create_parent(&self, session: &ZooKeeperSession) -> Result<i64> {
        let mode = zk::CreateMode::Persistent.with_acls(self.shared.connection.rights());
        let creating = session.client.mkdir(&self.parent, &mode);
        let created = self.shared.timers.until(self.deadline, creating).await;
        created
            .ok_or_else(|| late(ErrorKind::Unavailable))?
            .map_err(unread)?;
        let now = self.clock(session).await?;
        now.ok_or_else(|| late(ErrorKind::Unavailable))
    }

    async fn read(&self, slot: &str) -> Result<Option<String>> {
        let session = self.shared.connection.session(self.deadline).await?;
        let Some(now) = self.clock(&session).await? else {
            return Ok(None);
        };
        let found = self.get(&session, &self.path(slot)).await?;
        Ok(live(found, now).ok().map(|mark| mark.text))
    }

    async fn get(
        &self,
        session: &ZooKeeperSession,
        path: &str,
    ) -> Result<Option<(Vec<u8>, zk::Stat)>> {
        let read = session.client.get_data(path);
        let read = self.shared.timers.until(self.deadline, read).await;
        unless_missing(read.ok_or_else(|| late(ErrorKind::Unavailable))?)
    }

    async fn replace(&self, change: MarkChange<'_>) -> Result<bool> {
        let MarkChange {
            slot,
            before,
            after,
            keep,
            ..
        } = change;
        let session = self.shared.connection.session(self.deadline).await?;
        let now = match self.clock(&session).await? {
            Some(now) => now,
            None if after.is_empty() => return Ok(before.is_none()),
            None => self.create_parent(&session).await?,
        };
        let path = self.path(slot);
        let found = self.get(&session, &path).await?;
        let (seen, version) = match live(found, now) {
            Ok(mark) => (Some(mark.text), Some(mark.stat.version)),
            Err(expired) => (None, expired),
        };
        if seen.as_deref() != before {
            return Ok(false);
        }
        let data = format!("{} {after}", keep.as_millis());
        let changed = async {
            let data = data.as_bytes();
            match version {
                // An empty mark needs no node.
                None if after.is_empty() => Ok(()),
                Some(version) if after.is_empty() => {
                    session.client.delete(&path, Some(version)).await
                }
                Some(version) => {
                    let set = session.client.set_data(&path, data, Some(version));
                    set.await.map(drop)
                }
                None => {
                    let rights = self.shared.connection.rights();
                    let mode = zk::CreateMode::Persistent.with_acls(rights);
                    session.client.create(&path, data, &mode).await.map(drop)
                }
            }
        };
        let changed = self.shared.timers.until(self.deadline, changed).await;
        match changed.ok_or_else(|| late(ErrorKind::OutcomeUnknown))? {
            Ok(()) => {}
            Err(zk::Error::BadVersion | zk::Error::NodeExists | zk::Error::NoNode) => {
                return Ok(false);
            }
            Err(error) => return Err(unwritten(error)),
        }
        // Only a new mark sweeps, and looks at several others, so marks that have expired do not pile up. The record of a
        // process is written every few seconds and must not list all the others each time.
        if seen.is_none() && !after.is_empty() {
            self.sweep(&session, now).await;
        }
        Ok(true)
    }

    /// Deletes a few expired marks of this job, from a different place each time. A failure does no harm.
    async fn sweep(&self, session: &ZooKeeperSession, now: i64) {
        let swept = async {
            let slots = session.client.list_children(&self.parent).await?;
            let from = usize::try_from(now.unsigned_abs()).unwrap_or_default() % slots.len().max(1);
            for slot in slots.iter().cycle().skip(from).take(SWEPT.min(slots.len())) {
                let path = format!("{}/{slot}", self.parent);
                let found = session.client.get_data(&path).await?;
                let version = found.1.version;
                if live(Some(found), now).is_err() {
                    session.client.delete(&path, Some(version)).await?;
                }
            }
            Ok::<_, zk::Error>(())
        };
        if let Some(Err(error)) = self.shared.timers.until(self.deadline, swept).await {
            tracing::debug!(%error, "cannot delete expired marks");
        }
    }

    async fn newest(&self, limit: u32) -> Result<Vec<(String, String)>> {
        let session = self.shared.connection.session(self.deadline).await?;
        let Some(now) = self.clock(&session).await? else {
            return Ok(Vec::new());
        };
        let slots = session.client.list_children(&self.parent);
        let slots = self.shared.timers.until(self.deadline, slots).await;
        let slots = unless_missing(slots.ok_or_else(|| late(ErrorKind::Unavailable))?)?;
        let mut marks = Vec::new();
        for nodes in slots.unwrap_or_default().chunks(READ_AT_ONCE) {
            // Each group has a deadline of its own: a job with many slots takes longer than one response.
            let deadline = self.shared.connection.deadline();
            let paths = nodes.iter().map(|node| format!("{}/{node}", self.parent));
            let asked: Vec<_> = paths.map(|path| session.client.get_data(&path)).collect();
            for (node, asked) in nodes.iter().zip(asked) {
                let found = self.shared.timers.until(deadline, asked).await;
                let found = unless_missing(found.ok_or_else(|| late(ErrorKind::Unavailable))?)?;
                if let (Ok(mark), Some(slot)) = (live(found, now), keys::name_of(node)) {
                    marks.push((mark.stat.mzxid, slot, mark.text));
                }
            }
        }
        marks.sort_by_key(|(changed, ..)| std::cmp::Reverse(*changed));
        marks.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(marks
            .into_iter()
            .map(|(_, slot, text)| (slot, text))
            .collect())
    }
}

/// The mark of a node. The error has the version of a node whose mark has expired; `None`: there is no node.
fn live(
    found: Option<(Vec<u8>, zk::Stat)>,
    now: i64,
) -> std::result::Result<LiveMark, Option<i32>> {
    let (data, stat) = found.ok_or(None)?;
    let text = String::from_utf8_lossy(&data);
    let (keep, text) = text.split_once(' ').unwrap_or(("0", &text));
    let keep: i64 = keep.parse().unwrap_or(0);
    if stat.mtime.saturating_add(keep) <= now {
        return Err(Some(stat.version));
    }
    Ok(LiveMark {
        text: text.to_owned(),
        stat,
    })
}

impl Marks for ZooKeeper {
    fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        Box::pin(async move { JobMarks::of(&self.0, name).now().await })
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        Box::pin(async move { JobMarks::of(&self.0, name).read(slot).await })
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let marks = JobMarks::of(&self.0, name);
            marks.replace(change).await
        })
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        Box::pin(async move { JobMarks::of(&self.0, name).newest(limit).await })
    }
}
