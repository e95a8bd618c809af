//! The ZooKeeper store on a real server: its promises, the nodes it leaves, its costs, and the faults it survives.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod coarse;
mod connecting;
mod costs;
mod curator;
mod every_await;
mod faults;
mod marks;
mod nodes;
mod permit_faults;
mod permits;
mod promises;
mod rights;
mod sides;
mod world;
