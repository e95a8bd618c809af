//! Semaphores: their nodes, the order of their waiters, locks of the same name, what they cost, and holders and waiters that
//! die.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::java::curator_peer;
use testkit::process::Spawned;
use testkit::proxy::{Mode as Pass, Way};
use testkit::servers::ZooKeeperServer;
use tidelock::{AcquireOptions, Client, ErrorKind, LostReason, Permits, Semaphore, Snapshot};
use tokio::task::JoinHandle;
use zookeeper_client as zk;

use crate::costs::cost;
use crate::world::{SOON, World, ms, noted, soon};

pub(crate) const NAME: &str = "render";
const NUMBER: &str = "/shop/render/%permits__WRIT__-1";
const CLAIMS: &str = "/shop/%permits/render";

/// Shorter than the time after which a waiter with a lease of a minute looks by itself.
const TOLD: Duration = Duration::from_secs(6);

/// It also waits longer for answers than the clients of other tests: a busy machine is no fault of the store.
pub(crate) async fn patient_client(server: &ZooKeeperServer) -> Client {
    let builder = Client::builder().lease(Duration::from_secs(60));
    let builder = builder.response_timeout(Duration::from_secs(15));
    let builder = builder.publish_process_info(false).connect_within(SOON);
    let url = format!("{}/shop", server.url());
    builder.connect(&url).await.unwrap()
}

/// A client of the server without tidelock.
pub(crate) async fn bare(server: &ZooKeeperServer) -> zk::Client {
    zk::Client::connect(&server.addr().to_string())
        .await
        .unwrap()
}

/// A waiter that has its place in the queue. `waiting`: how many wait then.
pub(crate) async fn waits(
    semaphore: &Semaphore,
    permits: u16,
    waiting: u64,
) -> JoinHandle<Permits> {
    let wanted = semaphore.permits(permits);
    let waiter = tokio::spawn(async move { wanted.acquire().await.unwrap() });
    until(semaphore, waiting).await;
    waiter
}

