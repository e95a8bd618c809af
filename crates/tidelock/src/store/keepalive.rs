//! When TCP asks whether the other end of a silent connection is there.
//!
//! A connection for callers has no traffic while they hold their locks. A firewall or a load balancer may forget it meanwhile, and
//! tells nobody: the next request would wait for the whole response timeout. The pauses of most systems are hours.

use std::time::Duration;

/// The silence after which TCP asks.
pub(crate) const IDLE: Duration = Duration::from_secs(30);

/// The pause between two questions.
#[cfg(any(
    feature = "postgres",
    all(unix, any(feature = "etcd", feature = "memcached", feature = "redis"))
))]
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// After so many questions without an answer the connection has ended.
#[cfg(any(
    feature = "postgres",
    all(unix, any(feature = "etcd", feature = "memcached", feature = "redis"))
))]
pub(crate) const PROBES: u32 = 3;
