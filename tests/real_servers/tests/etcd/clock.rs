//! T41: the server's wall clock is changed. The server counts leases on its monotonic clock, but before version 3.5 it
//! looks for expired ones by the wall clock. No lease ends early, and an expired one may stay for as long as the clock
//! was set back.

use testkit::servers::EtcdServer;

use crate::world::{client, ms, soon, until_keys, waits};

const MINUTE: i64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_a_clock_that_jumps_ahead_ends_no_lease() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let guard = a.lock("till").fenced().acquire().await.unwrap();
    let waiter = waits(&b, "till");
    let keys = until_keys(&server, 2).await;
    server.shift_clock(MINUTE).unwrap();
    // Longer than a lease and the time until the server notices that it has expired.
    tokio::time::sleep(ms(4000)).await;
    assert!(guard.is_held() && !waiter.is_finished());
    assert_eq!(until_keys(&server, 2).await, keys, "a place was taken anew");
    let first = guard.token();
    guard.release().await.unwrap();
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    assert!(next.token() > first);
    next.release().await.unwrap();
    until_keys(&server, 0).await;
}

/// Leases granted after the jump end when they should, and so do older ones that were renewed after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_a_clock_that_jumps_back_keeps_nobody_from_releasing() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let guard = a.lock("till").fenced().acquire().await.unwrap();
    let waiter = waits(&b, "till");
    let keys = until_keys(&server, 2).await;
    server.shift_clock(-MINUTE).unwrap();
    tokio::time::sleep(ms(4000)).await;
    assert!(guard.is_held() && !waiter.is_finished());
    assert_eq!(until_keys(&server, 2).await, keys, "a place was taken anew");
    guard.release().await.unwrap();
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    next.release().await.unwrap();
    let dead = dies_with(&server, "till");
    let guard = soon("the lock of the dead", b.lock("till").acquire()).await;
    assert_ne!(until_keys(&server, 1).await, [dead]);
    guard.unwrap().release().await.unwrap();
    until_keys(&server, 0).await;
}

/// The holder died before the clock jumped back. A waiter gets the lock as soon as the server ends the lease: at the
/// latest when the clock is right again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t41_a_dead_holder_is_followed_when_the_clock_is_right_again() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    dies_with(&server, "till");
    server.shift_clock(-MINUTE).unwrap();
    let waiter = waits(&a, "till");
    if looks_by_the_wall_clock(&server) {
        tokio::time::sleep(ms(5000)).await;
        assert!(!waiter.is_finished(), "the table of the page is wrong");
    }
    server.shift_clock(0).unwrap();
    let (guard, _) = soon("the lock of the dead", waiter).await.unwrap();
    guard.release().await.unwrap();
    until_keys(&server, 0).await;
}

/// A client takes the lock for two seconds and does not renew it. Returns the key.
fn dies_with(server: &EtcdServer, name: &str) -> String {
    let said = server.admin(&["lease", "grant", "2"]).unwrap();
    let lease = said.split(' ').nth(1).unwrap();
    let key = format!("{name}/{lease}");
    let put = ["put", &format!("--lease={lease}"), &key, "dead"];
    server.admin(&put).unwrap();
    key
}

/// True for a server before 3.5.
fn looks_by_the_wall_clock(server: &EtcdServer) -> bool {
    let fields = ["endpoint", "status", "-w", "fields"];
    let said = server.admin(&fields).unwrap();
    let version = said
        .lines()
        .find_map(|line| line.strip_prefix("\"Version\" : "));
    version.unwrap().trim_matches('"').starts_with("3.4.")
}
