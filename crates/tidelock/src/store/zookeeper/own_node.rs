//! The node of one ticket: creates it, finds it again after a lost reply, and watches the nodes that it waits for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, Abortable, select_all};
use zookeeper_client as zk;

use crate::error::{Error, ErrorKind, Result};
use crate::store::zookeeper::connection::{Connection, ZooKeeperSession};
use crate::store::zookeeper::entry::{NodePlace, QueueNode, WatchTask};
use crate::store::zookeeper::errors;
use crate::store::zookeeper::release::leave_by;
use crate::store::zookeeper::sequence::SequenceNumber;
use crate::store::zookeeper::shared::Shared;
use crate::store::zookeeper::watch_list::WatchEntry;
use crate::store::{BootInstant, Ticket};

/// The shortest pause of a waiter without a watch.
const LOOKS_AFTER: Duration = Duration::from_secs(1);

/// How much longer that pause is for each node ahead of the waiter: it takes some milliseconds until such a node goes.
const LOOKS_LATER: Duration = Duration::from_millis(5);

/// Where the node of a ticket is, and the requests that make it.
pub(crate) struct OwnNode<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) connection: &'a Arc<Connection>,
    pub(crate) ticket: &'a Ticket,
    pub(crate) place: NodePlace,
    pub(crate) deadline: BootInstant,
}

/// What came of the wish to watch a node.
pub(crate) enum NodeWatch {
    /// This task wakes the ticket.
    Task(WatchTask),
    /// The session watches as much as it may, or may not watch this node. The waiter looks by itself, after [`OwnNode::looks_after`].
    NoRoom,
    /// The node is already gone.
    Gone,
}

