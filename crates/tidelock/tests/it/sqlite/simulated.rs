//! On tokio's paused clock: leases expire without real waiting.

use std::time::Duration;

use tidelock::{AcquireOptions, Client};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn leases_go_by_the_simulated_clock() {
    let folder = tempfile::tempdir().unwrap();
    let url = super::url(&folder.path().join("locks.db"));
    let connect = async || {
        let builder = Client::builder().lease(LEASE).simulated_time();
        builder.connect(&url).await.unwrap()
    };
    let one = connect().await;
    tokio::time::advance(LEASE).await;
    let two = connect().await; // its clock has another origin
    let fixed = AcquireOptions::new().expires_after(LEASE);
    let began = tokio::time::Instant::now();
    let guard = one.lock("a").acquire_with(fixed).await.unwrap();
    let taken = two.lock("a").acquire().await.unwrap();
    let took = began.elapsed();
    assert!(took >= LEASE && took < LEASE * 2, "{took:?}");
    assert!(!guard.is_held());
    // The lock is held over many leases, then handed over.
    let waiter = tokio::spawn({
        let lock = one.lock("a");
        async move { lock.acquire().await }
    });
    tokio::time::sleep(LEASE * 10).await;
    assert!(taken.is_held() && !waiter.is_finished());
    let released = tokio::time::Instant::now();
    taken.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(released.elapsed() < Duration::from_millis(10));
}
