//! A cluster: its nodes and the slot map, which assigns each slot to a node.
//!
//! The callers' requests, the background requests and the subscriptions share one map. It changes in two ways: a
//! `MOVED` redirect changes one slot at once, and a periodic refresh replaces the whole map.
//!
//! Lock order: the map's lock and those of `doubtful_until`, `outage`, `migrating` and the known nodes are never held
//! together, and no other lock of this client is taken under them.

mod discovery;
mod migrating;
mod outage;
pub(crate) mod slot_ranges;

pub(crate) use crate::store::redis::topology::cluster::discovery::follow;

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::engine::runtime::sync::{Mutex, RwLock};
use crate::store::redis::address;
use crate::store::redis::address::HostAddress;
use crate::store::redis::slots::SLOTS;
use crate::store::redis::topology::cluster::migrating::MigratingSlots;
use crate::store::redis::topology::cluster::outage::MapOutage;
use crate::store::redis::topology::cluster::slot_ranges::SlotRange;
use crate::store::redis::topology::connection::{Connection, ConnectionRuntime};
use crate::store::redis::topology::endpoint::{Endpoint, EndpointLogin, ServerFinder};
use crate::store::{Background, BootInstant, Timers};
use crate::types::Escaped;

/// How long we refresh the map more often after a sign that it is outdated. A failover takes some time.
const IN_DOUBT: Duration = Duration::from_secs(3);

/// How long after a change of the map a subscriber may still be connected to the slot's old node. It receives plain
/// messages there, but the new node does not count it. Redisson refreshes its map every 5 s.
const SETTLES: Duration = Duration::from_secs(30);

/// The index of a slot without a node.
const NOBODY: u16 = u16::MAX;

/// Separates the lanes of nodes from those of single slots.
const NODE_LANE: u64 = 1 << 63;

/// The cluster, shared by the store and the subscriptions.
pub(crate) struct Cluster {
    seeds: Vec<HostAddress>,
    entry: EndpointLogin,
    background: Background,
    pub(crate) timers: Timers,
    pub(crate) limit: Duration,
    map: RwLock<Arc<SlotMap>>,
    /// Counts the changes of the map.
    pub(crate) changes: watch::Sender<u64>,
    /// When the map last changed, in nanoseconds of the boot clock.
    changed_at: AtomicU64,
    /// Since when no node has reported the map of a cluster that is up. `None`: the last refresh has found one.
    outage: Mutex<Option<MapOutage>>,
    /// How long no node may report a map before the cluster counts as gone. At least the default lease: the locks of this client
    /// that have no longer one have ended by then.
    gone_after: Duration,
    /// Counts the refreshes. It rotates the node that we ask first.
    next_node: AtomicUsize,
    /// Notified to refresh the map early, and on close.
    refresh: Arc<Notify>,
    /// Until this moment we refresh more often.
    doubtful_until: Mutex<Option<BootInstant>>,
    migrating: MigratingSlots,
    closed: AtomicBool,
}

/// A node: its endpoint, a connection for callers and one for background requests.
pub(crate) struct ClusterNode {
    pub(crate) address: HostAddress,
    /// Its lane: see [`Cluster::lane`]. A node that is made again for the same address has the same lane.
    pub(crate) lane: u64,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) front: Connection,
    pub(crate) back: Connection,
}

/// The slot map at one moment.
#[derive(Default)]
struct SlotMap {
    /// The cluster's current epoch, as its nodes report it.
    epoch: i64,
    /// The epoch in which we last saw a slot change its owner. An election raises the current epoch before its result
    /// is known, so the current epoch alone does not show a change.
    settled: i64,
    nodes: Vec<Arc<ClusterNode>>,
    replicas: Vec<HostAddress>,
    /// The index of each slot's owner in `nodes`. Empty until the first refresh.
    owners: Vec<u16>,
}

/// The map as one node reports it.
struct NodeView {
    /// The address of that node.
    told_by: HostAddress,
    epoch: i64,
    /// The node lists itself as a primary.
    of_primary: bool,
    ranges: Vec<SlotRange>,
    /// The ids of the nodes, if it tells them.
    ids: HashSet<String>,
    /// The node does not report that the cluster is down. One that was left behind by a cluster that is gone does.
    is_up: bool,
}

impl Cluster {
    pub(crate) fn new(
        seeds: Vec<HostAddress>,
        entry: EndpointLogin,
        background: Background,
        timers: Timers,
        limit: Duration,
        gone_after: Duration,
    ) -> Self {
        let now = timers.now();
        Self {
            seeds,
            entry,
            background,
            timers,
            limit,
            map: RwLock::default(),
            changes: watch::Sender::default(),
            changed_at: AtomicU64::new(now.0),
            outage: Mutex::default(),
            gone_after,
            next_node: AtomicUsize::new(0),
            refresh: Arc::default(),
            doubtful_until: Mutex::default(),
            migrating: MigratingSlots::default(),
            closed: AtomicBool::new(false),
        }
    }

