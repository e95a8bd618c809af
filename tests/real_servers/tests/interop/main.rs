//! Java's Redisson and tidelock on the same locks, in both directions and with both generations of Redisson.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[macro_use]
mod world;

mod counting;
mod counts;
mod elections;
mod fair;
mod fair_load;
mod fair_queue;
mod fenced;
mod force;
mod generations;
mod latches;
mod leases;
mod load;
mod loads;
mod mixed;
mod non_reentrant;
mod permits;
mod processes;
mod remains;
mod sets;
mod sides;
mod spin;
mod topologies;
mod turns;
mod wakes;
