//! The nodes in the store, and the nodes that stay behind.

use std::time::Instant;

use testkit::servers::ZooKeeperServer;
use tidelock::ErrorKind;
use zookeeper_client as zk;

use crate::permits::{bare, patient_client};
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
    let a = patient_client(&server).await;
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

/// T68: a holder has its node for so long that the server numbers the next one before it. The test makes the node of the
/// holder by hand, as two billion arrivals take too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t68_a_lock_on_zookeeper_whose_numbers_came_round_is_not_granted() {
    let server = ZooKeeperServer::start().unwrap();
    let (a, bare) = (
        client(&format!("{}/shop", server.url()), ms(10_000)).await,
        bare(&server).await,
    );
    let mode = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    bare.mkdir("/shop/stock", &mode).await.unwrap();
    let holder = "/shop/stock/_c_6c2a8be2-4a0c-4f5e-9d3c-0d8f8f1f4f3a-lock-2000000000";
    bare.create(holder, b"", &mode).await.unwrap();
    let lock = a.lock("stock");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let (limit, both) = (ms(200), a.read_write_lock("stock"));
    for (what, refused) in [
        ("lock", lock.acquire_timeout(limit).await.map(drop)),
        ("reader", both.read().acquire_timeout(limit).await.map(drop)),
        (
            "writer",
            both.write().acquire_timeout(limit).await.map(drop),
        ),
    ] {
        let refused = refused.expect_err(what);
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        let why = refused.to_string();
        assert!(why.contains("a billion others"), "{what}: {why}");
    }
    let end = Instant::now() + SOON;
    while let left = bare.list_children("/shop/stock").await.unwrap()
        && left.len() != 1
    {
        assert!(Instant::now() < end, "{left:?}");
        tokio::time::sleep(ms(5)).await;
    }
    assert!(lock.force_release().await.unwrap());
    let held = soon("the lock", lock.acquire()).await.unwrap();
    held.release().await.unwrap();
}
