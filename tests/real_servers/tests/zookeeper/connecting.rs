//! T76: a client connects to a server that is at its connection limit, slow, or not running yet.

use real_servers::connecting::{fill, is_waited_for};
use testkit::servers::ZooKeeperServer;
use tidelock::{Client, ClientBuilder};

use crate::world::ms;

fn builder() -> ClientBuilder {
    Client::builder().lease(ms(9000)).response_timeout(ms(3000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_full_server_is_waited_for() {
    // The server applies this limit to each client address.
    let server = ZooKeeperServer::start_with("maxClientCnxns=3").unwrap();
    let inside = fill(server.addr()).unwrap();
    let open = || {
        drop(inside);
        Ok(())
    };
    is_waited_for(builder(), &server.url(), open).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t76_a_server_that_is_slow_or_started_later_is_waited_for() {
    let server = ZooKeeperServer::start().unwrap();
    server.freeze().unwrap();
    is_waited_for(builder(), &server.url(), || server.thaw())
        .await
        .unwrap();
    server.kill().unwrap();
    is_waited_for(builder(), &server.url(), || server.restart())
        .await
        .unwrap();
}
