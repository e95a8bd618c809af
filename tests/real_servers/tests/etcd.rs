//! The etcd store on a real server: its guarantees, its costs, and faults.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "etcd/clock.rs"]
mod clock;
#[path = "etcd/coarse.rs"]
mod coarse;
#[path = "etcd/costs.rs"]
mod costs;
#[path = "etcd/entering.rs"]
mod entering;
#[path = "etcd/etcdctl.rs"]
mod etcdctl;
#[path = "etcd/leases.rs"]
mod leases;
#[path = "etcd/promises.rs"]
mod promises;
#[path = "etcd/rights.rs"]
mod rights;
#[path = "etcd/secured.rs"]
mod secured;
#[path = "etcd/world.rs"]
mod world;
