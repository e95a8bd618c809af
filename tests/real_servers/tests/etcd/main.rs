//! The etcd store on a real server: its guarantees, its costs, and faults.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod clock;
mod coarse;
mod connecting;
mod costs;
mod etcdctl;
mod every_await;
mod faults;
mod marks;
mod permit_faults;
mod permits;
mod prefixes;
mod promises;
mod rights;
mod secured;
mod sides;
mod world;
