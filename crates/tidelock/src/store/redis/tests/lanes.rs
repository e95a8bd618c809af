//! The lanes of the locks of a store.

use crate::store::redis::wire::tests::ScriptedServer;
use crate::store::{Name, Store};

/// A server that hangs must not delay the renewals at another one.
#[tokio::test]
async fn locks_share_a_lane_exactly_if_the_same_server_has_them() {
    let (server, other) = (ScriptedServer::start().await, ScriptedServer::start().await);
    let lower = format!("[ 0 8191 [ 127.0.0.1 {} 'a ] ]", server.port);
    let upper = format!("[ 8192 16383 [ 127.0.0.1 {} 'b ] ]", other.port);
    for node in [&server, &other] {
        node.on("CLUSTER SLOTS", &format!("[ {lower} {upper} ]"));
    }
    let (single, cluster) = (server.store().await, server.cluster().await);
    // Their slots are 3902, 5403 and 15495.
    let names = ["stock", "price", "a"].map(|name| Name::new(name).unwrap());
    let lanes = |store: &Store| names.each_ref().map(|name| store.front.lane(name));
    assert_eq!(lanes(&single), [0; 3]);
    let [stock, price, elsewhere] = lanes(&cluster);
    assert_eq!(stock, price);
    assert_ne!(stock, elsewhere);
}
