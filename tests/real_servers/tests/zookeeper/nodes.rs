//! The nodes in the store, and the nodes that stay behind.

use std::time::Instant;

use testkit::servers::ZooKeeperServer;

use crate::world::{SOON, client, ms, soon, waits};

/// A lock, its waiters and the path above leave nothing: the server removes empty containers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_locks_and_waiters() {
    let server = ZooKeeperServer::start().unwrap();
    let empty = server.number("zk_znode_count").unwrap();
    let a = client(&format!("{}/deep/down", server.url()), ms(3000)).await;
    let held = a.lock("a/b").acquire().await.unwrap();
    let waiter = waits(&a, "a/b");
    let end = Instant::now() + SOON;
    while server.number("zk_watch_count").unwrap() != 1 {
        assert!(Instant::now() < end, "nobody waits");
        tokio::time::sleep(ms(5)).await;
    }
    held.release().await.unwrap();
    let (guard, _) = soon("the waiter", waiter).await.unwrap();
    drop(guard);
    while server.number("zk_znode_count").unwrap() != empty {
        assert!(Instant::now() < end, "{}", server.say("mntr").unwrap());
        tokio::time::sleep(ms(50)).await;
    }
    assert_eq!(server.number("zk_watch_count").unwrap(), 0);
    // The lock works again after the server has removed its container.
    a.lock("a/b")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    a.close(ms(100)).await;
    // The server has ended the session, but may not have closed its end of the connection yet.
    loop {
        let sessions = server.say("cons").unwrap();
        if !sessions.contains("sid=") {
            break;
        }
        assert!(Instant::now() < end, "{sessions}");
        tokio::time::sleep(ms(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_goes_between_two_pages_hides_no_other() {
    let server = ZooKeeperServer::start().unwrap();
    let a = client(&server.url(), ms(10_000)).await;
    tidelock::testing::promises::mutex::a_name_that_goes_between_two_pages_hides_no_other(&a, 501)
        .await;
}

/// The parts of a multi lock have one owner. Each has a node of its own, which is kept while the set is held and waits
/// while others hold it, and none is left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_parts_of_a_multi_lock_have_a_node_each() {
    let server = ZooKeeperServer::start().unwrap();
    let (a, b) = (
        client(&server.url(), ms(3000)).await,
        client(&server.url(), ms(3000)).await,
    );
    let both = || a.multi_lock([a.lock("one"), a.lock("two")]).unwrap();
    let held = both().acquire().await.unwrap();
    for name in ["one", "two"] {
        let other = b.lock(name).try_acquire().await.unwrap();
        assert!(other.is_none(), "{name}");
    }
    // The renewals of both parts keep it.
    tokio::time::sleep(ms(4000)).await;
    assert!(held.is_held());
    held.release().await.unwrap();
    for name in ["two", "one"] {
        let other = soon("a part", b.lock(name).acquire()).await.unwrap();
        let waiter = tokio::spawn(both().acquire());
        let end = Instant::now() + SOON;
        while server.number("zk_watch_count").unwrap() == 0 {
            assert!(Instant::now() < end, "nobody waits for {name}");
            tokio::time::sleep(ms(5)).await;
        }
        other.release().await.unwrap();
        let set = soon("the set", waiter).await.unwrap().unwrap();
        set.release().await.unwrap();
        assert_eq!(server.number("zk_ephemerals_count").unwrap(), 0, "{name}");
    }
}
