#![doc = include_str!("../../../README.md")]

#[cfg(feature = "unstable-backend")]
pub mod backend;
#[cfg(not(feature = "unstable-backend"))]
#[allow(
    unreachable_pub,
    reason = "public only with the feature that opens the contract to outside stores"
)]
mod backend;
mod client;
mod core;
mod error;
mod guard;
mod lock;
mod name;
mod options;
mod owner;
mod snapshot;

pub use client::{Client, ClientBuilder, Credentials};
pub use error::{Error, ErrorKind, Result};
pub use guard::{FencingToken, Guard, Lost, LostReason, Release, WhileHeld};
pub use lock::{Acquire, Lock, TryAcquire};
pub use options::{AcquireOptions, Cancel};
pub use owner::Owner;
pub use snapshot::{ClientInfo, Finding, Holder, Severity, Snapshot};
