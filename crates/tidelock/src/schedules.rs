//! For the tests of schedules: the clock of a client whose tasks run under shuttle. Only in builds with
//! `--cfg schedules="shuttle"`.

pub use crate::engine::runtime::scheduled::{advance, restart};
