//! A wait that any future cancels.

use std::time::Duration;

use tidelock::{AcquireOptions, CancelToken, Client, ErrorKind};
use tokio::sync::oneshot;

#[tokio::test(start_paused = true)]
async fn any_future_cancels_a_wait() {
    let settings = Client::builder().simulated_time();
    let client = settings.connect("memory:").await.unwrap();
    let lock = client.lock("till");
    let held = lock.acquire().await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let options = AcquireOptions::new().cancel_when(async { drop(stopped.await) });
    // Clones of the options share the future.
    let waits =
        [&options, &options].map(|options| tokio::spawn(lock.acquire_with(options.clone())));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    stop.send(()).unwrap();
    for wait in waits {
        let error = wait.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(error.lock_name(), Some("till"));
    }
    // Later acquires with the same options fail at once, even if the lock is free.
    held.release().await.unwrap();
    let error = lock.acquire_with(options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    lock.acquire().await.unwrap().release().await.unwrap();
    client.close(Duration::ZERO).await;
    assert!(client.is_idle());
}

#[tokio::test(start_paused = true)]
async fn the_last_one_set_cancels() {
    let settings = Client::builder().simulated_time();
    let client = settings.connect("memory:").await.unwrap();
    let token = CancelToken::new();
    token.cancel();
    let never = AcquireOptions::new()
        .cancel(&token)
        .cancel_when(std::future::pending());
    drop(client.lock("a").acquire_with(never).await.unwrap());
    let at_once = AcquireOptions::new()
        .cancel_when(std::future::pending())
        .cancel(&token);
    let error = client.lock("b").acquire_with(at_once).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[cfg(feature = "blocking")]
#[test]
fn a_future_cancels_a_thread() {
    use tidelock::blocking;

    let client = blocking::Client::connect("memory:").unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let held = client.lock("till").acquire().unwrap();
    let other = client.clone();
    let waits = std::thread::spawn(move || {
        let options = AcquireOptions::new().cancel_when(async { drop(stopped.await) });
        other.lock("till").acquire_with(options).map(drop)
    });
    drop(stop);
    let error = waits.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    held.release().unwrap();
}
