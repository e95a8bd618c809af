//! The channel router: from a channel to the server that delivers its messages.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::Cluster;
use super::errors::{Complaint, Redirection};
use super::gate::Gate;
use super::{keys, slots};
use crate::backend::Timers;

/// The servers that deliver messages.
#[derive(Clone)]
pub(super) enum Stations {
    One(Arc<Gate>),
    Cluster(Arc<Cluster>),
}

impl Stations {
    pub(super) fn timers(&self) -> &Timers {
        match self {
            Self::One(gate) => &gate.timers,
            Self::Cluster(cluster) => &cluster.timers,
        }
    }

    /// The server that delivers a channel's messages. `None`: no node has the slot at the moment.
    pub(super) fn of(&self, channel: &str) -> Option<Arc<Gate>> {
        match self {
            Self::One(gate) => Some(Arc::clone(gate)),
            Self::Cluster(cluster) => {
                // Only the node that has the key sends its keyspace events.
                let slot = slots::of(keys::of_events(channel).unwrap_or(channel));
                let node = cluster.owner(slot)?;
                Some(Arc::clone(&node.gate))
            }
        }
    }

    /// Reports a problem with a server: the addresses are refreshed.
    pub(super) fn doubt(&self) {
        match self {
            Self::One(gate) => gate.doubt(),
            Self::Cluster(cluster) => cluster.doubt(),
        }
    }

    /// Resolves when channels may have moved to another server, or at the limit.
    pub(super) async fn change(&self, limit: Duration) {
        match self {
            Self::One(gate) => gate.timers.after(limit).await,
            Self::Cluster(cluster) => {
                let mut changes = cluster.changes.subscribe();
                // Both outcomes mean the same here: try again.
                let _ = cluster.timers.limit(limit, changes.changed()).await;
            }
        }
    }

    /// Whether subscribers have had time to follow the last change of the slot map.
    pub(super) fn are_settled(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => cluster.is_settled(),
        }
    }

    /// Learns from an error where a channel is. `true`: a retry may succeed soon, on this or another server.
    pub(super) fn learn(&self, gate: &Gate, complaint: &Complaint) -> bool {
        let Self::Cluster(cluster) = self else {
            return false;
        };
        match gate.place().and_then(|place| complaint.redirection(place)) {
            Some(Redirection::Moved(slot, to)) => cluster.moved(slot, &to),
            Some(Redirection::Ask(..)) => cluster.doubt(),
            None if complaint.passes() => cluster.doubt(),
            None => return false,
        }
        true
    }

    /// Stops the background commands that follow the servers.
    pub(super) fn close(&self) {
        match self {
            Self::One(gate) => gate.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}
