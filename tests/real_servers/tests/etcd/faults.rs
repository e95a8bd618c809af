//! Faults on etcd (T60): leases that end early, compacted history, late unlocks, and server failures. To lose a
//! reply, put a `testkit::proxy::Proxy` between client and server; `zookeeper/faults.rs` has an example.

use std::time::Instant;

use real_servers::lost_in_time;
use testkit::proxy::{Mode, Proxy, Then, When};
use testkit::servers::{EtcdCluster, EtcdServer};
use tidelock::{Client, ErrorKind, LostReason};

use crate::world::{client, lease_of, ms, soon, until_keys, waits};

/// The lease is revoked while its client waits. etcd's own client once believed itself to be the holder after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_a_lease_revoked_while_waiting_makes_nobody_a_holder() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let guard = a.lock("till").fenced().acquire().await.unwrap();
    let waiter = waits(&b, "till");
    let keys = until_keys(&server, 2).await;
    server
        .admin(&["lease", "revoke", &lease_of(&server, &keys[1])])
        .unwrap();
    // It creates a new key in the queue, and does not hold the lock before its turn.
    let again = until_keys(&server, 2).await;
    assert_eq!(again[0], keys[0]);
    tokio::time::sleep(ms(1500)).await;
    assert!(!waiter.is_finished());
    assert!(guard.is_held());
    let first = guard.token();
    guard.release().await.unwrap();
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    assert!(next.is_held() && next.token() > first);
    next.release().await.unwrap();
    until_keys(&server, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_a_lease_revoked_while_holding_is_told() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let guard = a.lock("till").fenced().acquire().await.unwrap();
    let waiter = waits(&b, "till");
    let keys = until_keys(&server, 2).await;
    server
        .admin(&["lease", "revoke", &lease_of(&server, &keys[0])])
        .unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Taken);
    let (next, _) = soon("the next holder", waiter).await.unwrap();
    // A late unlock of the former holder has no effect on others.
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    tokio::time::sleep(ms(1500)).await;
    assert!(next.is_held());
    next.release().await.unwrap();
    until_keys(&server, 0).await;
}

/// A key of the same name that was created again belongs to another holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_a_stale_unlock_leaves_a_key_that_was_made_anew() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let guard = a.lock("till").acquire().await.unwrap();
    let key = until_keys(&server, 1).await.remove(0);
    let value = server.admin(&["get", &key, "--print-value-only"]).unwrap();
    server.admin(&["del", &key]).unwrap();
    server.admin(&["put", &key, value.trim()]).unwrap();
    assert!(guard.release().await.is_err());
    tokio::time::sleep(ms(300)).await;
    assert_eq!(until_keys(&server, 1).await, [key]);
}

/// The history that the watch needs has been compacted. The waiter is woken all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_a_compaction_hides_no_release() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (long_client(&server).await, long_client(&server).await);
    for _ in 0..5 {
        let guard = a.lock("till").acquire().await.unwrap();
        let waiter = waits(&b, "till");
        until_keys(&server, 2).await;
        let said = server.admin(&["put", "else", "1", "-w", "fields"]).unwrap();
        let revision = said
            .lines()
            .find_map(|line| line.strip_prefix("\"Revision\" : "));
        server
            .admin(&["compact", revision.unwrap().trim()])
            .unwrap();
        server.admin(&["del", "else"]).unwrap();
        let begun = Instant::now();
        guard.release().await.unwrap();
        let (next, taken) = soon("the waiter", waiter).await.unwrap();
        // Without the watch, the waiter would ask by itself a third of its lease after it last did.
        assert!(taken - begun < ms(3000), "{:?}", taken - begun);
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_a_server_restart_loses_nothing() {
    let server = EtcdServer::start().unwrap();
    let builder = || {
        tidelock::Client::builder()
            .lease(ms(9000))
            .response_timeout(ms(3000))
    };
    let a = builder()
        .publish_process_info(false)
        .connect(&server.url())
        .await
        .unwrap();
    let b = builder()
        .publish_process_info(false)
        .connect(&server.url())
        .await
        .unwrap();
    let guard = a.lock("till").acquire().await.unwrap();
    let waiter = waits(&b, "till");
    until_keys(&server, 2).await;
    server.kill().unwrap();
    tokio::time::sleep(ms(500)).await;
    server.restart().unwrap();
    tokio::time::sleep(ms(4000)).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    next.release().await.unwrap();
    until_keys(&server, 0).await;
}

/// The server allows fewer operations in a transaction than the client holds locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locks_are_renewed_where_a_transaction_may_read_few_keys() {
    let builder = EtcdServer::builder().args(["--max-txn-ops", "8"]);
    let server = builder.start().unwrap();
    let client = client(&server.url()).await;
    let mut held = Vec::new();
    for n in 0..60 {
        let lock = client.lock(&format!("till:{n}"));
        held.push(lock.acquire().await.unwrap());
    }
    // By then each lease has ended, unless it was renewed.
    tokio::time::sleep(ms(3000)).await;
    for guard in held {
        guard.release().await.unwrap();
    }
    until_keys(&server, 0).await;
}

