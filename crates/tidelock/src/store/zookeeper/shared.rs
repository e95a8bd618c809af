//! The state that all operations of an open store share.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::error::Result;
use crate::snapshot::ClientInfo;
use crate::store::zookeeper::connection::{Connection, ZooKeeperSession};
use crate::store::zookeeper::delay_node::{DELAYS_PARENT, DelayMark, DelaySightings};
use crate::store::zookeeper::permit_steps::PermitPaths;
use crate::store::zookeeper::queue::QueueReader;
use crate::store::zookeeper::registry::NodeRegistry;
use crate::store::zookeeper::{keys, note};
use crate::store::{Background, BootInstant, Name, Ticket, Timers, WakeChannels};

/// The state of an open store.
pub(crate) struct Shared {
    /// The session for leases as long as the client's, and for requests that belong to no lease.
    pub(crate) connection: Arc<Connection>,
    /// Sessions for leases of half that length, a quarter and so on, opened on demand. A session expires for all of
    /// its leases at once. With a single long session, a crashed holder of a short lease would block others for the
    /// client's full lease.
    pub(crate) short: Vec<Arc<Connection>>,
    /// Which node each ticket has.
    pub(crate) registry: NodeRegistry,
    /// The nodes that the lease task is deleting. If an attempt took one of them for its own, its lock would end with the node.
    pub(crate) deleting: Mutex<HashSet<String>>,
    /// Set before a close forgets the nodes.
    pub(crate) closed: AtomicBool,
    pub(crate) sightings: DelaySightings,
    pub(crate) queues: QueueReader,
    /// One channel per ticket, so that a watch wakes only its own waiter.
    pub(crate) signals: WakeChannels,
    pub(crate) timers: Timers,
    pub(crate) background: Background,
    pub(crate) lease: Duration,
    pub(crate) response_timeout: Duration,
    /// The process details that each new node carries.
    pub(crate) info: Mutex<Option<ClientInfo>>,
}

impl Shared {
    /// The session for this ticket: the one that created its node, otherwise the shortest one that serves its lease.
    pub(crate) fn connection_for(&self, ticket: &Ticket, lease: Duration) -> Arc<Connection> {
        if let Some(connection) = self.registry.connection(ticket) {
            return connection;
        }
        let fits = |connection: &&Arc<Connection>| lease <= connection.lease();
        let connection = self
            .short
            .iter()
            .rev()
            .find(fits)
            .unwrap_or(&self.connection);
        Arc::clone(connection)
    }

    /// The path of the node under which a lock's tickets queue.
    pub(crate) fn path(&self, name: &Name) -> String {
        self.connection.address().path(&keys::escape(name.as_str()))
    }

    /// The path of a lock's delay node.
    pub(crate) fn delay_path(&self, name: &Name) -> String {
        let home = self.connection.address().path(DELAYS_PARENT);
        format!("{home}/{}", keys::escape(name.as_str()))
    }

    /// The nodes of a semaphore.
    pub(crate) fn permit_paths(&self, name: &Name) -> PermitPaths {
        let claims = self.connection.address().path(keys::CLAIMS_PARENT);
        PermitPaths {
            number: format!("{}/{}", self.path(name), keys::NUMBER),
            claims: format!("{claims}/{}", keys::escape(name.as_str())),
        }
    }

    /// The nodes under a lock, and its delay node, in one round trip.
    pub(crate) async fn queue(
        &self,
        session: &ZooKeeperSession,
        name: &Name,
        deadline: BootInstant,
    ) -> Result<(Vec<String>, Option<DelayMark>)> {
        let (parent, mark) = (self.path(name), self.delay_path(name));
        let read = self
            .queues
            .read_with_delay(session, &parent, mark, deadline);
        read.await
    }

    /// The content of a ticket's node.
    pub(crate) fn note(&self, ticket: &Ticket) -> Vec<u8> {
        let info = self.info.lock();
        note::write(ticket.owner.text(), info.as_ref())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.registry.notify.notify_one(); // wakes the lease task, which then finds the store dropped and ends
    }
}
