//! One process with one or two clients.

use std::time::Duration;

use tidelock::{AcquireOptions, Client, ErrorKind, LostReason};

const LEASE: Duration = Duration::from_millis(900);

#[tokio::test]
async fn two_clients_exclude_each_other_and_hand_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let (one, two) = (
        super::client(&file, LEASE).await,
        super::client(&file, LEASE).await,
    );
    let held = one.lock("stock").acquire().await.unwrap();
    assert!(two.lock("stock").try_acquire().await.unwrap().is_none());
    let seen = two.lock("stock").inspect().await.unwrap();
    assert_eq!(seen.holders.len(), 1);
    assert!(seen.expires_in.unwrap() <= LEASE);
    assert_eq!(two.list("st*").limit(10).await.unwrap(), ["stock"]);
    let waiter = tokio::spawn({
        let lock = two.lock("stock");
        async move { lock.acquire().await }
    });
    tokio::time::sleep(LEASE * 2).await; // the hold is renewed meanwhile
    assert!(!waiter.is_finished());
    held.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(!one.lock("stock").inspect().await.unwrap().is_locked());
    assert!(one.list("*").limit(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn tokens_grow_over_releases_and_new_clients() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let mut last = None;
    for _ in 0..3 {
        let client = super::client(&file, LEASE).await;
        for _ in 0..3 {
            let guard = client.lock("ledger").fenced().acquire().await.unwrap();
            assert!(Some(guard.token()) > last);
            last = Some(guard.token());
            let seen = client.lock("ledger").inspect().await.unwrap();
            assert_eq!(seen.token, last);
            guard.release().await.unwrap();
        }
        client.close(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn the_holder_hears_of_a_force_release_and_of_a_deleted_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    let (one, two) = (
        super::client(&file, LEASE).await,
        super::client(&file, LEASE).await,
    );
    let held = one.lock("a").acquire().await.unwrap();
    assert!(two.lock("a").force_release().await.unwrap());
    assert!(!two.lock("a").force_release().await.unwrap());
    assert_eq!(held.lost().await, LostReason::Taken);

    let held = one.lock("a").acquire().await.unwrap();
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", file.display())).unwrap();
    }
    assert_eq!(held.lost().await, LostReason::Taken);
    // The store continues with a new file.
    one.lock("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    two.lock("a")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_lock_file_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "x".repeat(5000)).unwrap();
    let error = Client::connect(&super::url(&text)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert_eq!(std::fs::read_to_string(&text).unwrap(), "x".repeat(5000));
    for url in [
        "sqlite:",
        "sqlite::memory:",
        "sqlite://host/x.db",
        &super::url(folder.path()),
    ] {
        let error = Client::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}: {error}");
    }
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let client = super::client(&folder.path().join("locks.db"), LEASE).await;
    let held = client.lock("a").acquire().await.unwrap();
    let wait = AcquireOptions::new().wait(Duration::from_millis(50));
    let error = client.lock("a").acquire_with(wait).await.unwrap_err();
    assert!(error.is_timeout());
    held.release().await.unwrap();
    assert!(!client.lock("a").inspect().await.unwrap().is_locked());
}

#[tokio::test]
async fn a_closed_client_leaves_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("locks.db");
    for _ in 0..20 {
        let client = Client::connect(&format!("sqlite:{}", file.display()))
            .await
            .unwrap();
        client.close(Duration::ZERO).await;
        let tool = rusqlite::Connection::open(&file).unwrap();
        let left: i64 = tool
            .query_row("SELECT count(*) FROM clients", [], |row| row.get(0))
            .unwrap();
        assert_eq!(left, 0);
    }
}