pub(crate) async fn until(semaphore: &Semaphore, waiting: u64) {
    let end = Instant::now() + SOON;
    loop {
        let seen = seen(semaphore).await;
        if seen.waiters == Some(waiting) {
            return;
        }
        assert!(Instant::now() < end, "{waiting} waiters: {seen:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

async fn until_number(server: &ZooKeeperServer, key: &str, number: u64) {
    let end = Instant::now() + SOON;
    loop {
        let now = server.number(key).unwrap();
        if now == number {
            return;
        }
        assert!(Instant::now() < end, "{key} is {now}, not {number}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Waits until no node of a holder or of a waiter is left.
pub(crate) async fn until_no_claims(server: &ZooKeeperServer) {
    until_number(server, "zk_ephemerals_count", 0).await;
}

async fn told(waiter: JoinHandle<Permits>) -> Permits {
    let got = tokio::time::timeout(TOLD, waiter).await;
    got.expect("it is told").unwrap()
}

pub(crate) async fn count(semaphore: &Semaphore) -> (i64, i64) {
    let count = seen(semaphore).await.permits.unwrap();
    (count.available, count.total)
}

/// Some clients of these tests wait only half a second for an answer.
pub(crate) async fn answered<T>(ask: impl AsyncFn() -> tidelock::Result<T>) -> T {
    let end = Instant::now() + SOON;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => {
                let again = error.is_retryable() || error.outcome_unknown();
                assert!(again && Instant::now() < end, "{error}");
            }
        }
    }
}

async fn seen(semaphore: &Semaphore) -> Snapshot {
    answered(async || semaphore.inspect().await).await
}

pub(crate) async fn set(semaphore: &Semaphore, total: u32) {
    answered(async || semaphore.set_permits(total).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_nodes_of_a_semaphore_are_those_of_the_page() {
    let server = ZooKeeperServer::start().unwrap();
    let (a, bare) = (patient_client(&server).await, bare(&server).await);
    let semaphore = a.semaphore(NAME);
    semaphore.set_permits(3).await.unwrap();
    let (data, stat) = bare.get_data(NUMBER).await.unwrap();
    let text = String::from_utf8(data).unwrap();
    let (total, epoch) = text.split_once(' ').unwrap();
    assert_eq!((total, stat.ephemeral_owner), ("3", 0));
    assert_eq!(bare.list_children(NUMBER).await.unwrap(), [epoch]);
    assert_eq!(bare.list_children("/shop/render").await.unwrap().len(), 1);
    let two = semaphore.permits(2).acquire().await.unwrap();
    let waiter = waits(&semaphore, 3, 1).await;
    let mut claims = bare.list_children(CLAIMS).await.unwrap();
    claims.sort_by_key(|node| node.rsplit_once('-').unwrap().1.to_owned());
    let ends = ["-2-permits-0000000000", "-3-permits-0000000001"];
    for ((node, end), holds) in claims.iter().zip(ends).zip([true, false]) {
        assert!(node.starts_with("_c_") && node.ends_with(end), "{node}");
        let (data, stat) = bare.get_data(&format!("{CLAIMS}/{node}")).await.unwrap();
        assert_eq!((!data.is_empty(), stat.version), (holds, holds.into()));
        assert_ne!(stat.ephemeral_owner, 0);
    }
    assert_eq!(a.list("*").limit(10).await.unwrap(), [NAME]);
    two.release().await.unwrap();
    told(waiter).await.release().await.unwrap();
    until_no_claims(&server).await;
    assert!(a.list("*").limit(10).await.unwrap().is_empty());
    // The server removes the empty folder of the claims, and the number stays.
    let end = Instant::now() + SOON;
    while bare.check_stat(CLAIMS).await.unwrap().is_some() {
        assert!(Instant::now() < end, "an empty container");
        tokio::time::sleep(ms(50)).await;
    }
    assert_eq!(count(&semaphore).await, (3, 3));
    semaphore.acquire().await.unwrap().release().await.unwrap();
}

/// Each waiter is told by the server, in its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_on_zookeeper_go_to_the_waiters_in_the_order_of_their_arrival() {
    let server = ZooKeeperServer::start().unwrap();
    let near = patient_client(&server).await.semaphore(NAME);
    let far = patient_client(&server).await.semaphore(NAME);
    near.set_permits(4).await.unwrap();
    let held = near.permits(3).acquire().await.unwrap();
    let too_many = waits(&far, 6, 1).await;
    let big = waits(&near, 4, 2).await;
    // One permit is there, but it waits for the one before it.
    let small = waits(&far, 1, 3).await;
    let last = waits(&far, 2, 4).await;
    assert!(near.try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    let big = told(big).await;
    assert!(!small.is_finished() && !last.is_finished());
    assert!(near.force_release().await.unwrap());
    let (small, last) = (told(small).await, told(last).await);
    assert_eq!(count(&near).await, (1, 4));
    assert!(!too_many.is_finished());
    drop(big);
    small.release().await.unwrap();
    last.release().await.unwrap();
    near.add_permits(2).await.unwrap();
    let all = told(too_many).await;
    assert_eq!(count(&far).await, (0, 6));
    all.release().await.unwrap();
    until_no_claims(&server).await;
}

/// A smaller number makes the first waiter ask for more than there are. The one behind it no longer waits for it, and the first one
/// counts that one when the number grows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_smaller_number_on_zookeeper_lets_those_pass_that_it_suffices_for() {
    let server = ZooKeeperServer::start().unwrap();
    let semaphore = patient_client(&server).await.semaphore(NAME);
    semaphore.set_permits(5).await.unwrap();
    let held = semaphore.permits(3).acquire().await.unwrap();
    let more = semaphore.permits(1).acquire().await.unwrap();
    let first = waits(&semaphore, 3, 1).await;
    let next = waits(&semaphore, 1, 2).await;
    semaphore.set_permits(2).await.unwrap();
    held.release().await.unwrap();
    let next = told(next).await;
    assert_eq!(count(&semaphore).await, (0, 2));
    more.release().await.unwrap();
    semaphore.set_permits(3).await.unwrap();
    assert!(!first.is_finished(), "one of three is held behind it");
    assert_eq!(count(&semaphore).await, (2, 3));
    next.release().await.unwrap();
    told(first).await.release().await.unwrap();
}

fn tell(peer: &mut Spawned, command: &str, answer: &str) {
    peer.write_line(command).unwrap();
    peer.wait_line(answer, SOON).unwrap();
}

/// Curator's locks wait for the number as for a lock that somebody holds. Every lock of ours refuses the name, and leaves
/// nothing. A name with nodes of Curator's is no semaphore.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_and_curators_recipes_of_its_name_stay_apart() {
    let server = ZooKeeperServer::start().unwrap();
    let a = patient_client(&server).await;
    let java = |path: &str| curator_peer(server.addr(), path, Duration::from_secs(20)).unwrap();
    let mut till = java("/shop/till");
    tell(&mut till, "acquire", "acquired");
    for refused in [
        a.semaphore("till").set_permits_if_new(2).await.map(drop),
        a.semaphore("till").try_acquire().await.map(drop),
        a.semaphore("till").acquire().await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::WrongType);
    }
    tell(&mut till, "release", "released");
    let semaphore = a.semaphore(NAME);
    semaphore.set_permits(2).await.unwrap();
    let mut render = java("/shop/render");
    for side in ["try 300", "try 300 read", "try 300 write"] {
        tell(&mut render, side, "refused");
    }
    until_no_claims(&server).await;
    let permit = semaphore.acquire().await.unwrap();
    let sides = a.read_write_lock(NAME);
    let wait = || AcquireOptions::new().wait(SOON);
    for refused in [
        a.lock(NAME).try_acquire().await.map(drop),
        a.lock(NAME).fenced().acquire_with(wait()).await.map(drop),
        a.fair_lock(NAME).acquire_with(wait()).await.map(drop),
        sides.read().acquire_with(wait()).await.map(drop),
        sides.read().try_acquire().await.map(drop),
        sides.write().try_acquire().await.map(drop),
        sides.write().acquire_with(wait()).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    until_number(&server, "zk_ephemerals_count", 1).await;
    permit.release().await.unwrap();
    assert!(!semaphore.force_release().await.unwrap());
    // `InterProcessSemaphoreV2` has its nodes in two folders.
    let bare = bare(&server).await;
    let mode = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    bare.mkdir("/shop/theirs/leases", &mode).await.unwrap();
    let theirs = a.semaphore("theirs");
    for refused in [
        theirs.set_permits(2).await,
        theirs.acquire().await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::WrongType);
    }
    until_no_claims(&server).await;
}

/// All processes may set the first number at the same time. One of them does, and a lock that somebody wants at that moment does not
/// come between.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_first_number_is_made_once() {
    let server = ZooKeeperServer::start().unwrap();
    let clients = [patient_client(&server).await, patient_client(&server).await];
    for round in 0..20 {
        let name = format!("render{round}");
        let setting = (0..6).map(|n| {
            let semaphore = clients[n % 2].semaphore(&name);
            tokio::spawn(async move { semaphore.set_permits_if_new(3).await.unwrap() })
        });
        let mut made = Vec::new();
        for set in setting.collect::<Vec<_>>() {
            made.push(set.await.unwrap());
        }
        assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
        let name = format!("till{round}");
        let (lock, semaphore) = (clients[0].lock(&name), clients[1].semaphore(&name));
        let locks = tokio::spawn(async move { lock.acquire().await });
        let set = semaphore.set_permits_if_new(3).await;
        let guard = locks.await.unwrap();
        let kinds = (guard.as_ref().err(), set.as_ref().err());
        let one = kinds.0.is_some() != kinds.1.is_some();
        assert!(one, "a lock and a semaphore: {kinds:?}");
        let refused = kinds.0.or(kinds.1).unwrap();
        assert_eq!(refused.kind(), ErrorKind::WrongType, "{refused}");
        if let Ok(guard) = guard {
            guard.release().await.unwrap();
        }
    }
    until_no_claims(&server).await;
}

/// T51: the waiter that was killed lets those behind it pass, and the permits of the holder that was killed come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_permits_of_a_process_that_was_killed_come_back_once() {
    let server = ZooKeeperServer::start().unwrap();
    let url = format!("{}/shop", server.url());
    let semaphore = patient_client(&server).await.semaphore(NAME);
    semaphore.set_permits(3).await.unwrap();
    let lease = ms(1500).as_millis().to_string();
    let process = |permits: u16| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
        command.args([&*url, &*lease]);
        let mut peer = Spawned::start(command).unwrap();
        peer.wait_line("ready", SOON).unwrap();
        let line = format!("acquire {NAME} permits={permits}");
        peer.write_line(&line).unwrap();
        peer
    };
    let mut holder = process(2);
    holder.wait_line("acquired", SOON).unwrap();
    let mut waiting = process(3);
    until(&semaphore, 1).await;
    let behind = waits(&semaphore, 1, 2).await;
    assert!(!behind.is_finished());
    waiting.kill().unwrap();
    let behind = soon("the one behind it", behind).await.unwrap();
    assert_eq!(count(&semaphore).await, (0, 3));
    let two = waits(&semaphore, 2, 1).await;
    holder.kill().unwrap();
    let two = soon("those of the dead", two).await.unwrap();
    assert_eq!(count(&semaphore).await, (0, 3));
    two.release().await.unwrap();
    behind.release().await.unwrap();
    until_no_claims(&server).await;
}

