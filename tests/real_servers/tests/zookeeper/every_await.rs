//! Every operation is cancelled at each of its await points, on a real server. No node of a holder or waiter stays behind.

use std::sync::Arc;
use std::time::Duration;

use testkit::servers::ZooKeeperServer;
use tidelock::testing::Fixture;

/// A server of its own for each promise.
fn fixture() -> Fixture {
    let server = Arc::new(ZooKeeperServer::start().unwrap());
    let fixture = Fixture::url(format!("{}/left", server.url())).lease_of(Duration::from_secs(3));
    let check = Arc::clone(&server);
    fixture
        .keeping(server)
        .checked_by(move || leftovers(&check))
}

fn leftovers(server: &ZooKeeperServer) -> Option<String> {
    let nodes = server.number("zk_ephemerals_count").unwrap();
    (nodes > 0).then(|| format!("{nodes} nodes"))
}

mod permit {
    tidelock::conformance_at_every_await!(kind: super::fixture().as_permit());
}

mod kinds {
    tidelock::conformance_at_every_await!(read_write: super::fixture());
    tidelock::conformance_at_every_await!(permits: super::fixture());
}
