//! Helpers for the tests on real servers.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    reason = "a helper of tests fails when its check fails"
)]

mod callers;
pub mod connecting;
mod history;
mod holders;
pub mod leavers;
pub mod logs;
mod marks;
pub mod requests;
pub mod resource;
pub mod shares;
mod timing;
pub mod upgrades;
pub mod waiting;

pub use callers::callers;
pub use history::{History, Span, Toll, hammer};
pub use holders::{Told, builder, insist, listen, lost_in_time};
pub use marks::{leads, runs_once};
pub use testkit::process::boot_time;
pub use timing::{SOON, eventually, ms, secs, within};
