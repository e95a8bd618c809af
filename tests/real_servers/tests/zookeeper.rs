//! The ZooKeeper store on a real server: its promises, the nodes it leaves, its costs, and the faults it survives.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "zookeeper/coarse.rs"]
mod coarse;
#[path = "zookeeper/costs.rs"]
mod costs;
#[path = "zookeeper/curator.rs"]
mod curator;
#[path = "zookeeper/entering.rs"]
mod entering;
#[path = "zookeeper/nodes.rs"]
mod nodes;
#[path = "zookeeper/promises.rs"]
mod promises;
#[path = "zookeeper/rights.rs"]
mod rights;
#[path = "zookeeper/sessions.rs"]
mod sessions;
#[path = "zookeeper/sides.rs"]
mod sides;
#[path = "zookeeper/world.rs"]
mod world;
