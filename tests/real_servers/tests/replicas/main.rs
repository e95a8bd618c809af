//! Acknowledgement by replicas, on a real primary with two replicas: what each policy guarantees, what it costs, and
//! what survives a failover.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

mod barrier;
mod failovers;
mod groups;
mod isolated;
mod marks;
mod policies;
mod promises;
mod rights;
mod world;
