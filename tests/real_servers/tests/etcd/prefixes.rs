//! Keys of other programs, and of clients with a longer prefix, in the queue of a lock.

use testkit::servers::EtcdServer;
use tidelock::ErrorKind;

use crate::world::{client, soon, until_keys};

/// The prefix of the other client begins with ours and the name of our lock, so its keys are in the queue of that lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_queue_has_the_keys_of_another_prefix_is_refused() {
    let server = EtcdServer::start().unwrap();
    let a = client(&format!("{}/shop", server.url())).await;
    let b = client(&format!("{}/shop/till", server.url())).await;
    let inner = b.lock("inner").acquire().await.unwrap();
    let keys = until_keys(&server, 1).await;
    assert!(keys[0].starts_with("shop/till/inner/"), "{keys:?}");
    let (lock, sides) = (a.lock("till"), a.read_write_lock("till"));
    for refused in [
        lock.try_acquire().await.map(drop),
        soon("an answer", lock.acquire()).await.map(drop),
        sides.read().try_acquire().await.map(drop),
        soon("an answer", sides.read().acquire()).await.map(drop),
        soon("an answer", sides.write().acquire()).await.map(drop),
        lock.inspect().await.map(drop),
        lock.force_release().await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(error.to_string().contains(&keys[0]), "{error}");
    }
    // Each of them has given up its place.
    assert_eq!(until_keys(&server, 1).await, keys);
    // For the other client it is a lock like any other.
    assert!(b.lock("inner").inspect().await.unwrap().is_locked());
    inner.release().await.unwrap();
    until_keys(&server, 0).await;
    let guard = soon("the lock", lock.acquire()).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_program_is_neither_shown_nor_deleted_as_a_holder() {
    is_neither_shown_nor_deleted("shop/config/db").await;
}

/// It has the name of a holder's key. But it never ends, so it may be of a program that uses no leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_without_a_lease_is_neither_shown_nor_deleted_as_a_holder() {
    is_neither_shown_nor_deleted("shop/config/1f").await;
}

/// The key comes while the lock `config` is held, and has no lease.
async fn is_neither_shown_nor_deleted(key: &str) {
    let server = EtcdServer::start().unwrap();
    let a = client(&format!("{}/shop", server.url())).await;
    let lock = a.lock("config");
    let guard = lock.acquire().await.unwrap();
    let seen = lock.inspect().await.unwrap();
    server.admin(&["put", key, "secret"]).unwrap();
    // It is behind the holder, and only a waiter would be behind it.
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiter = soon("an answer", lock.acquire()).await;
    assert_eq!(waiter.unwrap_err().kind(), ErrorKind::WrongType);
    until_keys(&server, 2).await;
    assert!(lock.inspect().await.unwrap().is_locked());
    assert!(lock.force_release().await.unwrap());
    drop(guard);
    assert_eq!(until_keys(&server, 1).await, [key]);
    for refused in [
        lock.try_acquire().await.map(drop),
        lock.inspect().await.map(drop),
        lock.force_release().await.map(drop),
        lock.force_release_if(&seen).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        let text = error.to_string();
        assert!(text.contains(key) && !text.contains("secret"), "{text}");
    }
    assert_eq!(until_keys(&server, 1).await, [key]);
}
