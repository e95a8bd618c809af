#![doc = include_str!("../README.md")]
//!
//! # Which calls can fail
//!
//! A call that names one thing of a client cannot fail and sends nothing: [`Client::lock`], `fair_lock`, `plain_lock`,
//! `read_write_lock`, [`RedLock::lock`], [`Lock::fenced`]. If the name is invalid, or the store has no such lock, the first
//! operation of the lock says so. A call that puts parts together returns a [`Result`], because the parts may not fit:
//! [`Client::multi_lock`], [`RedLock::new`], and everything that connects. Setters never fail; what uses the settings
//! checks them.
#![cfg_attr(doctest, doc = include_str!("../pages/recipes.md"))]
#![cfg_attr(doctest, doc = include_str!("../pages/moving.md"))]
#![cfg_attr(doctest, doc = include_str!("../pages/testing-your-service.md"))]
#![cfg_attr(doctest, doc = include_str!("../pages/leader-election.md"))]
#![cfg_attr(doctest, doc = include_str!("../pages/scheduled-jobs.md"))]
#![cfg_attr(doctest, doc = include_str!("../pages/tokio.md"))]
#![cfg_attr(doctest, doc = include_str!("../pages/tutorial.md"))]
#![cfg_attr(doctest, doc = include_str!("../pages/web-service.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]
// The store contract is public only with `unstable-backend`. In other builds parts of it are unreachable or unused, so
// those lints are off there; a build with every feature checks the whole contract.
#![cfg_attr(
    not(all(
        feature = "unstable-backend",
        feature = "test-util",
        feature = "redis",
        feature = "sqlite"
    )),
    allow(
        unreachable_pub,
        unused_imports,
        dead_code,
        reason = "the contract for stores is private in this build, or some of it is not used"
    )
)]

mod acknowledge;
mod barrier;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod client;
mod closing;
mod count;
mod counting_semaphore;
mod credentials;
mod downgrade;
pub mod election;
mod engine;
mod error;
mod fence;
mod fenced;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod guard;
mod hand_off;
mod health;
mod latch;
mod list;
mod lock;
mod loss;
mod multi;
mod name;
pub mod once;
mod options;
mod owner;
mod permits;
pub mod processes;
mod read_write;
#[cfg(feature = "redis")]
pub mod redis;
mod redlock;
mod release;
#[cfg(schedules = "shuttle")]
pub mod schedules;
mod semaphore;
mod sequencer;
#[cfg(feature = "serde")]
mod serde_text;
mod snapshot;
mod state;
mod stats;
#[cfg(feature = "unstable-backend")]
pub mod store;
#[cfg(not(feature = "unstable-backend"))]
mod store;
#[cfg(feature = "test-util")]
pub mod test_util;
#[cfg(not(feature = "test-util"))]
mod test_util;
#[cfg(feature = "testing")]
pub mod testing;
mod token_counter;
mod types;
mod unstable;
mod upgrade;
#[allow(clippy::doc_markdown, reason = "a page that also has other readers")]
#[doc = include_str!("../pages/url-options.md")]
pub mod url_options {}

pub use acknowledge::{Acknowledged, ReplicaAck};
pub use barrier::{Barrier, BarrierGuard, BarrierMembers};
pub use builder::ClientBuilder;
pub use client::Client;
pub use closing::Closing;
pub use counting_semaphore::CountingSemaphore;
pub use credentials::Credentials;
pub use downgrade::Downgrade;
pub use error::{Error, ErrorKind, Result};
pub use fence::SqlFence;
pub use fenced::{FencedGuard, LockGuard};
pub use guard::Guard;
pub use hand_off::HandOff;
pub use health::ClientStatus;
pub use latch::Latch;
pub use list::HeldNames;
pub use lock::{Acquire, FencedLock, Lock, TryAcquire};
pub use loss::{Lost, WhileHeld};
pub use options::{AcquireOptions, CancelToken};
pub use owner::Owner;
pub use permits::Permits;
pub use processes::{AwaitedLock, Process};
pub use read_write::ReadWriteLock;
pub use redlock::{RedLock, RedLockBuilder};
pub use release::Release;
pub use semaphore::Semaphore;
pub use sequencer::Sequencer;
pub use snapshot::{ClientInfo, Finding, Holder, Mode, PermitCount, Severity, Snapshot};
pub use state::HoldState;
pub use stats::{Durations, Stats};
pub use types::{Escaped, FencingToken, LostReason};
pub use upgrade::Upgrade;
