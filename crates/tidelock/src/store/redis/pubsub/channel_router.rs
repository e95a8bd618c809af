//! The channel router: from a channel to the server that delivers its messages.

use std::sync::Arc;
use std::time::Duration;

use crate::store::Timers;
use crate::store::redis::keys;
use crate::store::redis::slots;
use crate::store::redis::topology::cluster::Cluster;
use crate::store::redis::topology::endpoint::Endpoint;
use crate::store::redis::wire::errors::{Redirect, ServerError};

/// The servers that deliver messages.
#[derive(Clone)]
pub(crate) enum ChannelRouter {
    One(Arc<Endpoint>),
    Cluster(Arc<Cluster>),
}

impl ChannelRouter {
    pub(crate) fn timers(&self) -> &Timers {
        match self {
            Self::One(endpoint) => &endpoint.timers,
            Self::Cluster(cluster) => &cluster.timers,
        }
    }

    /// The server that delivers a channel's messages. `None`: no node has the slot at the moment.
    pub(crate) fn of(&self, channel: &str) -> Option<Arc<Endpoint>> {
        match self {
            Self::One(endpoint) => Some(Arc::clone(endpoint)),
            Self::Cluster(cluster) => {
                // Only the node that has the key sends its keyspace events.
                let slot = slots::of(keys::of_events(channel).unwrap_or(channel));
                let node = cluster.owner(slot)?;
                Some(Arc::clone(&node.endpoint))
            }
        }
    }

    /// Reports a problem with a server: the addresses are refreshed.
    pub(crate) fn doubt(&self) {
        match self {
            Self::One(endpoint) => endpoint.doubt(),
            Self::Cluster(cluster) => cluster.doubt(),
        }
    }

    /// Resolves when channels may have moved to another server, or at the limit.
    pub(crate) async fn change(&self, limit: Duration) {
        match self {
            Self::One(endpoint) => endpoint.timers.after(limit).await,
            Self::Cluster(cluster) => {
                let mut changes = cluster.changes.subscribe();
                // Both outcomes mean the same here: try again.
                let _ = cluster.timers.limit(limit, changes.changed()).await;
            }
        }
    }

    /// Whether subscribers have had time to follow the last change of the slot map.
    pub(crate) fn are_settled(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Cluster(cluster) => cluster.is_settled(),
        }
    }

    /// Learns from an error where a channel is. `true`: a retry may succeed soon, on this or another server.
    pub(crate) fn learn(&self, endpoint: &Endpoint, server_error: &ServerError) -> bool {
        let Self::Cluster(cluster) = self else {
            return server_error.passes();
        };
        match endpoint
            .address()
            .and_then(|address| server_error.redirection(address))
        {
            Some(Redirect::Moved(slot, to)) => cluster.moved(slot, &to),
            Some(Redirect::Ask(..)) => cluster.doubt(),
            None if server_error.passes() => cluster.doubt(),
            None => return false,
        }
        true
    }

    /// Stops the background commands that follow the servers.
    pub(crate) fn close(&self) {
        match self {
            Self::One(endpoint) => endpoint.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}
