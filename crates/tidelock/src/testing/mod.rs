//! The conformance suite: one function per promise that every store must keep, and tools that inject faults.
//!
//! For authors of stores. **Unstable**: it may change in any release.
//!
//! A store's test is one line: [`conformance!`](crate::conformance) with a [`Fixture`] that creates clients of one
//! fresh store. The same promises also run [with injected faults](Fixture::through_chaos) and
//! [through the blocking API](Fixture::blocking).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "test code: a panic is how a promise says that it was broken"
)]

mod any_lock;
mod barrier_suite;
mod candidates;
mod chaos;
mod every_await_suite;
mod faults;
mod fixture;
mod history;
mod party;
mod polls;
pub mod promises;
mod recast;
mod suite;
#[cfg(feature = "blocking")]
mod threads;
mod twist;
mod upgrade_suite;

pub use crate::test_util::Plug;
pub use any_lock::{AnyGuard, AnyLock};
pub use chaos::Chaos;
pub use faults::Faults;
pub use fixture::{Fixture, open};
pub use history::{History, Span};
pub use party::{Held, Party, PartyMember};
pub use polls::{Polled, poll_times};
pub use suite::keep;
#[cfg(feature = "blocking")]
pub use threads::ThreadHeld;
pub use twist::{Twist, Twisted};

/// Seeds the jitter in the pauses of all clients on this thread, so that a simulation is reproducible.
pub fn seed_chance(seed: u64) {
    crate::engine::runtime::backoff::seed(seed);
}

/// A kind of URL: the cargo feature of its store, how it is written, and its options. Of each option the name, the
/// accepted values, the default and the meaning.
pub type UrlOptions = (&'static str, &'static str, Vec<[&'static str; 4]>);

/// The URLs of the stores in this build.
pub fn url_options() -> Vec<UrlOptions> {
    let stores = crate::store::registry::URL_OPTIONS.iter();
    let each = stores.map(|form| {
        let options = form.options.iter();
        let options = options.map(|it| [it.name, it.value, it.default, it.meaning]);
        (form.store, form.forms, options.collect())
    });
    each.collect()
}

/// The capabilities of the stores in this build, by URL scheme.
pub fn abilities() -> impl Iterator<Item = (&'static str, crate::store::Capabilities)> {
    let each = crate::store::abilities::ABILITIES.iter();
    each.map(|store| (store.url, store.can))
}

/// The names after `memory:?like=`, and the capabilities of the store of that name.
pub fn doubles() -> impl Iterator<Item = (&'static str, crate::store::Capabilities)> {
    let each = crate::store::abilities::ABILITIES.iter();
    each.map(|store| (store.name, store.can))
}