    fn map(&self) -> Arc<SlotMap> {
        Arc::clone(&self.map.read())
    }

    /// The owner of a slot. `None`: no node has it, or the map is not known yet.
    pub(crate) fn owner(&self, slot: u16) -> Option<Arc<ClusterNode>> {
        let map = self.map();
        let index = *map.owners.get(usize::from(slot))?;
        map.nodes.get(usize::from(index)).cloned()
    }

    /// The lane of a slot: its node, because all requests to a node share its connection and fail together. A slot without
    /// a node has a lane of its own, and so has one that migrates: its requests may end at the other node.
    pub(crate) fn lane(&self, slot: u16) -> u64 {
        let alone = u64::from(slot);
        if self.migrating.has(slot, self.timers.now()) {
            return alone;
        }
        self.owner(slot).map_or(alone, |node| node.lane)
    }

    /// A node has sent a request for this slot on with `ASK`.
    pub(crate) fn migrates(&self, slot: u16) {
        self.migrating.add(slot, self.timers.now());
    }

    /// The nodes that have slots, always in the same order.
    pub(crate) fn primaries(&self) -> Vec<Arc<ClusterNode>> {
        self.map().nodes.clone()
    }

    /// The replicas of these nodes, as the nodes tell them.
    pub(crate) fn replicas(&self) -> Vec<HostAddress> {
        let map = self.map();
        let mut replicas = map.replicas.clone();
        // One that a `MOVED` names has taken over.
        replicas.retain(|address| map.nodes.iter().all(|node| node.address != *address));
        replicas
    }

    /// How many slots have no node.
    pub(crate) fn bare_slots(&self) -> usize {
        let map = self.map();
        let bare = map.owners.iter().filter(|owner| **owner == NOBODY);
        bare.count()
    }

    /// The node at an address. If the map does not have it, creates one outside the map.
    pub(crate) fn node_at(&self, address: &HostAddress) -> Arc<ClusterNode> {
        let known = self
            .map()
            .nodes
            .iter()
            .find(|node| node.address == *address)
            .cloned();
        known.unwrap_or_else(|| self.node(address))
    }

    fn node(&self, address: &HostAddress) -> Arc<ClusterNode> {
        self.node_with(address, self.entry.clone())
    }

    /// A node outside the map that is not compared with the known ones: it may be of another cluster.
    pub(crate) fn unproved_node(&self, address: &HostAddress) -> Arc<ClusterNode> {
        let entry = EndpointLogin {
            known_nodes: Arc::default(),
            ..self.entry.clone()
        };
        self.node_with(address, entry)
    }

    fn node_with(&self, address: &HostAddress, entry: EndpointLogin) -> Arc<ClusterNode> {
        let finder = ServerFinder::Fixed(address.clone());
        let timers = self.timers.clone();
        let endpoint = Arc::new(Endpoint::new(finder, entry, timers, self.limit));
        let back = ConnectionRuntime::Background(self.background.clone());
        Arc::new(ClusterNode {
            address: address.clone(),
            lane: node_lane(address),
            front: Connection::new(Arc::clone(&endpoint), ConnectionRuntime::Caller),
            back: Connection::new(Arc::clone(&endpoint), back),
            endpoint,
        })
    }

    /// Applies a `MOVED` redirect to the map.
    pub(crate) fn moved(&self, slot: u16, address: &HostAddress) {
        self.doubt();
        let mut map = self.map.write();
        let known = map.nodes.iter().position(|node| node.address == *address);
        let own = map.owners.get(usize::from(slot)).copied();
        if known.is_some() && own.map(usize::from) == known {
            return;
        }
        let (mut nodes, mut owners) = (map.nodes.clone(), map.owners.clone());
        let index = known.unwrap_or_else(|| {
            nodes.push(self.node(address));
            nodes.len() - 1
        });
        if let (Some(own), Ok(index)) = (owners.get_mut(usize::from(slot)), u16::try_from(index)) {
            *own = index;
        }
        *map = Arc::new(SlotMap {
            epoch: map.epoch,
            settled: map.epoch,
            nodes,
            replicas: map.replicas.clone(),
            owners,
        });
        drop(map);
        self.changed();
    }

    /// Records that the map may be outdated. Triggers a refresh, and more frequent refreshes for a while.
    pub(crate) fn doubt(&self) {
        let until = self.timers.now() + IN_DOUBT;
        *self.doubtful_until.lock() = Some(until);
        self.refresh.notify_one();
    }

