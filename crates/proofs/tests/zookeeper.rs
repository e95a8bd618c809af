//! The ZooKeeper store on a real server: its promises, what it leaves, what it costs, and what it survives.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "zookeeper/promises.rs"]
mod promises;
