//! The marks of a job's slots: one persistent node for each, beside the locks.
//!
//! The server has no time to live for such nodes. So a mark says how long it is kept, and counts as gone once the
//! server's clock has passed that time after its last change. Each new mark deletes some that have expired.
//!
//! The version of a node says nothing of a mark that was deleted and made again: the new node counts from zero. So whoever
//! deletes a mark writes its parent in the same transaction, and whoever changes one checks that the parent has not been
//! written since the look. Otherwise a change that was delayed on its way could replace a mark that it has not seen.

use std::time::{Duration, SystemTime};

use futures_util::future::{try_join, try_join3};
use zookeeper_client as zk;

use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::error::{ErrorKind, Result};
use crate::snapshot::since_epoch;
use crate::store::zookeeper::ZooKeeper;
use crate::store::zookeeper::connection::ZooKeeperSession;
use crate::store::zookeeper::errors::{late, unless_missing, unread};
use crate::store::zookeeper::keys;
use crate::store::zookeeper::node_change::NodeChange;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::transaction::commit;
use crate::store::{BootInstant, BoxFuture, MarkChange, Marks, Name};

/// The parent of the marks of all jobs. No lock can have this name.
const MARKS_PARENT: &str = "%marks";

/// How many marks a write looks at, to delete those that have expired.
const SWEPT: usize = 4;

/// How many marks are read without waiting for a reply. One after the other, some thousand marks would take longer than
/// anybody waits for one answer.
const READ_AT_ONCE: usize = 256;

/// The pause before a change is sent again.
const CONFLICT: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(1), Duration::from_millis(50)).jitter(1.0);

/// The marks of one job.
struct JobMarks<'a> {
    shared: &'a Shared,
    /// The node that has a child for each slot.
    parent: String,
    /// The node above all parents.
    clock: String,
    deadline: BootInstant,
}

/// A mark that has not expired.
struct LiveMark {
    text: String,
    stat: zk::Stat,
}

impl<'a> JobMarks<'a> {
    fn of(shared: &'a Shared, name: &Name) -> Self {
        let clock = shared.connection.address().path(MARKS_PARENT);
        Self {
            shared,
            parent: format!("{clock}/{}", keys::escape(name.as_str())),
            clock,
            deadline: shared.connection.deadline(),
        }
    }

    fn path(&self, slot: &str) -> String {
        format!("{}/{}", self.parent, keys::escape(slot))
    }

    /// The server's time.
    async fn now(&self) -> Result<SystemTime> {
        let session = self.shared.connection.session(self.deadline).await?;
        loop {
            if let Some(millis) = self.clock(&session).await? {
                return Ok(since_epoch(millis.unsigned_abs()));
            }
            self.create(&session, &self.clock).await?;
        }
    }

    /// The server's time. Only a reply to a write tells it, so we write the node above all parents. `None`: it is missing, so
    /// there are no marks.
    async fn clock(&self, session: &ZooKeeperSession) -> Result<Option<i64>> {
        let touched = session.client.set_data(&self.clock, b"", None);
        let touched = self.shared.timers.until(self.deadline, touched).await;
        let stat = unless_missing(touched.ok_or_else(|| late(ErrorKind::Unavailable))?)?;
        Ok(stat.map(|stat| stat.mtime))
    }

    /// The version of the parent, which grows with each deletion of a mark. `None`: there is no parent, so there are no
    /// marks.
    async fn deletions(&self, session: &ZooKeeperSession) -> Result<Option<i32>> {
        let seen = session.client.check_stat(&self.parent);
        let seen = self.shared.timers.until(self.deadline, seen).await;
        let stat = seen.ok_or_else(|| late(ErrorKind::Unavailable))?;
        Ok(stat.map_err(unread)?.map(|stat| stat.version))
    }

