//! The fault catalogue on a real server. Each test produces its fault and checks every property that must survive it.
//!
//! The properties: at most one holder at a time, by the recorded holds on one clock; tokens only grow; no key outlives
//! the lease; a waiter is woken in time; a holder is told of a loss before the server can grant the lock to another; no
//! connection, channel or key is left behind.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

mod clocks;
mod connecting;
mod foreign;
mod full;
mod holder;
mod link;
mod looks;
mod misuse;
mod others;
mod peer;
mod queue;
mod replies;
mod rights;
mod scripts;
mod server;
mod setup;
mod sides;
mod stalls;
mod steps;
mod suspend;
mod taken;
mod waking;
