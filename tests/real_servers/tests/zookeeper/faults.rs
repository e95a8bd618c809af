//! T59: session faults, and their effect on locks.

use std::time::{Duration, Instant};

use testkit::proxy::{Mode, Way};
use testkit::servers::ZooKeeperServer;
use tidelock::{AcquireOptions, Client, ErrorKind, LostReason};
use zookeeper_client as zk;

use crate::permits::{bare, set};
use crate::world::{SOON, World, client_that_waits, free, ms, noted, soon, waits};

/// The holder is cut off by a silent partition. It knows that the lock is lost before the server ends its session and
/// grants the lock to the next waiter. After the partition it does not disturb the new holder, and takes the lock in a
/// new session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_an_expired_session_is_told_before_another_has_the_lock() {
    let world = World::new(ms(1500)).await;
    let guard = world.far.lock("till").fenced().acquire().await.unwrap();
    let first = guard.token();
    let next = waits(&world.near, "till");
    world.until_nodes(2).await;
    world.partition();
    let told = noted(guard);
    let (next, taken) = soon("the next holder", next).await.unwrap();
    let (guard, reason, at) = soon("the loss", told).await.unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(at < taken, "told {:?} too late", at - taken);
    assert!(next.token() > first);
    world.heal();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let waited = AcquireOptions::new().wait(ms(1000));
    let refused = world.far.lock("till").acquire_with(waited).await;
    assert!(refused.unwrap_err().is_retryable());
    assert!(next.is_held());
    next.release().await.unwrap();
    free(&world.far, "till").await;
    world.until_nodes(0).await;
}

/// A lease of one hour still ends with the session, and the holder learns of the loss beforehand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_lease_that_outlasts_its_session_is_lost_with_it() {
    let world = World::new(ms(1500)).await;
    let hour = AcquireOptions::new().expires_after(ms(3_600_000));
    let guard = world.far.lock("till").acquire_with(hour).await.unwrap();
    // While the server responds, the hold lasts for several session timeouts. The proved time never exceeds one session
    // timeout.
    tokio::time::sleep(ms(5000)).await;
    assert!(guard.is_held());
    assert!(guard.valid_for() <= ms(1500), "{:?}", guard.valid_for());
    let next = waits(&world.near, "till");
    world.until_nodes(2).await;
    world.partition();
    let told = noted(guard);
    let (next, taken) = soon("the next holder", next).await.unwrap();
    let (_guard, reason, at) = soon("the loss", told).await.unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(at < taken, "told {:?} too late", at - taken);
    world.heal();
    next.release().await.unwrap();
}

/// A session ends for all of its locks. A short lease has a session with an equally short timeout, so a client that
/// vanishes with it is replaced equally soon, and locks with longer leases stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_short_lease_ends_with_a_session_as_short() {
    let world = World::hasty(ms(16_000)).await;
    let long = world.far.lock("desk").acquire().await.unwrap();
    let short = AcquireOptions::new().lease(ms(2000));
    let guard = world.far.lock("till").acquire_with(short).await.unwrap();
    tokio::time::sleep(ms(3000)).await;
    let next = waits(&world.near, "till");
    world.until_nodes(3).await;
    let begun = Instant::now();
    world.partition();
    let told = noted(guard);
    let (next, taken) = soon("the next holder", next).await.unwrap();
    let (_guard, reason, at) = soon("the loss", told).await.unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(at < taken, "told {:?} too late", at - taken);
    assert!(taken - begun < ms(6000), "{:?}", taken - begun);
    assert!(long.is_held());
    world.heal();
    next.release().await.unwrap();
    long.release().await.unwrap();
    world.until_nodes(0).await;
}

/// Suspended: the proved time shrinks. If the client is back before the session ends, it has lost neither its hold nor
/// its place in the queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_suspension_shorter_than_the_session_loses_nothing() {
    let world = World::new(ms(9000)).await;
    let guard = world.far.lock("till").acquire().await.unwrap();
    let held = world
        .near
        .lock("desk")
        .try_acquire()
        .await
        .unwrap()
        .unwrap();
    let first = waits(&world.far, "desk");
    world.until_nodes(3).await;
    let second = waits(&world.near, "desk");
    world.until_nodes(4).await;
    world.proxy.refuse(true);
    world.proxy.cut();
    tokio::time::sleep(ms(2500)).await;
    assert!(guard.is_held(), "not known to be lost");
    assert!(guard.valid_for() < ms(7000), "{:?}", guard.valid_for());
    world.proxy.refuse(false);
    let end = Instant::now() + SOON;
    while guard.valid_for() < ms(7000) {
        assert!(Instant::now() < end, "it is not proved again");
        tokio::time::sleep(ms(10)).await;
    }
    held.release().await.unwrap();
    let (first, _) = soon("the first of the queue", first).await.unwrap();
    assert!(!second.is_finished());
    first.release().await.unwrap();
    let (second, _) = soon("the second", second).await.unwrap();
    second.release().await.unwrap();
    guard.release().await.unwrap();
    world.until_nodes(0).await;
}

