//! The features of a coarse-grained lock service: unsure before lost, sequencers, and lock delays.

use std::time::Instant;

use testkit::process::Spawned;
use testkit::servers::EtcdServer;
use tidelock::{AcquireOptions, Client, Guard, HoldState, Sequencer};

use crate::etcdctl::{count, foreign};
use crate::world::{SOON, client, lease_of, ms, soon, until_keys, waits};

async fn until(guard: &Guard, state: HoldState) {
    let end = Instant::now() + SOON;
    while guard.state() != state {
        assert!(Instant::now() < end, "{:?}, not {state:?}", guard.state());
        tokio::time::sleep(ms(5)).await;
    }
}

/// T60: no member answers. The holder becomes unsure when a renewal fails, sure again when one succeeds, and lost at
/// the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_a_silent_server_makes_its_holders_unsure() {
    let server = EtcdServer::start().unwrap();
    let builder = Client::builder()
        .lease(ms(6000))
        .response_timeout(ms(1000))
        .publish_process_info(false);
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

/// Another server checks with its own client a hold that it received as a sequencer. Other keys in the queue, and keys
/// made by `etcdctl`, do not count as that hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequencer_is_checked_by_anothers_client_on_etcd() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let guard = a.lock("till").fenced().acquire().await.unwrap();
    let its: Sequencer = guard.sequencer().unwrap().to_string().parse().unwrap();
    assert_eq!(its.generation(), guard.token().get());
    let waiter = waits(&b, "till");
    let keys = until_keys(&server, 2).await;
    assert!(b.verify(&its).await.unwrap());
    let other = format!("tidelock1:exclusive:{}:till", its.generation() + 1);
    assert!(!b.verify(&other.parse().unwrap()).await.unwrap());
    // The key moves to another lease and remains the same key.
    guard.extend(ms(9000)).await.unwrap();
    assert!(b.verify(&its).await.unwrap());
    let lease = lease_of(&server, &keys[0]);
    server.admin(&["lease", "revoke", &lease]).unwrap();
    assert!(!b.verify(&its).await.unwrap(), "before its holder knows");
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    assert!(!b.verify(&its).await.unwrap());
    assert!(a.verify(&next.sequencer().unwrap()).await.unwrap());
    next.release().await.unwrap();
    server.admin(&["put", "till/1f", "foreign"]).unwrap();
    assert!(!b.verify(&its).await.unwrap());
}

/// Another process, with leases of two seconds.
fn peer(server: &EtcdServer) -> Spawned {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_peer"));
    command.args([server.url(), ms(2000).as_millis().to_string()]);
    let mut peer = Spawned::start(command).unwrap();
    peer.wait_line("ready", SOON).unwrap();
    peer
}

/// The keys of the lock, without the keys in which processes store their details.
async fn until_places(server: &EtcdServer, count: usize) -> Vec<String> {
    let end = Instant::now() + SOON;
    loop {
        let list = server
            .admin(&["get", "till/", "--prefix", "--keys-only"])
            .unwrap();
        let keys: Vec<String> = list.split_whitespace().map(str::to_owned).collect();
        if keys.len() == count {
            return keys;
        }
        assert!(Instant::now() < end, "{count} keys: {keys:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// The holder's process is killed. `etcdctl lock`, which does not know of lock delays, gets the lock only after the
/// delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_waits_for_a_delay_too() {
    let server = EtcdServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut peer = peer(&server);
    let asked = format!("acquire till lock_delay={}", ms(3000).as_millis());
    peer.write_line(&asked).unwrap();
    peer.wait_line("acquired till", SOON).unwrap();
    let mut other = foreign(&server, dir.path(), 1);
    until_places(&server, 3).await;
    // At least two thirds of the lease were left then, or a little less on a busy machine. After that comes the delay.
    let begun = Instant::now();
    peer.kill().unwrap();
    let ended = tokio::task::spawn_blocking(move || other.wait()).await;
    assert!(ended.unwrap().unwrap().success());
    assert_eq!(count(dir.path(), "turns"), 1);
    let waited = begun.elapsed();
    assert!(waited >= ms(3300) && waited < ms(12_000), "{waited:?}");
    until_places(&server, 0).await;
}

/// A waiter has no hold: if it is killed while it waits, its lock delay has no effect, however long it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_vanishes_leaves_no_delay() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let guard = a.lock("till").acquire().await.unwrap();
    let mut peer = peer(&server);
    peer.write_line("acquire till lock_delay=3600000").unwrap();
    until_places(&server, 3).await;
    peer.kill().unwrap();
    until_places(&server, 1).await;
    guard.release().await.unwrap();
    let guard = soon("the lock", a.lock("till").acquire()).await.unwrap();
    guard.release().await.unwrap();
}

/// The marker of a delay moves with its key. A release and a forced release remove it; it stays if the key expires. A
/// sequencer refers to the key, not the marker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marker_goes_with_a_release_and_by_force() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let delayed = || AcquireOptions::new().lock_delay(ms(3_600_000));
    let guard = a.lock("till").acquire_with(delayed()).await.unwrap();
    until_places(&server, 2).await;
    guard.extend(ms(9000)).await.unwrap();
    until_places(&server, 2).await;
    guard.release().await.unwrap();
    until_places(&server, 0).await;
    let guard = a.lock("till").acquire_with(delayed()).await.unwrap();
    let its = guard.sequencer().unwrap();
    let waiter = waits(&b, "till");
    let keys = until_places(&server, 3).await;
    assert!(b.verify(&its).await.unwrap());
    assert_eq!(b.lock("till").inspect().await.unwrap().waiters, Some(1));
    let key = keys
        .iter()
        .find_map(|key| key.strip_suffix(".delay"))
        .unwrap();
    let marker = format!("{key}.delay");
    let lease = lease_of(&server, key);
    assert_ne!(lease, lease_of(&server, &marker));
    server.admin(&["lease", "revoke", &lease]).unwrap();
    until_places(&server, 2).await;
    assert!(!b.verify(&its).await.unwrap());
    let seen = b.lock("till").inspect().await.unwrap();
    assert!(!seen.is_locked() && seen.waiters == Some(1), "{seen:?}");
    soon("the loss", guard.lost()).await;
    drop(guard);
    tokio::time::sleep(ms(1500)).await;
    assert!(!waiter.is_finished());
    assert!(a.lock("till").force_release().await.unwrap());
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    next.release().await.unwrap();
    until_places(&server, 0).await;
}
