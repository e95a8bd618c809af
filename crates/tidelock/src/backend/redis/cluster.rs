//! A cluster: its nodes, who of them has which slot, and how one learns of it.
//!
//! Both faces of the store and the subscriptions share what is known.

mod look;

pub(super) use self::look::follow;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::gate::{Entry, Finder, Gate};
use super::link::{Home, Link};
use super::place::{self, Place};
use super::slots::{Range, SLOTS};
use crate::backend::{Background, Moment, Timers};

/// How long one doubt makes them be asked more often: a failover takes a while.
const IN_DOUBT: Duration = Duration::from_secs(3);

/// How long after a change listeners may still be at a node that has the slot of their channel no more. What is published
/// there in the plain form they hear, but the node that has the slot does not count them. Redisson looks every 5 s.
const SETTLES: Duration = Duration::from_secs(30);

/// A slot nobody has.
const NOBODY: u16 = u16::MAX;

/// What both faces of the store and the subscriptions share.
pub(super) struct Cluster {
    seeds: Vec<Place>,
    entry: Entry,
    background: Background,
    pub(super) timers: Timers,
    pub(super) limit: Duration,
    map: RwLock<Arc<Map>>,
    /// Counts the maps.
    pub(super) changes: watch::Sender<u64>,
    /// When the last of them came, in nanoseconds of the boot clock.
    changed_at: AtomicU64,
    /// Whom to ask first.
    turn: AtomicUsize,
    look: Arc<Notify>,
    doubtful_until: Mutex<Option<Moment>>,
    closed: AtomicBool,
}

/// A node that has slots: the way in, and a connection for each face.
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) gate: Arc<Gate>,
    pub(super) front: Link,
    pub(super) back: Link,
}

/// Who has what, at one time.
#[derive(Default)]
struct Map {
    /// Counts what has changed in the cluster, as its nodes do.
    epoch: i64,
    /// The epoch in which the owners were last seen to change. An election counts up before its outcome is known.
    settled: i64,
    nodes: Vec<Arc<Node>>,
    replicas: Vec<Place>,
    /// By slot, which of the nodes.
    owners: Vec<u16>,
}

/// What one node says.
struct View {
    epoch: i64,
    /// By its own word the node has slots.
    of_primary: bool,
    ranges: Vec<Range>,
}