/// A client whose leases outlast a restart of the server by far.
async fn long_client(server: &EtcdServer) -> Client {
    let builder = Client::builder().lease(ms(12_000));
    let builder = builder
        .response_timeout(ms(3000))
        .publish_process_info(false);
    builder.connect(&server.url()).await.unwrap()
}

/// Acquires the lock that a snapshot has brought back. Its lease would end by itself only later.
async fn acquire_what_came_back(client: &Client) {
    let till = client.lock("till");
    let free = tokio::time::timeout(ms(4000), till.acquire()).await;
    let guard = free.expect("the lock stays taken, and nobody holds it");
    guard.unwrap().release().await.unwrap();
}

/// The store is restored from a snapshot that has the key of a lock which was released since. A waiter for another lock uses its
/// lease by now, and must not keep it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_keeps_no_lock_that_a_snapshot_has_brought_back() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (long_client(&server).await, long_client(&server).await);
    let guard = a.lock("till").acquire().await.unwrap();
    let key = until_keys(&server, 1).await.remove(0);
    server.save().unwrap();
    guard.release().await.unwrap();
    let lost = b.lock("stock").acquire().await.unwrap();
    let waiter = waits(&a, "stock");
    let waiting = until_keys(&server, 2).await.remove(1);
    let (id, waits_as) = (key.strip_prefix("till/"), waiting.strip_prefix("stock/"));
    assert!(
        id.is_some() && id == waits_as,
        "the same lease: {key}, {waiting}"
    );
    server.restart_saved().unwrap();
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    acquire_what_came_back(&b).await;
    assert!(next.is_held());
    next.release().await.unwrap();
    drop(lost);
    until_keys(&server, 0).await;
}

/// As above, while the lease is spare. The next acquisition uses it, that of the same lock too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_lease_keeps_no_lock_that_a_snapshot_has_brought_back() {
    for next in ["another lock", "the same lock", "a permit"] {
        let server = EtcdServer::start().unwrap();
        let (a, b) = (long_client(&server).await, long_client(&server).await);
        let pool = a.semaphore("pool");
        pool.set_permits(1).await.unwrap();
        let guard = a.lock("till").acquire().await.unwrap();
        server.save().unwrap();
        guard.release().await.unwrap();
        server.restart_saved().unwrap();
        // Their connections are new, and they have not acquired anything yet.
        for client in [&a, &b] {
            let connected = async {
                while client.lock("till").inspect().await.is_err() {
                    tokio::time::sleep(ms(20)).await;
                }
            };
            soon("a connection", connected).await;
        }
        assert!(
            b.lock("till").inspect().await.unwrap().is_locked(),
            "{next}"
        );
        if next == "a permit" {
            let permit = pool.acquire().await.unwrap();
            acquire_what_came_back(&b).await;
            permit.release().await.unwrap();
            continue;
        }
        let name = if next == "the same lock" {
            "till"
        } else {
            "stock"
        };
        let acquired = tokio::time::timeout(ms(4000), a.lock(name).acquire()).await;
        let guard = acquired.expect(next).unwrap();
        if name == "till" {
            guard.release().await.unwrap();
            acquire_what_came_back(&b).await;
        } else {
            acquire_what_came_back(&b).await;
            guard.release().await.unwrap();
        }
    }
}

