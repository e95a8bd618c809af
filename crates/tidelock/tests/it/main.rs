//! All integration tests of the library, in one binary. None of them needs a server.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod abilities;
mod api;
mod architecture;
mod hand_off;
mod every_await;
mod history;
mod memory;
mod multi;
mod own_store;
mod paused;
mod polled;
mod redlock;
mod sets;
#[cfg(all(feature = "sqlite", unix))]
mod sqlite;
mod wakers;