impl Cluster {
    pub(super) fn new(
        seeds: Vec<Place>,
        entry: Entry,
        background: Background,
        timers: Timers,
        limit: Duration,
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
            turn: AtomicUsize::new(0),
            look: Arc::default(),
            doubtful_until: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }

    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who has a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let map = self.map();
        let index = *map.owners.get(usize::from(slot))?;
        map.nodes.get(usize::from(index)).cloned()
    }

    /// The nodes that have slots, always in the same order.
    pub(super) fn primaries(&self) -> Vec<Arc<Node>> {
        self.map().nodes.clone()
    }

    /// How many slots nobody has.
    pub(super) fn bare_slots(&self) -> usize {
        let map = self.map();
        let bare = map.owners.iter().filter(|owner| **owner == NOBODY);
        bare.count()
    }

    /// The node at a place, also one that has no slots yet.
    pub(super) fn node_at(&self, place: &Place) -> Arc<Node> {
        let known = self
            .map()
            .nodes
            .iter()
            .find(|node| node.place == *place)
            .cloned();
        known.unwrap_or_else(|| self.node(place))
    }

    fn node(&self, place: &Place) -> Arc<Node> {
        let finder = Finder::Fixed(place.clone());
        let (entry, timers) = (self.entry.clone(), self.timers.clone());
        let gate = Arc::new(Gate::new(finder, entry, timers, self.limit));
        let back = Home::Background(self.background.clone());
        Arc::new(Node {
            place: place.clone(),
            front: Link::new(Arc::clone(&gate), Home::Caller),
            back: Link::new(Arc::clone(&gate), back),
            gate,
        })
    }

    /// A node has said who has this slot.
    pub(super) fn moved(&self, slot: u16, place: &Place) {
        self.doubt();
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let known = map.nodes.iter().position(|node| node.place == *place);
        let own = map.owners.get(usize::from(slot)).copied();
        if known.is_some() && own.map(usize::from) == known {
            return;
        }
        let (mut nodes, mut owners) = (map.nodes.clone(), map.owners.clone());
        let index = known.unwrap_or_else(|| {
            nodes.push(self.node(place));
            nodes.len() - 1
        });
        if let (Some(own), Ok(index)) = (owners.get_mut(usize::from(slot)), u16::try_from(index)) {
            *own = index;
        }
        *map = Arc::new(Map {
            epoch: map.epoch,
            settled: map.epoch,
            nodes,
            replicas: map.replicas.clone(),
            owners,
        });
        drop(map);
        self.changed();
    }

    /// Something is not as the map says: look soon, and often for a while.
    pub(super) fn doubt(&self) {
        let until = self.timers.now() + IN_DOUBT;
        *self
            .doubtful_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(until);
        self.look.notify_one();
    }

    fn changed(&self) {
        self.changed_at.store(self.timers.now().0, Ordering::SeqCst);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Nothing has changed for a good while. A client that has just connected does not know.
    pub(super) fn is_settled(&self) -> bool {
        let changed_at = Moment(self.changed_at.load(Ordering::SeqCst));
        self.timers.now().since(changed_at) >= SETTLES
    }

    fn is_in_doubt(&self) -> bool {
        let now = self.timers.now();
        let until = *self
            .doubtful_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| now < until)
    }

    /// A node that another one has replaced is left, also with requests under way: if it is cut off it may never answer.
    fn take(&self, view: View) {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let mut owners = vec![NOBODY; usize::from(SLOTS)];
        let mut replicas = Vec::new();
        let mut places: Vec<&Place> = view.ranges.iter().map(|range| &range.primary).collect();
        places.sort_by_key(ToString::to_string);
        places.dedup();
        for place in places {
            let known = map.nodes.iter().find(|node| node.place == *place);
            nodes.push(known.map_or_else(|| self.node(place), Arc::clone));
        }
        for range in view.ranges {
            let index = nodes.iter().position(|node| node.place == range.primary);
            let index = index.and_then(|index| u16::try_from(index).ok());
            owners[usize::from(range.first)..=usize::from(range.last)]
                .fill(index.unwrap_or(NOBODY));
            replicas.extend(range.replicas);
        }
        replicas.sort_by_key(Place::to_string);
        replicas.dedup();
        let gone: Vec<Arc<Node>> = map
            .nodes
            .iter()
            .filter(|old| nodes.iter().all(|node| node.place != old.place))
            .cloned()
            .collect();
        // Without news a node is only not known there yet: it may be the one that has just taken over.
        let news = view.epoch > map.settled || view.epoch == 0;
        let same = gone.is_empty() && nodes.len() == map.nodes.len() && owners == map.owners;
        let settled = if same { map.settled } else { view.epoch };
        *map = Arc::new(Map {
            epoch: view.epoch,
            settled,
            nodes,
            replicas,
            owners,
        });
        drop(map);
        for node in gone.iter().filter(|_| news) {
            tracing::info!(node = %node.place, "this node of the cluster has no slots any more");
            node.gate.leave();
        }
        if !same {
            self.changed();
        }
    }

    /// Ends all connections; nobody looks any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.look.notify_one();
        for node in &self.map().nodes {
            node.front.close();
            node.back.close();
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = self.seeds.iter().any(Place::is_tls);
        let scheme = if tls { "rediss" } else { "redis" };
        write!(f, "{scheme}+cluster://{}", place::short(&self.seeds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Clock;

    fn place(port: u16) -> Place {
        let host = "h".to_owned();
        Place::Tcp {
            host,
            port,
            tls: false,
        }
    }

    fn view(epoch: i64, ranges: &[(u16, u16, u16)]) -> View {
        let range = |&(first, last, port): &(u16, u16, u16)| Range {
            first,
            last,
            primary: place(port),
            replicas: vec![],
        };
        View {
            epoch,
            of_primary: true,
            ranges: ranges.iter().map(range).collect(),
        }
    }

    #[test]
    fn what_nodes_say_is_believed_by_what_they_have_seen() {
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let timers = Timers::new(Clock::Boot);
        let entry = Entry::default();
        let limit = Duration::from_secs(1);
        let cluster = Cluster::new(vec![place(9)], entry, background, timers, limit);
        let port = |slot| cluster.owner(slot).map(|node| node.place.clone());
        assert_eq!(port(0), None);

        cluster.take(view(1, &[(0, 99, 1), (100, 16383, 2)]));
        assert_eq!((port(0), port(100)), (Some(place(1)), Some(place(2))));
        let first = cluster.owner(0).unwrap();

        // One slot was moved: to a node that nobody has told of yet.
        cluster.moved(7, &place(3));
        assert_eq!((port(7), port(8)), (Some(place(3)), Some(place(1))));
        let third = cluster.owner(7).unwrap();

        // One that has not heard of it is no reason to leave anybody.
        cluster.take(view(1, &[(0, 99, 1), (100, 16383, 2)]));
        assert_eq!(port(7), Some(place(1)));
        assert_eq!(third.gate.times_left(), 0);
        assert!(Arc::ptr_eq(&first, &cluster.owner(0).unwrap()));

        // A failover: what is connected to the old primary may never answer.
        cluster.take(view(2, &[(0, 98, 4), (100, 16383, 2)]));
        assert_eq!((port(0), port(99)), (Some(place(4)), None));
        assert_eq!(first.gate.times_left(), 1);
        assert_eq!((cluster.bare_slots(), cluster.primaries().len()), (1, 2));
    }
}
