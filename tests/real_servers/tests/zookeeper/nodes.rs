//! The nodes in the store, and the nodes that stay behind.

use std::cell::Cell;
use std::time::Instant;

use futures_util::future::join_all;
use testkit::servers::ZooKeeperServer;
use tidelock::{Client, Lock};
use zookeeper_client as zk;

use crate::permits::{bare, patient_client};
use crate::world::{SOON, client, ms, soon, waits};

/// A lock, its waiters and the path above leave nothing: the server removes empty containers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_locks_and_waiters() {
    let server = ZooKeeperServer::start().unwrap();
    let empty = server.number("zk_znode_count").unwrap();
    let a = client(&format!("{}/deep/down", server.url()), ms(12_000)).await;
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
        client(&server.url(), ms(6000)).await,
        client(&server.url(), ms(6000)).await,
    );
    let both = || a.multi_lock([a.lock("one"), a.lock("two")]).unwrap();
    let held = both().acquire().await.unwrap();
    for name in ["one", "two"] {
        let other = b.lock(name).try_acquire().await.unwrap();
        assert!(other.is_none(), "{name}");
    }
    // The renewals of both parts keep it.
    tokio::time::sleep(ms(7000)).await;
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

/// T68: the server has used up its numbers. From 3.6 on it gives all nodes the last one, so nothing says who came first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t68_nobody_passes_a_holder_after_zookeeper_has_used_up_its_numbers() {
    let server = ZooKeeperServer::start().unwrap();
    let a = patient_client(&server).await;
    let held = a.lock("stock").acquire().await.unwrap();
    let last = i32::MAX - 1;
    server.restart_counting_from("/shop/stock", last).unwrap();
    // It comes in order: the last that does.
    let second = waits(&a, "stock");
    let bare = bare(&server).await;
    until_nodes(&bare, 2).await;
    let others: Vec<_> = (0..8)
        .map(|_| {
            let lock = a.lock("stock");
            let refused = tokio::spawn(until_refused_for_its_number(lock.clone()));
            let waiter = async move { lock.acquire().await?.release().await };
            (tokio::spawn(waiter), refused)
        })
        .collect();
    assert!(a.lock("stock").try_acquire().await.unwrap().is_none());
    let mut late = Vec::new();
    for (waiter, refused) in others {
        refused.await.unwrap();
        assert!(!waiter.is_finished(), "it entered beside the holder");
        late.push(waiter);
    }
    assert!(held.is_held());
    held.release().await.unwrap();
    let (second, _) = soon("the waiter in order", second).await.unwrap();
    assert!(second.is_held() && late.iter().all(|it| !it.is_finished()));
    second.release().await.unwrap();
    // The path is empty now but for a moment, so the server removes it and counts from zero again.
    for waiter in late {
        soon("a late waiter", waiter).await.unwrap().unwrap();
    }
}

/// Waits in vain, each time for longer, until the error says why.
async fn until_refused_for_its_number(lock: Lock) {
    let mut limit = ms(2000);
    loop {
        let refused = lock.acquire_timeout(limit).await.map(drop).unwrap_err();
        if refused.to_string().contains("ZooKeeper has numbered") {
            return;
        }
        let again = refused.is_retryable() || refused.outcome_unknown();
        assert!(again && limit < SOON, "{refused}");
        limit *= 2;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t68_holders_exclude_each_other_after_zookeeper_has_used_up_its_numbers() {
    let lock = async |client: Client| client.lock("stock").acquire().await.unwrap();
    take_turns_after_the_last_number("/shop/stock", lock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t68_permits_on_zookeeper_are_not_too_many_after_it_has_used_up_its_numbers() {
    let permit = async |client: Client| {
        let semaphore = client.semaphore("render");
        semaphore.set_permits_if_new(1).await.unwrap();
        semaphore.acquire().await.unwrap()
    };
    take_turns_after_the_last_number("/shop/%permits/render", permit).await;
}

/// Clients come and go without a pause, while the server gives the last number to each node of the path. The guard gives back
/// what it has when it is dropped.
async fn take_turns_after_the_last_number<G>(path: &str, enter: impl AsyncFn(Client) -> G) {
    let server = ZooKeeperServer::start().unwrap();
    let held = enter(patient_client(&server).await).await;
    server.restart_counting_from(path, i32::MAX).unwrap();
    let inside = Cell::new(0);
    let clients = (0..6).map(async |_| {
        let client = patient_client(&server).await;
        for _ in 0..5 {
            let guard = enter(client.clone()).await;
            inside.set(inside.get() + 1);
            assert_eq!(inside.get(), 1, "two are inside");
            tokio::time::sleep(ms(20)).await;
            inside.set(inside.get() - 1);
            drop(guard);
        }
    });
    let clients = join_all(clients.collect::<Vec<_>>());
    let all = async { tokio::join!(clients, async { drop(held) }) };
    // A client whose node was refused asks again after a backoff, and the server must find the path empty meanwhile.
    let all = tokio::time::timeout(SOON * 3, all).await;
    all.expect("all clients had it");
}

async fn until_nodes(bare: &zk::Client, wanted: usize) {
    let end = Instant::now() + SOON;
    loop {
        let nodes = bare.list_children("/shop/stock").await.unwrap();
        if nodes.len() == wanted {
            return;
        }
        assert!(Instant::now() < end, "{nodes:?}");
        tokio::time::sleep(ms(5)).await;
    }
}
