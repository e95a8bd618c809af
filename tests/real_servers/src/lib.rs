//! Helpers for the tests of the guarantees on real servers.

pub mod entering;
pub mod shares;
pub mod waiting;