/// T51: the holder is cut off by a silent partition. It knows the loss before another has its permits, and gives none back later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_permits_of_an_expired_session_are_told_before_others_have_them() {
    let world = World::new(ms(1500)).await;
    let (near, far) = (world.near.semaphore(NAME), world.far.semaphore(NAME));
    set(&near, 2).await;
    let held = far.permits(2).acquire().await.unwrap();
    let wanted = near.permits(2);
    let next = tokio::spawn(async move {
        let permits = wanted.acquire().await.unwrap();
        (permits, Instant::now())
    });
    until(&near, 1).await;
    world.partition();
    let told = noted(held);
    let (next, taken) = soon("the next holder", next).await.unwrap();
    let (held, reason, at) = soon("the loss", told).await.unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(at < taken, "told {:?} too late", at - taken);
    world.heal();
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(count(&near).await, (0, 2));
    next.release().await.unwrap();
    world.until_nodes(0).await;
}

/// T51: no reply and no event arrives while the permits become free, until the waiter's client connects again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_a_waiter_that_hears_nothing_gets_its_permits_once() {
    let world = World::new(ms(9000)).await;
    let (near, far) = (world.near.semaphore(NAME), world.far.semaphore(NAME));
    set(&near, 3).await;
    for round in 0..3 {
        let held = near.permits(2).acquire().await.unwrap();
        let wanted = far.permits(3);
        let waiter = tokio::spawn(async move { wanted.acquire().await.unwrap() });
        until(&near, 1).await;
        // The requests go through. No reply comes back, until the waiter's client asks again.
        world.proxy.set(Way::ToClient, Pass::Drop);
        held.release().await.unwrap();
        tokio::time::sleep(ms(300 * round)).await;
        world.proxy.set(Way::ToClient, Pass::Pass);
        world.proxy.cut();
        let three = soon("the waiter", waiter).await.unwrap();
        assert_eq!(count(&near).await, (0, 3));
        assert!(three.is_held());
        three.release().await.unwrap();
        world.until_nodes(0).await;
    }
}

