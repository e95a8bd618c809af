//! What a coarse-grained lock service tells its users: unsure before lost.

use std::time::Instant;

use testkit::servers::EtcdServer;
use tidelock::{Client, Guard, HoldState};

use crate::world::{SOON, ms};

async fn until(guard: &Guard, state: HoldState) {
    let end = Instant::now() + SOON;
    while guard.state() != state {
        assert!(Instant::now() < end, "{:?}, not {state:?}", guard.state());
        tokio::time::sleep(ms(5)).await;
    }
}

/// T60: no member answers. The holder is unsure when a renewal has failed, sure when one has come through, lost at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_a_silent_server_makes_its_holders_unsure() {
    let server = EtcdServer::start().unwrap();
    let builder = Client::builder()
        .lease(ms(6000))
        .response_timeout(ms(500))
        .details(false);
    let client = builder.connect(&server.url()).await.unwrap();
    let guard = client.lock("till").acquire().await.unwrap();
    assert_eq!(guard.state(), HoldState::Held);
    server.freeze().unwrap();
    until(&guard, HoldState::Unsure).await;
    assert!(guard.is_held());
    server.thaw().unwrap();
    until(&guard, HoldState::Held).await;
    server.freeze().unwrap();
    until(&guard, HoldState::Unsure).await;
    until(&guard, HoldState::Lost).await;
    server.thaw().unwrap();
}
