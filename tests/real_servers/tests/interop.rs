//! Java's Redisson and tidelock on the same locks, in both directions and with both generations of Redisson.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[macro_use]
#[path = "interop/world.rs"]
mod world;

#[path = "interop/counts.rs"]
mod counts;
#[path = "interop/fair.rs"]
mod fair;
#[path = "interop/fenced.rs"]
mod fenced;
#[path = "interop/force.rs"]
mod force;
#[path = "interop/generations.rs"]
mod generations;
#[path = "interop/leases.rs"]
mod leases;
#[path = "interop/load.rs"]
mod load;
#[path = "interop/mixed.rs"]
mod mixed;
#[path = "interop/remains.rs"]
mod remains;
#[path = "interop/sets.rs"]
mod sets;
#[path = "interop/topologies.rs"]
mod topologies;
#[path = "interop/turns.rs"]
mod turns;
#[path = "interop/wakes.rs"]
mod wakes;
