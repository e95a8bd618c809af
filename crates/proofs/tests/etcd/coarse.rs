//! What a coarse-grained lock service tells its users: unsure before lost, and holds in writing.

use std::time::Instant;

use testkit::servers::EtcdServer;
use tidelock::{Client, FencingToken, Guard, HoldState, Sequencer};

use crate::world::{SOON, client, lease_of, ms, soon, until_keys, waits};

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

/// Another server, with a client of its own, asks about a hold it was told of in writing. Others in the queue, and keys
/// that `etcdctl` made, are not that hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_is_checked_by_anothers_client_on_etcd() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let guard = a.lock("till").acquire().await.unwrap();
    let its: Sequencer = guard.sequencer().unwrap().to_string().parse().unwrap();
    assert_eq!(Some(its.generation()), guard.token().map(FencingToken::get));
    let waiter = waits(&b, "till");
    let keys = until_keys(&server, 2).await;
    assert!(b.check(&its).await.unwrap());
    let other = format!("tidelock1:exclusive:{}:till", its.generation() + 1);
    assert!(!b.check(&other.parse().unwrap()).await.unwrap());
    // Its key moves under another lease, and is still the same one.
    guard.extend(ms(9000)).await.unwrap();
    assert!(b.check(&its).await.unwrap());
    let lease = lease_of(&server, &keys[0]);
    server.admin(&["lease", "revoke", &lease]).unwrap();
    assert!(!b.check(&its).await.unwrap(), "before its holder knows");
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    assert!(!b.check(&its).await.unwrap());
    assert!(a.check(&next.sequencer().unwrap()).await.unwrap());
    next.release().await.unwrap();
    server.admin(&["put", "till/1f", "foreign"]).unwrap();
    assert!(!b.check(&its).await.unwrap());
}