    fn changed(&self) {
        self.changed_at.store(self.timers.now().0, Ordering::SeqCst);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Whether the map has not changed for a while. False after the start, when we do not know yet.
    pub(crate) fn is_settled(&self) -> bool {
        let changed_at = BootInstant(self.changed_at.load(Ordering::SeqCst));
        self.timers.now().since(changed_at) >= SETTLES
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        let now = self.timers.now();
        let until = *self.doubtful_until.lock();
        until.is_some_and(|until| now < until)
    }

    /// Replaces the map. Closes the connections to nodes that were replaced, also those with requests in flight: a
    /// partitioned node may never reply.
    fn take(&self, view: NodeView) {
        if view.is_up {
            self.ends_outage();
        }
        self.entry.known_nodes.update(view.ids);
        let mut map = self.map.write();
        let mut nodes: Vec<Arc<ClusterNode>> = Vec::new();
        let mut owners = vec![NOBODY; usize::from(SLOTS)];
        let mut replicas = Vec::new();
        let mut addresses: Vec<&HostAddress> =
            view.ranges.iter().map(|range| &range.primary).collect();
        addresses.sort_by_key(ToString::to_string);
        addresses.dedup();
        for address in addresses {
            let known = map.nodes.iter().find(|node| node.address == *address);
            nodes.push(known.map_or_else(|| self.node(address), Arc::clone));
        }
        for range in view.ranges {
            let index = nodes.iter().position(|node| node.address == range.primary);
            let index = index.and_then(|index| u16::try_from(index).ok());
            owners[usize::from(range.first)..=usize::from(range.last)]
                .fill(index.unwrap_or(NOBODY));
            replicas.extend(range.replicas);
        }
        replicas.sort_by_key(HostAddress::to_string);
        replicas.dedup();
        let gone: Vec<Arc<ClusterNode>> = map
            .nodes
            .iter()
            .filter(|old| nodes.iter().all(|node| node.address != old.address))
            .cloned()
            .collect();
        // We close them only if the epoch is newer than the last change, or unknown (zero). Otherwise the reporting
        // node may just not know of a node that has taken over, and we would close the connections to the new owner.
        let news = view.epoch > map.settled || view.epoch == 0;
        let same = gone.is_empty() && nodes.len() == map.nodes.len() && owners == map.owners;
        let settled = if same { map.settled } else { view.epoch };
        *map = Arc::new(SlotMap {
            epoch: view.epoch,
            settled,
            nodes,
            replicas,
            owners,
        });
        drop(map);
        for node in gone.iter().filter(|_| news) {
            tracing::info!(node = %Escaped(&node.address), "this node of the cluster no longer has slots");
            node.endpoint.leave();
        }
        if !same {
            self.changed();
        }
    }

    /// A node reports a cluster that is up.
    fn ends_outage(&self) {
        let outage = self.outage.lock().take();
        let now = self.timers.now();
        if let Some(lasted) = outage.and_then(|outage| outage.told_for(now)) {
            tracing::warn!(cluster = %Escaped(self), ?lasted, "a node of this cluster reports it as up again");
        }
    }

    /// Takes the map of another cluster, and ends the connections to the nodes of this one. The new ids are known before those
    /// connections end; otherwise a request could connect to an old node again.
    fn replace(&self, view: NodeView) {
        let old = self.map();
        // The warning about the move has told the end of the outage.
        *self.outage.lock() = None;
        self.entry.known_nodes.replace(view.ids.clone());
        self.take(view);
        for node in &old.nodes {
            node.endpoint.leave();
        }
    }

    /// Gives all slots to one node.
    #[cfg(test)]
    pub(crate) fn give_all_slots(&self, primary: &HostAddress) {
        let range = SlotRange {
            first: 0,
            last: SLOTS - 1,
            primary: primary.clone(),
            replicas: Vec::new(),
        };
        self.take(NodeView {
            told_by: primary.clone(),
            epoch: 0,
            of_primary: true,
            ranges: vec![range],
            ids: HashSet::new(),
            is_up: true,
        });
    }

    /// Closes all connections and stops the periodic refresh.
    pub(crate) fn close(&self) {
        // Before we close the connections: a refresh in flight checks the flag at its end and closes what it has
        // opened.
        self.closed.store(true, Ordering::SeqCst);
        self.refresh.notify_one();
        for node in &self.map().nodes {
            node.front.close();
            node.back.close();
        }
    }
}

fn node_lane(address: &HostAddress) -> u64 {
    let mut hasher = DefaultHasher::new();
    address.to_string().hash(&mut hasher);
    hasher.finish() | NODE_LANE
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = self.seeds.iter().any(HostAddress::is_tls);
        let scheme = if tls { "rediss" } else { "redis" };
        write!(f, "{scheme}+cluster://{}", address::short(&self.seeds))
    }
}

#[cfg(test)]
mod tests;
