//! A store handle: what every operation on a lock needs.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::engine::runtime::sync::Mutex;
use crate::error::Error;
use crate::store::beats::Beats;
use crate::store::redis::layouts::fair::beats::RedisBeat;
use crate::store::redis::pubsub::channel_router::ChannelRouter;
use crate::store::redis::pubsub::keyspace_events::KeyspaceEvents;
use crate::store::redis::pubsub::subscriber::{PublishModes, Subscriber};
use crate::store::redis::recent_holders::RecentHolders;
use crate::store::redis::replicas::AckPolicy;
use crate::store::redis::topology::router::Router;
use crate::store::redis::wire::errors::wants_keys_declared;
use crate::store::{Background, Name, Ticket, Timers};

/// The form of a lock in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Redisson's: a hash, with a message at each release.
    Redisson,
    /// A string, without messages.
    Plain,
}

/// How long a tombstone lives: longer than a request can stay in the buffers of a frozen server.
pub(crate) const TOMBSTONE_KEPT: Duration = Duration::from_secs(300);

/// A store handle with its own connections for commands. Both handles share the subscriptions.
pub(crate) struct Redis {
    pub(crate) router: Router,
    pub(crate) shared: Arc<Shared>,
    pub(crate) layout: Layout,
}

/// What both handles of a store share.
pub(crate) struct Shared {
    pub(crate) channel_router: ChannelRouter,
    pub(crate) ways: PublishModes,
    pub(crate) subscriber: Arc<Subscriber>,
    pub(crate) events: KeyspaceEvents,
    /// The names of spin locks that another client held.
    pub(crate) spinning: RecentHolders,
    pub(crate) beats: Arc<Beats<RedisBeat>>,
    pub(crate) lease: Duration,
    /// How long the answer to a change of a number is kept.
    pub(crate) answers_kept: Duration,
    pub(crate) ack_policy: AckPolicy,
    pub(crate) timers: Timers,
    pub(crate) background: Background,
    pub(crate) warned: Mutex<HashSet<Name>>,
    /// The user is not allowed to run scripts: plain locks use transactions instead.
    pub(crate) unscripted: AtomicBool,
    /// The server refuses keys that a script does not declare.
    pub(crate) declares_keys: AtomicBool,
}

impl Redis {
    /// Whether a script must declare all its keys. In a cluster the node checks them before it runs the script; while a
    /// slot migrates, a key that is not declared could be missed, because it is on the other node.
    pub(crate) fn declares_keys(&self) -> bool {
        self.router.is_cluster() || self.shared.declares_keys.load(Ordering::Relaxed)
    }

    /// Whether the scripts of a lock get the name of a tombstone. Otherwise they derive it from the name and the owner.
    /// The same for an attempt and its withdrawal. A fenced lock has its counter in KEYS, behind the tombstone.
    pub(crate) fn declares_tombstone(&self, ticket: &Ticket) -> bool {
        ticket.kind.is_fenced() || self.declares_keys()
    }

    /// Whether the server has refused a key that the script did not declare. The script must have written nothing before.
    /// From then on all keys are declared.
    pub(crate) fn must_declare(&self, error: &Error) -> bool {
        let must = wants_keys_declared(error);
        if must {
            self.shared.declares_keys.store(true, Ordering::Relaxed);
        }
        must
    }
}

/// Milliseconds, rounded up: a lease on the server must never be shorter than the one the client relies on.
pub(crate) fn millis(time: Duration) -> u64 {
    let part = u64::from(time.subsec_nanos().div_ceil(1_000_000));
    time.as_secs().saturating_mul(1000).saturating_add(part)
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Redis").field(&self.router).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_rounded_up_to_whole_milliseconds() {
        for (nanos, whole) in [
            (1, 1),
            (1_000_000, 1),
            (1_000_001, 2),
            (1_999_999_999, 2000),
            (30_000_000_000, 30_000),
            (30_001_000_000, 30_001),
        ] {
            assert_eq!(millis(Duration::from_nanos(nanos)), whole);
        }
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
