//! Tests from outside, one binary.
#![allow(missing_docs, reason = "tests")]

#[cfg(all(feature = "sqlite", unix))]
mod sqlite;
