//! The plain Redis lock, which is one key.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod costs;
mod counters;
mod events;
mod every_await;
mod foreign;
mod owners;
mod rights;
mod shares;
mod transactions;
mod wire;

use testkit::servers::{RedisBuilder, RedisServer};
use tidelock::testing::Fixture;

/// A separate server for each promise.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture() -> Fixture {
    let server = RedisServer::start().expect("a server starts");
    Fixture::url(format!("{}?locks=plain", server.url())).keeping(server)
}

mod promises {
    tidelock::conformance!(super::fixture());
    tidelock::conformance!(once: super::fixture());
    tidelock::conformance!(election: super::fixture());
    tidelock::conformance_of_barriers!(none: super::fixture());
}

/// A server that publishes keyspace events when keys are deleted or expire.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn telling() -> Fixture {
    let server = RedisServer::builder().args(["--notify-keyspace-events", "Kgx"]);
    let server = server.start().expect("a server starts");
    Fixture::url(format!("{}?locks=plain", server.url())).keeping(server)
}

mod with_events {
    tidelock::conformance!(super::telling());
}

/// The user of [`without_scripts`], as a URL names it.
const USER: &str = "app:secret@";

/// A server with a user without permission to run Lua scripts.
fn without_scripts() -> RedisBuilder {
    RedisServer::builder().acl("user default off\nuser app on >secret ~* &* +@all -@scripting")
}

#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn unscripted() -> Fixture {
    let server = without_scripts().start().expect("a server starts");
    let url = format!("redis://{USER}127.0.0.1:{}?locks=plain", server.port());
    Fixture::url(url).keeping(server)
}

mod without_scripts {
    tidelock::conformance!(super::unscripted());
}

mod chaos_without_scripts {
    tidelock::conformance!(faces: super::unscripted().through_chaos());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
}

mod threads {
    tidelock::conformance!(blocking: super::fixture().blocking());
}