/// T51: the reply to the grant is lost with the connection. The claim shows whether the grant has taken effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_a_grant_whose_reply_was_lost_is_found_again() {
    let world = World::new(ms(9000)).await;
    let (near, far) = (world.near.semaphore(NAME), world.far.semaphore(NAME));
    set(&near, 3).await;
    for round in 0..8 {
        let wanted = far.permits(2);
        let taking = tokio::spawn(async move { wanted.acquire().await.unwrap() });
        tokio::time::sleep(ms(2 * round)).await;
        world.proxy.set(Way::ToClient, Pass::Drop);
        tokio::time::sleep(ms(100)).await;
        world.proxy.set(Way::ToClient, Pass::Pass);
        world.proxy.cut();
        let two = soon("the permits", taking).await.unwrap();
        assert_eq!(count(&near).await, (1, 3));
        two.release().await.unwrap();
        world.until_nodes(0).await;
    }
}

/// A number that was deleted by hand takes no permits away: a forced release still finds their holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_on_zookeeper_finds_permits_whose_number_was_deleted() {
    let server = ZooKeeperServer::start().unwrap();
    // A forced release is told at the next renewal.
    let builder = Client::builder().lease(ms(6000)).response_timeout(ms(3000));
    let a = builder.connect(&format!("{}/shop", server.url())).await;
    let a = a.unwrap();
    let (semaphore, bare) = (a.semaphore(NAME), bare(&server).await);
    for only_seen in [false, true] {
        semaphore.set_permits(3).await.unwrap();
        let held = semaphore.permits(2).acquire().await.unwrap();
        for epoch in bare.list_children(NUMBER).await.unwrap() {
            bare.delete(&format!("{NUMBER}/{epoch}"), None)
                .await
                .unwrap();
        }
        bare.delete(NUMBER, None).await.unwrap();
        let lock = a.lock(NAME);
        let freed = if only_seen {
            let seen = lock.inspect().await.unwrap();
            lock.force_release_if(&seen).await
        } else {
            lock.force_release().await
        };
        assert!(freed.unwrap());
        soon("the loss", held.lost()).await;
        until_no_claims(&server).await;
    }
}

