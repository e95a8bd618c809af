//! Every operation is cancelled at each of its await points, on a real server. No key stays behind.

use std::sync::Arc;
use std::time::Duration;

use testkit::servers::EtcdServer;
use tidelock::testing::Fixture;

/// A server of its own for each promise.
fn fixture() -> Fixture {
    let server = Arc::new(EtcdServer::start().unwrap());
    let fixture = Fixture::url(server.url()).lease_of(Duration::from_secs(3));
    let check = Arc::clone(&server);
    fixture
        .keeping(server)
        .checked_by(move || leftovers(&check))
}

/// The numbers of permits and the tokens that a downgrade has raised stay.
fn leftovers(server: &EtcdServer) -> Option<String> {
    let mut left = server.keys().unwrap();
    let stays = ["%clients/", "%tokens/"];
    left.retain(|key| !key.ends_with("/permits") && !stays.iter().any(|it| key.starts_with(it)));
    (!left.is_empty()).then(|| left.join(", "))
}

mod permit {
    tidelock::conformance_at_every_await!(kind: super::fixture().as_permit());
}

mod kinds {
    tidelock::conformance_at_every_await!(read_write: super::fixture());
    tidelock::conformance_at_every_await!(permits: super::fixture());
}
