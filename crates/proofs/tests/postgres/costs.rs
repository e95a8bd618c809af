//! What waiting costs, and how soon a waiter has its turn.

use std::time::Duration;

use proofs::waiting::{crowd, hand_overs};
use testkit::process::Spawned;

use crate::{client, server};

/// From the release in one client to the lock in the hands of a waiter in another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_takes_milliseconds() {
    let server = server();
    let (one, other) = (client(&server.url()).await, client(&server.url()).await);
    let asleep = |_| Duration::from_millis(100);
    let took = hand_overs(&one, &other, 40, asleep).await.unwrap();
    println!("hand-over: median {:?}, slowest {:?}", took[20], took[39]);
    // By polling it would be that, with nobody else on the machine.
    assert!(took[20] <= Duration::from_millis(50), "{took:?}");
}

/// A hundred tasks in a process that does nothing else: one of them waits for the store, the others behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_cost_next_to_nothing() {
    const WINDOW: Duration = Duration::from_secs(6);
    let server = server();
    let held = client(&server.url()).await.lock("till").acquire().await;
    let held = held.unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_peer"));
    command.args([&server.url(), "30000"]);
    let mut peer = Spawned::start(command).unwrap();
    peer.wait_line("ready", WINDOW * 5).unwrap();
    let busy = crowd(&mut peer, "till", WINDOW).await.unwrap();
    println!("100 waiters for {WINDOW:?}: {busy:?} of a core");
    assert!(busy <= WINDOW.mul_f64(0.02), "{busy:?}");
    held.release().await.unwrap();
    peer.wait_line("acquired till", WINDOW * 5).unwrap();
}