impl OwnNode<'_> {
    /// Creates the node, and sends the requests of `also` behind it. All of them share one round trip, and the session keeps
    /// their order, so a list among them contains the new node. `None`: start over.
    pub(crate) async fn create<T>(
        &self,
        session: &ZooKeeperSession,
        data: &[u8],
        ends: BootInstant,
        also: impl FnOnce() -> T,
    ) -> Result<Option<(QueueNode, T)>> {
        let path = format!("{}/{}", self.place.parent, self.place.prefix);
        let rights = self.shared.connection.rights();
        let mode = zk::CreateMode::EphemeralSequential.with_acls(rights);
        let (ticket, registry) = (self.ticket, &self.shared.registry);
        let all = || (session.client.create(&path, data, &mode), also());
        let here = (self.connection, session.id());
        let begun = registry.create(ticket, here, &self.place, ends, all)?;
        let Some((create, (created, also))) = begun else {
            return Ok(None); // another attempt of this ticket has sent its create first
        };
        let answer = self.shared.timers.until(self.deadline, created).await;
        let answer = answer.ok_or_else(|| errors::late(ErrorKind::OutcomeUnknown))?;
        let node = match answer {
            Ok((stat, number)) => QueueNode {
                name: format!("{}{number}", self.place.prefix),
                zxid: stat.czxid,
            },
            // The parent is missing: nobody has queued here lately, and the server deletes empty containers.
            Err(zk::Error::NoNode) => {
                registry.gone(ticket, create);
                self.make_parent(session).await?;
                return Ok(None);
            }
            Err(error) => {
                let error = errors::unwritten(error);
                if !error.outcome_unknown() {
                    registry.gone(ticket, create);
                }
                return Err(error);
            }
        };
        registry.created(ticket, create, node.clone());
        Ok(Some((node, also)))
    }

    /// After a lost reply, looks for the node by its prefix. If it is missing, the create never takes effect: the
    /// session executes requests in order, so every create that was sent before this list has been executed before
    /// it.
    pub(crate) async fn find(&self, session: &ZooKeeperSession, create: u64) -> Result<()> {
        let (ticket, registry) = (self.ticket, &self.shared.registry);
        let parent = &self.place.parent;
        let queues = &self.shared.queues;
        let nodes = queues.read(session, parent, self.deadline).await?;
        let own = nodes.unwrap_or_default();
        for name in own
            .into_iter()
            .filter(|node| node.starts_with(&self.place.prefix))
        {
            let path = format!("{parent}/{name}");
            if self.shared.deleting.lock().contains(&path) {
                continue;
            }
            let stat = self.until(session.client.check_stat(&path)).await?;
            // A node of an older session is not ours. It goes when that session expires.
            if let Some(stat) = stat
                .map_err(errors::unread)?
                .filter(|stat| stat.ephemeral_owner == session.id())
            {
                let zxid = stat.czxid;
                registry.created(ticket, create, QueueNode { name, zxid });
                return Ok(());
            }
        }
        registry.gone(ticket, create);
        Ok(())
    }

    /// Refuses a node whose number says nothing about the order, and deletes it: while any node is there, the server keeps the
    /// path and does not count from zero again.
    pub(crate) async fn refuse_late(&self, node: &QueueNode) -> Result<()> {
        let digits = node.name.strip_prefix(&self.place.prefix);
        let number = digits.and_then(SequenceNumber::of);
        if !number.is_some_and(SequenceNumber::is_late) {
            return Ok(());
        }
        leave_by(self.shared, self.ticket, false, self.deadline).await?;
        Err(errors::numbers_used_up())
    }

    /// Wakes the ticket when that node changes or goes.
    pub(crate) async fn watch(&self, session: &ZooKeeperSession, path: &str) -> Result<NodeWatch> {
        let Some(entry) = session.watches.enter([path]) else {
            return Ok(NodeWatch::NoRoom);
        };
        let answer = self
            .until(session.client.check_and_watch_stat(path))
            .await?;
        let (stat, watcher) = match answer {
            Ok(both) => both,
            // Since 3.8.4 and 3.9.2 this needs the right to read the node. Another client may have made it with another login, while
            // the logins are being changed. The list of the queue still tells when it has gone.
            Err(zk::Error::NoAuth) => return Ok(NodeWatch::NoRoom),
            Err(error) => return Err(errors::unread(error)),
        };
        Ok(match stat {
            Some(_) => NodeWatch::Task(self.wakes_by(vec![watcher], entry)),
            None => NodeWatch::Gone,
        })
    }

    /// After what time a waiter looks that has no watch. `ahead`: how many nodes must go before its own.
    pub(crate) fn looks_after(&self, ahead: usize) -> Duration {
        let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
        let pause = LOOKS_LATER.saturating_mul(ahead).max(LOOKS_AFTER);
        pause.min(self.shared.lease / 3)
    }

    /// Wakes the ticket at the first event of one of these watches, for whose paths this is the entry.
    pub(crate) fn wakes_by(
        &self,
        watchers: Vec<zk::OneshotWatcher>,
        entry: WatchEntry,
    ) -> WatchTask {
        let (signals, channel) = (self.shared.signals.clone(), self.ticket.owner.clone());
        let (handle, ended) = AbortHandle::new_pair();
        let changes = watchers
            .into_iter()
            .map(|watcher| watcher.changed().boxed());
        let first = select_all(changes);
        let wait = async move {
            first.await;
            drop(entry);
            signals.wake_one(channel.text());
        };
        let background = &self.shared.background;
        background.spawn(Abortable::new(wait, ended).map(drop));
        WatchTask(handle)
    }

    pub(crate) async fn make_parent(&self, session: &ZooKeeperSession) -> Result<()> {
        let mode = zk::CreateMode::Container.with_acls(self.shared.connection.rights());
        let answer = self
            .until(session.client.mkdir(&self.place.parent, &mode))
            .await?;
        answer.map_err(|error| match error {
            zk::Error::NoNode => Error::new(ErrorKind::Unavailable)
                .because("a parent node of the lock was deleted during the request"),
            // A parent that may or may not exist does no harm, so this failure never counts as an unknown outcome.
            other => errors::unread(other),
        })
    }

    /// Until when a waiting node is kept if its caller does not return. Without this bound, a task that is never
    /// polled would block the whole queue.
    pub(crate) fn patience_ends(&self, sent: BootInstant) -> BootInstant {
        sent + self.shared.lease * 2 + self.shared.response_timeout
    }

    /// Awaits the answer to a read.
    pub(crate) async fn until<T>(&self, request: impl Future<Output = T>) -> Result<T> {
        let answer = self.shared.timers.until(self.deadline, request).await;
        answer.ok_or_else(|| errors::late(ErrorKind::Unavailable))
    }
}