/// The server is frozen: the holder learns of the loss in time by its own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_a_frozen_server_loses_the_lock_in_time() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let guard = a.lock("till").acquire().await.unwrap();
    server.freeze().unwrap();
    // The last request that the server has answered was sent before this instant. The lease is 2 s.
    let frozen = Instant::now();
    let told = lost_in_time(&guard, frozen, ms(2000));
    assert_eq!(soon("the loss", told).await, LostReason::Expired);
    // The frozen server grants nothing; a busy machine may be late to tell.
    assert!(frozen.elapsed() <= ms(4000), "{:?}", frozen.elapsed());
    server.thaw().unwrap();
    drop(guard);
    let guard = soon("the lock", a.lock("till").acquire()).await.unwrap();
    guard.release().await.unwrap();
    until_keys(&server, 0).await;
}

/// The new leader gives each lease its whole length again. Three moves, each with a holder and a waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t31_a_leader_that_is_moved_takes_no_lock_with_it() {
    let cluster = EtcdCluster::start(3).unwrap();
    let builder = || {
        Client::builder()
            .lease(ms(6000))
            .publish_process_info(false)
    };
    let a = builder().connect(&cluster.url()).await.unwrap();
    let b = builder().connect(&cluster.url()).await.unwrap();
    let mut token = None;
    for _ in 0..3 {
        let guard = a.lock("till").fenced().acquire().await.unwrap();
        assert!(token < Some(guard.token()));
        let waiter = waits(&b, "till");
        until_keys(cluster.leader().unwrap(), 2).await;
        cluster.move_leader().unwrap();
        tokio::time::sleep(ms(6000)).await;
        assert!(guard.is_held() && !waiter.is_finished());
        soon("the release", guard.release()).await.unwrap();
        let (next, _) = soon("the waiter", waiter).await.unwrap();
        token = Some(next.token());
        soon("its release", next.release()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_a_leader_that_dies_takes_no_lock_with_it() {
    let cluster = EtcdCluster::start(3).unwrap();
    let builder = || {
        let builder = tidelock::Client::builder().lease(ms(9000));
        builder
            .response_timeout(ms(1000))
            .publish_process_info(false)
    };
    let a = builder().connect(&cluster.url()).await.unwrap();
    let b = builder().connect(&cluster.url()).await.unwrap();
    let guard = a.lock("till").fenced().acquire().await.unwrap();
    let waiter = waits(&b, "till");
    let leader = cluster.leader().unwrap();
    until_keys(leader, 2).await;
    leader.kill().unwrap();
    tokio::time::sleep(ms(4000)).await;
    assert!(guard.is_held() && !waiter.is_finished());
    let first = guard.token();
    soon("the release", guard.release()).await.unwrap();
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    assert!(next.token() > first);
    soon("its release", next.release()).await.unwrap();
}

/// The member whose connection is watched goes silent. Two proxies in front of one server stand for two members. The waiter
/// asks by itself only after ten seconds, so a release before that reaches it through the other member, or not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_watches_leave_a_silent_member_with_the_requests() {
    let server = EtcdServer::start().unwrap();
    let silent = Proxy::start(server.addr()).unwrap();
    let other = Proxy::start(server.addr()).unwrap();
    let lease = ms(30_000);
    let builder = || {
        let builder = tidelock::Client::builder().lease(lease);
        builder
            .response_timeout(ms(1000))
            .publish_process_info(false)
    };
    let a = builder().connect(&server.url()).await.unwrap();
    let url = format!("etcd://{},{}", silent.addr(), other.addr());
    let b = builder().connect(&url).await.unwrap();
    let guard = a.lock("till").acquire().await.unwrap();
    let waiter = waits(&b, "till");
    until_keys(&server, 2).await;
    tokio::time::sleep(ms(300)).await; // until the watch stands
    silent.set_both(Mode::Drop);
    // Its first attempt gets no answer. The next one goes to the other member.
    let asked = Instant::now();
    let elsewhere = soon("a request", b.lock("elsewhere").acquire())
        .await
        .unwrap();
    assert!(other.connections() > 0);
    guard.release().await.unwrap();
    let (next, taken) = soon("the waiter", waiter).await.unwrap();
    // The waiter has asked shortly before that request, and does so again a third of a lease later.
    assert!(taken - asked < lease / 4, "{:?}", taken - asked);
    next.release().await.unwrap();
    elsewhere.release().await.unwrap();
    until_keys(&server, 0).await;
}

/// Two waiters of one client reuse leases that earlier holds have left, of which less is left than until their next keep-alive.
/// The second one finds the lock taken a moment after the first. Both keep their places ahead of a waiter that comes later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_under_a_lease_that_was_spare_keeps_its_place() {
    let server = EtcdServer::start().unwrap();
    let builder = || {
        let builder = tidelock::Client::builder().lease(ms(6000));
        builder
            .response_timeout(ms(2000))
            .publish_process_info(false)
    };
    let a = builder().connect(&server.url()).await.unwrap();
    let b = builder().connect(&server.url()).await.unwrap();
    let c = builder().connect(&server.url()).await.unwrap();
    let guard = a.lock("till").acquire().await.unwrap();
    let earlier = [b.lock("one"), b.lock("two")].map(|lock| lock.acquire());
    let earlier = futures_util::future::try_join_all(earlier).await.unwrap();
    // Shorter than the time until a renewal, and then shorter than the time for which a lease is kept for reuse.
    tokio::time::sleep(ms(1700)).await;
    for guard in earlier {
        guard.release().await.unwrap();
    }
    tokio::time::sleep(ms(2800)).await;
    // 1.5 s of both leases are left, and the waiters ask again after 2 s.
    let first = waits(&b, "till");
    until_keys(&server, 2).await;
    tokio::time::sleep(ms(100)).await;
    let second = waits(&b, "till");
    until_keys(&server, 3).await;
    let last = waits(&c, "till");
    let order = until_keys(&server, 4).await;
    tokio::time::sleep(ms(3000)).await;
    assert_eq!(until_keys(&server, 4).await, order);
    guard.release().await.unwrap();
    for waiter in [first, second, last] {
        let (guard, _) = soon("its turn", waiter).await.unwrap();
        guard.release().await.unwrap();
    }
    until_keys(&server, 0).await;
}

