//! All integration tests of the library, in one binary. None of them needs a server.
#![allow(missing_docs, reason = "tests")]

mod memory;
#[cfg(all(feature = "sqlite", unix))]
mod sqlite;