/// The server is killed and restarts with its data: sessions, locks and queue places are unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_server_restart_loses_nothing() {
    let world = World::new(ms(16_000)).await;
    let guard = world.far.lock("till").acquire().await.unwrap();
    let waiter = waits(&world.near, "till");
    world.until_nodes(2).await;
    world.server.kill().unwrap();
    tokio::time::sleep(ms(500)).await;
    world.server.restart().unwrap();
    let begun = Instant::now();
    while guard.valid_for() < ms(13_000) {
        assert!(begun.elapsed() < SOON, "it is not proved again");
        tokio::time::sleep(ms(10)).await;
    }
    assert!(!waiter.is_finished());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let (next, _) = soon("the waiter", waiter).await.unwrap();
    next.release().await.unwrap();
    world.until_nodes(0).await;
}

/// The server is frozen for longer than a session. When it resumes it may grant the lock to somebody else, but the
/// former holder has learned of its loss before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_frozen_server_gives_nothing_away_untold() {
    let world = World::new(ms(900)).await;
    let guard = world.far.lock("till").acquire().await.unwrap();
    world.server.freeze().unwrap();
    let told = noted(guard);
    let (guard, reason, at) = soon("the loss", told).await.unwrap();
    assert_eq!(reason, LostReason::Expired);
    tokio::time::sleep(ms(2500)).await;
    world.server.thaw().unwrap();
    let taken = soon("the lock", async {
        loop {
            match world.near.lock("till").acquire().await {
                Ok(next) => break next,
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    })
    .await;
    assert!(at < Instant::now());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(taken.is_held());
    taken.release().await.unwrap();
    free(&world.far, "till").await;
    world.until_nodes(0).await;
}

/// The server is frozen for longer than two leases of some acquisitions, and their sessions end meanwhile. The callers wait on,
/// and get what they have asked for; nothing of their first requests stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_acquisitions_outlast_a_freeze_of_more_than_two_leases() {
    let world = World::new(ms(15_000)).await;
    // Its requests are given up and repeated while the server is frozen.
    let url = format!("{}/w", world.server.url());
    let near = client_that_waits(&url, ms(15_000), ms(1000)).await;
    let (till, prices) = (near.lock("till"), near.read_write_lock("prices"));
    let seats = near.semaphore("seats");
    set(&seats, 1).await;
    let short = || AcquireOptions::new().lease(ms(1500));
    let use_all = async || {
        tokio::join!(
            async {
                let guard = till.acquire_with(short()).await.unwrap();
                guard.release().await.unwrap();
            },
            async {
                let guard = prices.write().acquire_with(short()).await.unwrap();
                guard.release().await.unwrap();
            },
            async {
                let permit = seats.permits(1).acquire_with(short()).await.unwrap();
                permit.release().await.unwrap();
            },
        )
    };
    // The sessions are there before the server is frozen.
    use_all().await;
    world.server.freeze().unwrap();
    let thaw = async {
        tokio::time::sleep(ms(4000)).await;
        world.server.thaw().unwrap();
    };
    soon("all are granted", async { tokio::join!(use_all(), thaw) }).await;
    world.until_nodes(0).await;
}

/// The server created the node, and the reply was lost with the connection. The retry finds the same node, and leaves
/// no second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_create_whose_reply_was_lost_is_found_again() {
    let world = World::new(ms(6000)).await;
    free(&world.far, "till").await;
    world.proxy.set(Way::ToClient, Mode::Delay(ms(80)));
    let waiting = waits(&world.far, "till");
    world.until_nodes(1).await; // the reply is on its way
    let first = world.server.say("dump").unwrap();
    world.heal();
    let (guard, _) = soon("the lock", waiting).await.unwrap();
    assert_eq!(world.nodes(), 1);
    assert_eq!(paths(&first), paths(&world.server.say("dump").unwrap()));
    guard.release().await.unwrap();
    world.until_nodes(0).await;
}

