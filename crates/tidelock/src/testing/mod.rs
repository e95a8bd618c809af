//! The conformance suite: what every store promises, one function a promise, and the tools to prove it under faults.
//!
//! For authors of stores. **Unstable**: it may change in any release.
//!
//! A store's test is one line, [`conformance!`](crate::conformance), with a [`Fixture`] that says how clients of one fresh
//! store are made. The same promises run again [through chaos](Fixture::through_chaos) and [through the blocking face](Fixture::blocking).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "test code: a panic is how a promise says that it was broken"
)]

mod chaos;
mod faults;
mod fixture;
mod history;
mod party;
mod polls;
pub mod promises;
mod suite;
#[cfg(feature = "blocking")]
mod threads;
mod twist;
mod writer;

pub use chaos::{Chaos, Plug};
pub use faults::Faults;
pub use fixture::{Fixture, open};
pub use history::{History, Span};
pub use party::{Held, Party, Place};
pub use polls::{Polled, poll_times};
#[cfg(feature = "blocking")]
pub use threads::ThreadHeld;
pub use twist::{Twist, Twisted};

/// From now on what is left to chance in the pauses of clients on this thread follows from the seed, so that a simulation
/// can be played again.
pub fn seed_chance(seed: u64) {
    crate::core::chance::seed(seed);
}

/// What the stores of this build can do, by their URLs.
pub fn abilities() -> &'static [(&'static str, crate::backend::Capabilities)] {
    crate::backend::registry::ABILITIES
}
