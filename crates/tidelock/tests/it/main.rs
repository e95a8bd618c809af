//! All integration tests of the library, in one binary. None of them needs a server.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod abilities;
mod api;
mod architecture;
mod at_the_door;
#[cfg(feature = "blocking")]
mod blocking_api;
mod cancel_when;
#[cfg(feature = "redis")]
mod cluster_gone;
#[cfg(feature = "redis")]
mod cluster_node;
mod cron_once;
mod elections;
mod emptied;
mod environment;
mod every_await;
mod guests;
mod hand_off;
mod heard;
mod history;
mod late;
mod lazy;
mod logs;
mod memory;
mod multi;
mod own_store;
mod owners;
mod paused;
mod polled;
mod pollers;
mod properties;
mod redlock;
mod refused_releases;
#[cfg(feature = "redis")]
mod sentinels;
#[cfg(feature = "serde")]
mod serde;
mod sets;
#[cfg(all(feature = "sqlite", unix))]
mod sqlite;
mod stats;
mod urls;
mod wakers;
