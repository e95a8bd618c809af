//! The tools that the tests of this room and of those above it share.

pub(crate) mod scripted;
