//! The fault catalogue on a real server. Each test makes its fault happen and asserts all that must survive it.
//!
//! What must hold, in the words used here: at most one holder at a time, by spans of holding on one clock; tokens that only
//! grow; no key that outlives the lease; a waiter that is woken in time; a holder that is told of a loss before the server
//! can give the lock to another; nothing left behind: no connection, no channel, no key.

#![allow(
    clippy::unchecked_time_subtraction,
    reason = "stamps of one clock: a negative time is a failure like any other"
)]

mod clocks;
mod common;
mod entering;
mod foreign;
mod full;
mod holder;
mod link;
mod logs;
mod looks;
mod misuse;
mod others;
mod replies;
mod rights;
mod scripts;
mod server;
mod stalls;
mod steps;
mod suspend;
mod taken;
mod waking;
