//! Endpoints and connections, for the tests of this room and of those above it. They run on the runtime of the test, on tokio's
//! clock.

use std::sync::Arc;
use std::time::Duration;

use crate::store::Background;
use crate::store::redis::address::HostAddress;
use crate::store::redis::topology::connection::{Connection, ConnectionRuntime};
use crate::store::redis::topology::endpoint::{Endpoint, EndpointLogin, ServerFinder};
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::live_connection::peer::{GREETED, HANDSHAKE, Peer, in_time, nobody};
use crate::store::redis::wire::tests::{LIMIT, simulated};

pub(crate) fn endpoint_at(finder: ServerFinder, entry: EndpointLogin) -> Arc<Endpoint> {
    let (_, timers) = simulated();
    Arc::new(Endpoint::new(finder, entry, timers, LIMIT))
}

/// The endpoint of a server at this address, and the background of its client.
pub(crate) fn endpoint_to(address: HostAddress, limit: Duration) -> (Arc<Endpoint>, Background) {
    let (background, timers) = simulated();
    let (finder, entry) = (ServerFinder::Fixed(address), EndpointLogin::default());
    let endpoint = Endpoint::new(finder, entry, timers, limit);
    (Arc::new(endpoint), background)
}

pub(crate) fn connection_to(address: HostAddress) -> Connection {
    let (endpoint, _) = endpoint_to(address, LIMIT);
    Connection::new(endpoint, ConnectionRuntime::Caller)
}

/// A connection to a peer that the test plays.
pub(crate) async fn live() -> (LiveConnection, Peer) {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (mut peer, login) = (Peer(theirs), nobody());
    let opening = LiveConnection::open(Box::pin(ours), &login, None);
    let greeting = async {
        peer.expects(&HANDSHAKE).await;
        peer.says(GREETED).await;
    };
    let (conn, ()) = in_time(async { tokio::join!(opening, greeting) }).await;
    (conn.unwrap(), peer)
}