/// The request that moves a key to a longer lease gets no answer, and takes effect when that lease would have ended long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t60_an_extension_that_takes_effect_late_ends_no_hold() {
    let server = EtcdServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let builder = tidelock::Client::builder()
        .lease(ms(4000))
        .response_timeout(ms(2500));
    let builder = builder.publish_process_info(false);
    let url = format!("etcd://{}", proxy.addr());
    let a = builder.connect(&url).await.unwrap();
    let guard = a.lock("till").acquire().await.unwrap();
    let key = until_keys(&server, 1).await.remove(0);
    let old = lease_of(&server, &key);
    let value = server.admin(&["get", &key, "--print-value-only"]).unwrap();
    let value = value.trim();
    // Of all requests that a hold sends, only that one has the value of the key.
    let lost = proxy.on(When::bytes(value), Then::Hold);
    let error = guard.extend(ms(6000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(lost.count(), 1);
    let listed = server.admin(&["lease", "list"]).unwrap();
    // The first line has their number. The others may have leading zeros, which `lease_of` leaves out.
    let ids = listed.lines().skip(1);
    let mut ids = ids.map(|id| id.trim().trim_start_matches('0'));
    let new = ids.find(|id| *id != old).expect("another lease");
    // Nobody knows when the request arrives. By then the lease would have ended by itself.
    tokio::time::sleep(ms(10_000)).await;
    assert_eq!(lease_of(&server, &key), old);
    let under = format!("--lease={new}");
    server.admin(&["put", &key, value, &under]).unwrap();
    tokio::time::sleep(ms(5000)).await;
    assert!(guard.is_held());
    assert_eq!(lease_of(&server, &key), new);
    guard.release().await.unwrap();
    until_keys(&server, 0).await;
}
