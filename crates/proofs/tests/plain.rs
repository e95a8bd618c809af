//! The plain lock of Redis, one key.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "plain/costs.rs"]
mod costs;
#[path = "plain/counters.rs"]
mod counters;
#[path = "plain/events.rs"]
mod events;
#[path = "plain/foreign.rs"]
mod foreign;
#[path = "plain/shares.rs"]
mod shares;
#[path = "plain/wire.rs"]
mod wire;

use testkit::servers::RedisServer;
use tidelock::testing::Fixture;

/// A server of its own, for as long as the promise is being proved.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn fixture() -> Fixture {
    let server = RedisServer::start().expect("a server starts");
    Fixture::url(format!("{}?locks=plain", server.url())).keeping(server)
}

mod promises {
    tidelock::conformance!(super::fixture());
}

/// A server that tells when keys go.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn telling() -> Fixture {
    let server = RedisServer::builder().args(["--notify-keyspace-events", "Kgx"]);
    let server = server.start().expect("a server starts");
    Fixture::url(format!("{}?locks=plain", server.url())).keeping(server)
}

mod with_events {
    tidelock::conformance!(super::telling());
}

/// A user that may not run scripts.
#[allow(clippy::expect_used, reason = "a missing server is a failure")]
fn unscripted() -> Fixture {
    let server = RedisServer::builder()
        .acl("user default off\nuser app on >secret ~* &* +@all -@scripting")
        .start()
        .expect("a server starts");
    Fixture::url(format!(
        "redis://app:secret@127.0.0.1:{}?locks=plain",
        server.port()
    ))
    .keeping(server)
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
