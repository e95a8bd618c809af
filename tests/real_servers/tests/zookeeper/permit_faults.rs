//! Semaphores on a server that comes back empty, on an ensemble that loses a member, and when a process dies while it makes the
//! first number of permits.

use std::time::Instant;

use testkit::proxy::{Mode as Pass, Way};
use testkit::servers::{ZooKeeperEnsemble, ZooKeeperServer};
use tidelock::ErrorKind;
use tokio::task::JoinHandle;
use zookeeper_client as zk;

use crate::permits::{NAME, answered, bare, count, set, until, until_no_claims, waits};
use crate::world::{SOON, World, client, free, ms, soon};

/// T51: an empty server takes the place of the old one. The holder is told, and a waiter waits for a number again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_waiters_go_on_when_an_empty_zookeeper_gets_permits() {
    let server = ZooKeeperServer::start().unwrap();
    let url = format!("{}/w", server.url());
    let (a, b) = (client(&url, ms(6000)).await, client(&url, ms(6000)).await);
    let (near, far) = (a.semaphore(NAME), b.semaphore(NAME));
    set(&near, 2).await;
    let held = near.permits(2).acquire().await.unwrap();
    let waiter = far.permits(1);
    let waiter = tokio::spawn(async move {
        loop {
            match waiter.acquire().await {
                // The server was away for longer than a lease.
                Err(error) if error.is_retryable() => {}
                answer => return answer.unwrap(),
            }
        }
    });
    until(&near, 1).await;
    server.restart_empty().unwrap();
    soon("the loss", held.lost()).await;
    assert!(!held.is_held());
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let waiting = async {
        while !near
            .inspect()
            .await
            .is_ok_and(|seen| seen.waiters == Some(1) && seen.permits.is_none())
        {
            tokio::time::sleep(ms(20)).await;
        }
    };
    soon("it waits again", waiting).await;
    assert!(!waiter.is_finished());
    assert!(answered(async || near.set_permits_if_new(1).await).await);
    let permit = soon("the waiter", waiter).await.unwrap();
    assert_eq!(count(&near).await, (0, 1));
    permit.release().await.unwrap();
    until_no_claims(&server).await;
}

/// T51: the leader of three members dies, and then another member than the one that the holder talks to now. No permit is lost,
/// and none is issued twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_a_member_that_dies_takes_no_permit_with_it() {
    let ensemble = ZooKeeperEnsemble::start(3).unwrap();
    let url = format!("{}/w", ensemble.url());
    // An election takes some seconds on a busy machine.
    let (a, b) = (
        client(&url, ms(20_000)).await,
        client(&url, ms(20_000)).await,
    );
    let (near, far) = (a.semaphore(NAME), b.semaphore(NAME));
    set(&near, 3).await;
    for kills_the_leader in [true, false] {
        let held = soon("permits", near.permits(2).acquire()).await.unwrap();
        let waiter = waits(&far, 2, 1).await;
        let leader = ensemble.leader().unwrap();
        let victim = if kills_the_leader {
            leader
        } else {
            let mut others = ensemble.members().iter();
            others.find(|one| one.addr() != leader.addr()).unwrap()
        };
        victim.kill().unwrap();
        assert_eq!(count(&near).await, (1, 3));
        assert!(held.is_held() && !waiter.is_finished());
        answered(async || far.try_acquire().await.map(|one| assert!(one.is_none()))).await;
        let released = held.release().await;
        assert!(released.is_ok(), "{released:?}");
        let two = soon("the waiter", waiter).await.unwrap();
        assert_eq!(count(&near).await, (1, 3));
        two.release().await.unwrap();
        victim.restart().unwrap();
        ensemble.await_ok().unwrap();
    }
    let all = soon("all of them", near.permits(3).acquire())
        .await
        .unwrap();
    all.release().await.unwrap();
    until_no_claims(&ensemble.members()[0]).await;
}