    /// Creates the parent, or the node above all parents.
    async fn create(&self, session: &ZooKeeperSession, node: &str) -> Result<()> {
        let mode = zk::CreateMode::Persistent.with_acls(self.shared.connection.rights());
        let creating = session.client.mkdir(node, &mode);
        let created = self.shared.timers.until(self.deadline, creating).await;
        created
            .ok_or_else(|| late(ErrorKind::Unavailable))?
            .map_err(unread)
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
        let session = self.shared.connection.session(self.deadline).await?;
        let mut conflicts = 0;
        loop {
            // All three share one round trip, and the session keeps their order: the mark was read after the parent. The time
            // comes from a write, so both reads see at least what was there before this call.
            let path = self.path(change.slot);
            let (now, deletions, found) = try_join3(
                self.clock(&session),
                self.deletions(&session),
                self.get(&session, &path),
            )
            .await?;
            let (Some(now), Some(deletions)) = (now, deletions) else {
                if change.before.is_some() {
                    return Ok(false);
                }
                if change.after.is_empty() {
                    return Ok(true);
                }
                self.create(&session, &self.parent).await?;
                continue;
            };
            let found = live(found, now);
            let seen = found.as_ref().ok().map(|mark| &*mark.text);
            if seen != change.before {
                return Ok(false);
            }
            let is_new = seen.is_none();
            let version = found.map_or_else(|expired| expired, |mark| Some(mark.stat.version));
            let transaction = self.change(&change, deletions, path, version);
            let failed = commit(self.shared, &session, &transaction, self.deadline).await?;
            if failed.is_some() {
                // It has changed since the look, or another mark was deleted. A client of an older version writes the parent at
                // each look.
                self.shared.timers.after(CONFLICT.pause(conflicts)).await;
                conflicts += 1;
                continue;
            }
            // Only a new mark sweeps, and looks at several others, so marks that have expired do not pile up. The record of a
            // process is written every few seconds and must not list all the others each time.
            if is_new && !change.after.is_empty() {
                self.sweep(&session, now).await;
            }
            return Ok(true);
        }
    }

    /// The transaction that changes a node of this version. `None`: there is no node.
    fn change(
        &self,
        change: &MarkChange<'_>,
        deletions: i32,
        path: String,
        version: Option<i32>,
    ) -> Vec<NodeChange> {
        let data = format!("{} {}", change.keep.as_millis(), change.after).into_bytes();
        let unchanged = NodeChange::Check {
            path: self.parent.clone(),
            version: Some(deletions),
        };
        match version {
            Some(version) if change.after.is_empty() => {
                Vec::from(self.deletion(deletions, path, version))
            }
            Some(version) => Vec::from([
                unchanged,
                NodeChange::Set {
                    path,
                    data,
                    version,
                },
            ]),
            // An empty mark needs no node.
            None if change.after.is_empty() => Vec::from([unchanged]),
            None => Vec::from([unchanged, NodeChange::Create { path, data }]),
        }
    }

    /// Deletes a node of this version, and lets others see that.
    fn deletion(&self, deletions: i32, path: String, version: i32) -> [NodeChange; 2] {
        let seen = NodeChange::Set {
            path: self.parent.clone(),
            data: Vec::new(),
            version: deletions,
        };
        let version = Some(version);
        [seen, NodeChange::Delete { path, version }]
    }

    /// Deletes a few expired marks of this job, from a different place each time. A failure does no harm.
    async fn sweep(&self, session: &ZooKeeperSession, now: i64) {
        if let Err(error) = self.delete_expired(session, now).await {
            tracing::debug!(%error, "cannot delete expired marks");
        }
    }

    async fn delete_expired(&self, session: &ZooKeeperSession, now: i64) -> Result<()> {
        let slots = session.client.list_children(&self.parent);
        let slots = self.shared.timers.until(self.deadline, slots).await;
        let slots = unless_missing(slots.ok_or_else(|| late(ErrorKind::Unavailable))?)?;
        let slots = slots.unwrap_or_default();
        let from = usize::try_from(now.unsigned_abs()).unwrap_or_default() % slots.len().max(1);
        for slot in slots.iter().cycle().skip(from).take(SWEPT.min(slots.len())) {
            let path = format!("{}/{slot}", self.parent);
            let both = try_join(self.deletions(session), self.get(session, &path));
            let (Some(deletions), found) = both.await? else {
                return Ok(());
            };
            if let Err(Some(version)) = live(found, now) {
                let deletion = self.deletion(deletions, path, version);
                commit(self.shared, session, &deletion, self.deadline).await?;
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with this text, written at the thousandth millisecond.
    fn node(text: &[u8]) -> (Vec<u8>, zk::Stat) {
        let stat = zk::Stat {
            czxid: 1,
            mzxid: 2,
            pzxid: 1,
            ctime: 900,
            mtime: 1000,
            version: 4,
            cversion: 0,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children: 0,
        };
        (text.to_vec(), stat)
    }

    #[test]
    fn a_mark_lives_for_its_time_after_its_last_change_and_what_is_unreadable_has_expired() {
        for (found, now, expected) in [
            (Some(node(b"250 done")), 1249, Ok("done")),
            (Some(node(b"250 done")), 1250, Err(Some(4))),
            (Some(node(b"250 two words")), 1000, Ok("two words")),
            (Some(node(b"9223372036854775807 done")), 5000, Ok("done")),
            (Some(node(b"done")), 1000, Err(Some(4))),
            (Some(node(b"long done")), 1000, Err(Some(4))),
            (None, 1000, Err(None)),
        ] {
            let live = live(found, now);
            let live = live.as_ref().map(|mark| &*mark.text);
            assert_eq!(live.map_err(|version| *version), expected, "{now}");
        }
    }
}
