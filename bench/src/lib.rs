//! Compares locks: what they cost, how soon a waiter acquires, and how the cost grows.
//!
//! `cargo xtask bench` runs it. Absolute times depend on the machine and the moment; only the ratios are comparable,
//! because all peers run in turn within the same run. Nothing here asserts anything.

pub mod args;
pub mod books;
pub mod crowd;
pub mod raw;
pub mod w2_hot;

mod awake;
mod chart;
mod contention;
mod counts;
mod figures;
mod goals;
mod machine;
mod page;
mod peers;
mod pinned;
mod process;
mod run;
mod shared;
mod stage;
mod w10_kinds;
mod w1_cores;
mod w1_own;
mod w3_local;
mod w4_held;
mod w5_waiting;
mod w6_majority;
mod w7_start;
mod w8_fair;
mod w9_stores;
mod wakes;
mod with_metrics;

pub use run::run;

/// The environment variable that tells a process of this crate how many threads run its tasks.
pub const THREADS: &str = "BENCH_THREADS";