/// What stands at the place of the number, and is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_on_zookeeper_that_is_none_is_refused_and_stays() {
    let server = ZooKeeperServer::start().unwrap();
    let (a, bare) = (patient_client(&server).await, bare(&server).await);
    let semaphore = a.semaphore(NAME);
    let mode = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    bare.mkdir("/shop/render", &mode).await.unwrap();
    bare.create(NUMBER, b"many", &mode).await.unwrap();
    for refused in [
        semaphore.try_acquire().await.map(drop),
        semaphore.acquire().await.map(drop),
        semaphore.set_permits(2).await,
        semaphore.set_permits_if_new(2).await.map(drop),
        semaphore.inspect().await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::WrongType);
    }
    assert_eq!(bare.get_data(NUMBER).await.unwrap().0, b"many");
    until_no_claims(&server).await;
}

/// Somebody has deleted the node under the number, or has made the number by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_on_zookeeper_without_its_epoch_is_refused_at_once() {
    let server = ZooKeeperServer::start().unwrap();
    let (a, bare) = (patient_client(&server).await, bare(&server).await);
    let semaphore = a.semaphore(NAME);
    let mode = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    bare.mkdir("/shop/render", &mode).await.unwrap();
    bare.create(NUMBER, b"2 abc", &mode).await.unwrap();
    for refused in [
        semaphore.try_acquire().await.map(drop),
        semaphore.acquire().await.map(drop),
        semaphore.set_permits(3).await,
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WrongType, "{refused}");
    }
    assert_eq!(bare.get_data(NUMBER).await.unwrap().0, b"2 abc");
    until_no_claims(&server).await;
}

/// However many wait, a waiter watches two nodes, and a release wakes one waiter, which sends four requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_on_zookeeper_cost_what_the_page_says() {
    let server = ZooKeeperServer::start_with_lasting_containers().unwrap();
    let semaphore = patient_client(&server).await.semaphore(NAME);
    semaphore.set_permits(1).await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let pair = cost(&server, async || {
        semaphore.acquire().await.unwrap().release().await.unwrap();
    });
    assert_eq!(
        pair.await,
        8,
        "a look, a claim with a look, a grant; a release"
    );
    let held = semaphore.acquire().await.unwrap();
    let refused = cost(&server, async || {
        assert!(semaphore.try_acquire().await.unwrap().is_none());
    });
    assert_eq!(refused.await, 3, "a look");
    let mut waiting = Vec::new();
    for n in 0..30 {
        waiting.push(waits(&semaphore, 1, n + 1).await);
    }
    // One for the number, one for the list of claims, and one for each waiter that another waits for.
    until_number(&server, "zk_watch_count", 1 + 1 + 29).await;
    let before = server.number("zk_packets_received").unwrap();
    held.release().await.unwrap();
    let (first, ..) = futures_util::future::select_all(waiting.iter_mut()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let sent = server.number("zk_packets_received").unwrap() - before;
    println!("requests of a turn among 30 waiters: {sent}");
    // A release, a look and a grant; the next waiter looks and watches; and what `number` itself and heartbeats send.
    assert!(sent <= 24, "{sent} requests");
    assert_eq!(waiting.iter().filter(|one| one.is_finished()).count(), 1);
    first.unwrap().release().await.unwrap();
}
