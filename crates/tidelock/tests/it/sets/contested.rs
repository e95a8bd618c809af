//! A lock that was granted by some of the servers only, because others had asked for it at the same moment.

use std::time::Duration;

use tidelock::{Client, RedLock};
use tokio::time::sleep;

const LEASE: Duration = Duration::from_secs(30);

async fn client(url: &str) -> Client {
    let builder = Client::builder().simulated_time().lease(LEASE);
    builder.connect(url).await.unwrap()
}

/// Otherwise one server more that loses its memory would end the hold, for a third of a lease.
#[tokio::test(start_paused = true)]
async fn a_lock_is_soon_taken_at_the_servers_that_others_have_given_back() {
    let urls = ["1", "2", "3"].map(|number| format!("memory:contested-{number}"));
    let mut clients = Vec::new();
    for url in &urls {
        clients.push(client(url).await);
    }
    let set = RedLock::builder(clients).longest_lease(LEASE);
    let lock = set.build().unwrap().lock("a");
    let last = client(&urls[2]).await.lock("a");
    let is_held = async || last.inspect().await.unwrap().is_locked();

    let vote = last.acquire().await.unwrap();
    let guard = lock.acquire().await.unwrap();
    vote.release().await.unwrap();
    assert!(!is_held().await);
    sleep(LEASE / 12).await;
    assert!(is_held().await);
    guard.release().await.unwrap();
    assert!(!is_held().await);
}
