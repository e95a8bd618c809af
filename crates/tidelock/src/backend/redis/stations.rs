//! From a channel to the server where it is heard.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::Cluster;
use super::errors::{Complaint, Redirection};
use super::gate::Gate;
use super::{keys, slots};
use crate::backend::Timers;

/// Where channels are heard.
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

    /// The server that is told what is said on a channel. `None`: none is, just now.
    pub(super) fn of(&self, channel: &str) -> Option<Arc<Gate>> {
        match self {
            Self::One(gate) => Some(Arc::clone(gate)),
            Self::Cluster(cluster) => {
                // Events are told by the node of their key, and by no other.
                let slot = slots::of(keys::of_events(channel).unwrap_or(channel));
                let node = cluster.owner(slot)?;
                Some(Arc::clone(&node.gate))
            }
        }
    }

    /// Something is not as it should be with a server.
    pub(super) fn doubt(&self) {
        match self {
            Self::One(gate) => gate.doubt(),
            Self::Cluster(cluster) => cluster.doubt(),
        }
    }

    /// Resolves when channels may be heard elsewhere, or after that time.
    pub(super) async fn change(&self, limit: Duration) {
        match self {
            Self::One(gate) => gate.timers.after(limit).await,
            Self::Cluster(cluster) => {
                let mut changes = cluster.changes.subscribe();
                // Elapsed or changed: both are as good.
                let _ = cluster.timers.limit(limit, changes.changed()).await;
            }
        }
    }

    /// Who listens where has had time to follow the slots of the cluster.
    pub(super) fn are_settled(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => cluster.is_settled(),
        }
    }

    /// What a refusal says about where a channel is. True: the channel may be had in a moment, there or here.
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

    /// Ends what looks after the servers.
    pub(super) fn close(&self) {
        match self {
            Self::One(gate) => gate.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}