/// The same, but the caller leaves before the outcome is known: the client finds the node by its name and removes it,
/// long before the session would end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_create_whose_caller_has_left_leaves_no_orphan() {
    let world = World::hasty(ms(16_000)).await;
    free(&world.far, "till").await;
    world.proxy.set(Way::ToClient, Mode::Delay(ms(80)));
    let waiting = tokio::spawn(world.far.lock("till").acquire());
    world.until_nodes(1).await; // the reply is on its way
    world.proxy.set(Way::ToClient, Mode::Drop);
    world.proxy.cut();
    tokio::time::sleep(ms(1000)).await; // the client has given up on that reply
    waiting.abort();
    drop(waiting.await);
    world.heal();
    world.until_nodes_within(Duration::from_secs(20), 0).await;
    free(&world.near, "till").await;
}

/// A create is still in flight when its caller leaves. It arrives before its withdrawal, and the withdrawal removes the
/// node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_create_that_arrives_late_leaves_no_orphan() {
    let world = World::hasty(ms(6000)).await;
    free(&world.far, "till").await;
    for pause in [0, 1, 2, 4, 8, 700] {
        let lock = world.far.lock("till");
        world.proxy.set(Way::ToServer, Mode::Delay(ms(5)));
        let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
        tokio::time::sleep(ms(5 + pause % 100)).await;
        world.proxy.set(Way::ToServer, Mode::Hold);
        tokio::time::sleep(ms(pause)).await;
        waiting.abort();
        drop(waiting.await);
        tokio::time::sleep(ms(10)).await;
        world.proxy.set(Way::ToServer, Mode::Pass);
        free(&world.near, "till").await;
        world.until_nodes(0).await;
    }
}

/// CURATOR-604. The reply of a create is lost, and then the session ends: in the next session the client must not take
/// the old node for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_node_of_an_old_session_is_not_mine() {
    let session = format!("?session_timeout={}ms", ms(2000).as_millis());
    let world = World::with(ms(9000), &session).await;
    let held = world.near.lock("till").acquire().await.unwrap();
    let waiter = waits(&world.far, "till");
    world.until_nodes(2).await;
    let before = world.server.say("dump").unwrap();
    world.partition();
    world.until_nodes(1).await; // the server has ended the waiter's session
    world.heal();
    world.until_nodes(2).await;
    let after = world.server.say("dump").unwrap();
    assert_ne!(paths(&before), paths(&after), "it has queued anew");
    assert!(!waiter.is_finished());
    held.release().await.unwrap();
    let (guard, _) = soon("the waiter", waiter).await.unwrap();
    assert!(guard.is_held());
    tokio::time::sleep(ms(4000)).await;
    assert!(guard.is_held(), "it holds by a node of a living session");
    guard.release().await.unwrap();
    world.until_nodes(0).await;
}

/// A killed holder is replaced at the end of its session. A frozen holder learns of its loss as soon as it resumes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_killed_and_frozen_holders_are_followed_when_their_session_ends() {
    let lease = ms(1500);
    let world = World::new(lease).await;
    for frozen in [false, true] {
        let mut peer = world.peer();
        peer.write_line("acquire till").unwrap();
        peer.wait_line("acquired till", SOON).unwrap();
        let next = waits(&world.near, "till");
        world.until_nodes(2).await;
        // Where a busy machine kept the last heartbeat waiting, the proof is short, and the next one is longer.
        let asked = Instant::now();
        let (begun, proved) = loop {
            let begun = Instant::now();
            peer.write_line("status till").unwrap();
            let answer = peer.wait_line("status till", SOON).unwrap();
            let (_, valid) = answer.rsplit_once("valid_ms=").unwrap();
            let proved = Duration::from_millis(valid.trim().parse().unwrap());
            if proved >= lease / 2 {
                break (begun, proved);
            }
            assert!(asked.elapsed() < SOON, "{answer}");
            tokio::time::sleep(ms(5)).await;
        };
        if frozen {
            peer.freeze().unwrap();
        } else {
            peer.kill().unwrap();
        }
        let (next, taken) = soon("the next holder", next).await.unwrap();
        let waited = taken - begun;
        // The holder answered after `begun`, and a later renewal only lengthens the proof, so an earlier grant makes
        // two holders. It also shows that the grant waited for the end of the session, and did not come with that of
        // the connection.
        assert!(waited >= proved, "{waited:?}, proved for {proved:?}");
        // The session ends two seconds and one tick after the last heartbeat, and there is a heartbeat every third of
        // the lease. On a busy machine a heartbeat may come later, and the waiter may hear later of the end.
        assert!(waited < lease * 4, "{waited:?}");
        if frozen {
            peer.thaw().unwrap();
            peer.wait_line("lost till reason=Expired", SOON).unwrap();
            peer.write_line("release till").unwrap();
            peer.wait_line("failed till kind=Lost", SOON).unwrap();
        }
        assert!(next.is_held());
        next.release().await.unwrap();
    }
    world.until_nodes(0).await;
}