/// A client has made its node in the queue of the lock, and no transaction of it has arrived. Its next bytes wait in the proxy.
/// Returns the name, and what its call returns.
async fn maker(world: &World) -> (String, JoinHandle<tidelock::Result<bool>>) {
    let seen = bare(&world.server).await;
    for n in 0..10 {
        let name = format!("{NAME}{n}");
        // Otherwise the client makes the folder first, and all that does not fit into its response timeout.
        let mode = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
        seen.mkdir(&format!("/w/{name}"), &mode).await.unwrap();
        world.proxy.set(Way::ToClient, Pass::Delay(ms(100)));
        let semaphore = world.far.semaphore(&name);
        let making = tokio::spawn(async move { semaphore.set_permits_if_new(5).await });
        let begun = Instant::now();
        let is_made = async || {
            let nodes = seen.list_children(&format!("/w/{name}")).await;
            nodes.is_ok_and(|nodes| !nodes.is_empty())
        };
        while !is_made().await && !making.is_finished() {
            assert!(begun.elapsed() < SOON);
        }
        world.proxy.set(Way::ToServer, Pass::Hold);
        world.proxy.set(Way::ToClient, Pass::Pass);
        let nodes = seen.list_children(&format!("/w/{name}")).await.unwrap();
        let has_number = nodes
            .iter()
            .any(|node| node.starts_with("%permits__WRIT__"));
        if !has_number && !making.is_finished() {
            return (name, making);
        }
        // This machine was too slow: the transaction has arrived, or the response timeout is over.
        world.proxy.set(Way::ToServer, Pass::Pass);
        drop(making.await);
    }
    panic!("each transaction arrived");
}

/// T51: a process dies between its node in the queue of the lock and the number that takes the place of that node. Another one
/// makes the number without waiting for it, or somebody acquires a lock of that name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_a_process_that_dies_while_it_makes_the_first_number_leaves_nothing() {
    for makes_another in [true, false] {
        let world = World::hasty(ms(1500)).await;
        let (name, making) = maker(&world).await;
        world.partition();
        let semaphore = world.near.semaphore(&name);
        if makes_another {
            let made = soon("a number", semaphore.set_permits_if_new(2)).await;
            assert!(made.unwrap());
            let two = soon("the permits", semaphore.permits(2).acquire()).await;
            two.unwrap().release().await.unwrap();
        }
        // Its session ends, and its node goes with it.
        world.until_nodes(0).await;
        let error = soon("it is told", making).await.unwrap().unwrap_err();
        assert!(error.is_retryable() || error.outcome_unknown(), "{error}");
        world.heal();
        if makes_another {
            assert_eq!(count(&semaphore).await, (2, 2));
        } else {
            free(&world.near, &name).await;
        }
        world.until_nodes(0).await;
    }
}

/// T51: the transaction of a process that was slow arrives after another one has made the number. It changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_a_first_number_that_comes_late_changes_nothing() {
    let world = World::hasty(ms(9000)).await;
    let (name, making) = maker(&world).await;
    let near = world.near.semaphore(&name);
    let made = soon("a number", near.set_permits_if_new(2)).await;
    assert!(made.unwrap());
    world.proxy.set(Way::ToServer, Pass::Pass);
    match soon("its answer", making).await.unwrap() {
        Ok(made) => assert!(!made, "the other one was first"),
        // Its reply came too late.
        Err(error) => assert!(error.is_retryable() || error.outcome_unknown(), "{error}"),
    }
    assert_eq!(count(&near).await, (2, 2));
    let two = soon("the permits", near.permits(2).acquire()).await;
    two.unwrap().release().await.unwrap();
    world.until_nodes(0).await;
}

/// T51: the reply to the transaction that makes the first number is lost, and then the server cannot be reached. The caller is
/// told that the number may be there, although the request that removes its node was certainly not sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_a_first_number_whose_reply_was_lost_is_in_doubt() {
    let world = World::hasty(ms(9000)).await;
    let (name, making) = maker(&world).await;
    tokio::time::sleep(ms(100)).await; // its transaction comes to the proxy
    world.proxy.refuse(true);
    world.proxy.set(Way::ToClient, Pass::Drop);
    world.proxy.set(Way::ToServer, Pass::Pass);
    let near = world.near.semaphore(&name);
    let made = async {
        while answered(async || near.inspect().await)
            .await
            .permits
            .is_none()
        {
            tokio::time::sleep(ms(5)).await;
        }
    };
    soon("the number", made).await;
    world.proxy.cut();
    let error = soon("its answer", making).await.unwrap().unwrap_err();
    assert!(error.outcome_unknown(), "{error}");
    world.proxy.refuse(false);
    world.proxy.set(Way::ToClient, Pass::Pass);
    assert_eq!(count(&near).await, (5, 5));
    world.until_nodes(0).await;
}
