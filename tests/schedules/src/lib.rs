//! Stories of tasks that use one client, under a scheduler that decides at each lock and each atomic which task runs
//! next. See `docs/schedules.md`.
//!
//! The library is the real one; it only takes its locks and atomics from shuttle. Without `--cfg schedules="shuttle"`
//! this package is empty.
#![cfg(schedules = "shuttle")]

mod referee;
mod search;
mod store;
mod story;

pub use search::{Search, begun, explore, replay};
pub use story::{STORIES, Story};