/// The paths in a `dump`, without the sessions.
fn paths(dump: &str) -> Vec<&str> {
    let lines = dump.lines().map(str::trim);
    lines.filter(|line| line.contains("-lock-")).collect()
}

/// `close` ends all sessions at once, so a frozen server costs one response timeout. Leases of different lengths have
/// separate sessions, and closing them one by one would add up their timeouts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_waits_for_a_frozen_server_once() {
    let server = ZooKeeperServer::start().unwrap();
    let answer = ms(3000);
    let builder = Client::builder()
        .lease(Duration::from_secs(30))
        .response_timeout(answer)
        .connect_within(SOON);
    let client = builder.connect(&format!("{}/w", server.url())).await;
    let client = client.unwrap();
    let mut guards = Vec::new();
    for lease in [30, 20, 10] {
        let short = AcquireOptions::new().expires_after(Duration::from_secs(lease));
        let lock = client.lock(&format!("till:{lease}"));
        guards.push(lock.acquire_with(short).await.unwrap());
    }
    server.freeze().unwrap();
    let begun = Instant::now();
    assert_eq!(client.close(ms(0)).await, 3);
    assert!(begun.elapsed() < answer * 2, "{:?}", begun.elapsed());
}

/// One process waits with three hundred nodes for a long name, 160 KB of paths, and its connection breaks for a moment. The
/// driver could not resume a session that watches as much, so the hold in it would be lost. Those waiters that found no room
/// for a watch look by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_a_session_with_a_crowd_of_waiters_survives_a_reconnect() {
    let world = World::new(ms(6000)).await;
    let builder = Client::builder().lease(ms(6000)).response_timeout(ms(3000));
    let builder = builder.publish_process_info(false);
    let url = format!("zookeeper://{}/w", world.proxy.addr());
    let crowd = builder.connect(&url).await.unwrap();
    let lock = crowd.lock(&"n".repeat(480));
    let guard = lock.acquire().await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..300 {
        waiters.spawn(lock.acquire());
    }
    world.until_nodes(301).await;
    tokio::time::sleep(ms(500)).await; // until the last of them watch
    world.proxy.refuse(true);
    world.proxy.cut();
    tokio::time::sleep(ms(100)).await;
    world.proxy.refuse(false);
    // Longer than a hold lasts without a session.
    tokio::time::sleep(ms(7000)).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    // The first ones are woken. Of the last ones each looks after a second or two.
    for _ in 0..3 {
        let next = soon("the next holder", waiters.join_next()).await;
        next.unwrap().unwrap().unwrap().release().await.unwrap();
    }
}

/// Another server takes the place of the old one, without its data, and does not know the session. The holder is told when its
/// client connects, and not at its next renewal ten seconds later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t59_the_end_of_a_session_is_told_when_the_server_says_so() {
    let world = World::new(Duration::from_secs(30)).await;
    let other = ZooKeeperServer::start().unwrap();
    // A server lets nobody in who has seen newer transactions than its own.
    let (filler, mode) = (bare(&other).await, zk::CreateMode::Persistent);
    let mode = mode.with_acls(zk::Acls::anyone_all());
    for n in 0..100 {
        filler.mkdir(&format!("/node{n}"), &mode).await.unwrap();
    }
    let guard = world.far.lock("till").acquire().await.unwrap();
    let begun = Instant::now();
    world.proxy.set_upstream(other.addr());
    world.proxy.cut();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Taken);
    let limit = Duration::from_secs(8);
    assert!(begun.elapsed() < limit, "{:?}", begun.elapsed());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    // The client has a session at the new server.
    free(&world.far, "till").await;
}

/// Clients close while a release has no reply. The server may have deleted the node or not, so no release may claim that the lock
/// is free. Several at once: which of the two is over first differs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_a_close_interrupts_is_not_confirmed() {
    let server = ZooKeeperServer::start().unwrap();
    let builder = Client::builder()
        .lease(ms(12_000))
        .response_timeout(ms(3000));
    let builder = builder.publish_process_info(false).connect_within(SOON);
    let mut held = Vec::new();
    for n in 0..40 {
        let client = builder.clone().connect(&server.url()).await.unwrap();
        let guard = client.lock(&format!("till:{n}")).acquire().await.unwrap();
        held.push((client, guard));
    }
    server.freeze().unwrap();
    let mut releases = tokio::task::JoinSet::new();
    for (client, guard) in held {
        releases.spawn(async move {
            let release = guard.release();
            tokio::join!(release, client.close(Duration::ZERO)).0
        });
    }
    while let Some(told) = soon("the releases", releases.join_next()).await {
        let told = told.unwrap();
        assert!(told.is_err(), "{told:?}");
    }
}
