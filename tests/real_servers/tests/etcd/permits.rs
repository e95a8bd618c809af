//! Semaphores: their keys, the order of their waiters, locks of the same name, and holders and waiters that die.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::process::Spawned;
use testkit::proxy::{Mode as Pass, Proxy, Way};
use testkit::servers::EtcdServer;
use tidelock::{Client, ErrorKind, LostReason, Permits, Semaphore};
use tokio::task::JoinHandle;

use crate::world::{SOON, client, lease_of, ms, soon, until_keys};

pub(crate) const NAME: &str = "render";
pub(crate) const NUMBER: &str = "render/permits";

/// A client whose waiters look by themselves only after ten seconds: what is earlier was told by the server.
pub(crate) async fn patient_client(url: &str) -> Client {
    let builder = Client::builder().lease(ms(30_000));
    let builder = builder.publish_process_info(false);
    builder.connect(url).await.unwrap()
}

/// Shorter than the time after which a waiter of [`patient_client`] looks by itself.
const TOLD: Duration = Duration::from_secs(6);

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
        let seen = semaphore.inspect().await;
        match &seen {
            Ok(seen) if seen.waiters == Some(waiting) => return,
            Ok(_) => {}
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        assert!(Instant::now() < end, "{waiting} waiters: {seen:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Waits until no key of a holder or of a waiter is left.
pub(crate) async fn until_only_numbers(server: &EtcdServer) {
    let end = Instant::now() + SOON;
    loop {
        let keys = server.keys().unwrap();
        let left = |key: &&String| !key.ends_with("/permits") && !key.starts_with("%clients/");
        let left: Vec<_> = keys.iter().filter(left).collect();
        if left.is_empty() {
            assert!(!keys.is_empty(), "a number stays");
            return;
        }
        assert!(Instant::now() < end, "{left:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

async fn told(waiter: JoinHandle<Permits>) -> Permits {
    let got = tokio::time::timeout(TOLD, waiter).await;
    got.expect("it is told").unwrap()
}

pub(crate) async fn count(semaphore: &Semaphore) -> (i64, i64) {
    let count = semaphore.inspect().await.unwrap().permits.unwrap();
    (count.available, count.total)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_semaphore_are_those_of_the_page() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let semaphore = a.semaphore(NAME);
    semaphore.set_permits(3).await.unwrap();
    assert_eq!(until_keys(&server, 1).await, [NUMBER]);
    let number = server.admin(&["get", NUMBER, "--print-value-only"]);
    assert_eq!(number.unwrap().trim(), "3");
    assert_eq!(lease_of(&server, NUMBER), "0");
    let two = semaphore.permits(2).acquire().await.unwrap();
    let keys = until_keys(&server, 2).await;
    let id = keys[1].strip_prefix("%permits/render/held/").unwrap();
    assert_eq!(format!("{}.2", lease_of(&server, &keys[1])), id);
    let waiter = waits(&semaphore, 3, 1).await;
    let keys = until_keys(&server, 3).await;
    let id = keys[2].strip_prefix("%permits/render/waiting/").unwrap();
    assert_eq!(format!("{}.3", lease_of(&server, &keys[2])), id);
    assert_eq!(a.list("*").limit(10).await.unwrap(), [NAME]);
    two.release().await.unwrap();
    let three = soon("all three", waiter).await.unwrap();
    let keys = until_keys(&server, 2).await;
    assert_eq!(keys[1], format!("%permits/render/held/{id}"));
    three.release().await.unwrap();
    assert_eq!(until_keys(&server, 1).await, [NUMBER]);
}

/// Each waiter is told by the server, in its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_on_etcd_go_to_the_waiters_in_the_order_of_their_arrival() {
    let server = EtcdServer::start().unwrap();
    let near = patient_client(&server.url()).await.semaphore(NAME);
    let far = patient_client(&server.url()).await.semaphore(NAME);
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
    assert_eq!(until_keys(&server, 1).await, [NUMBER]);
}

/// A smaller number makes the first waiter ask for more than there are. The one behind it no longer waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_smaller_number_lets_those_pass_that_it_suffices_for() {
    let server = EtcdServer::start().unwrap();
    let semaphore = patient_client(&server.url()).await.semaphore(NAME);
    semaphore.set_permits(5).await.unwrap();
    let held = semaphore.permits(3).acquire().await.unwrap();
    let more = semaphore.permits(1).acquire().await.unwrap();
    let first = waits(&semaphore, 3, 1).await;
    let next = waits(&semaphore, 1, 2).await;
    semaphore.set_permits(2).await.unwrap();
    held.release().await.unwrap();
    let next = told(next).await;
    assert_eq!(count(&semaphore).await, (0, 2));
    next.release().await.unwrap();
    more.release().await.unwrap();
    assert!(!first.is_finished());
    semaphore.set_permits(3).await.unwrap();
    told(first).await.release().await.unwrap();
}

/// A client that knows no semaphores waits for the name as for a lock that somebody holds. Every lock of ours refuses it, and leaves
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_and_etcdctl_with_a_lock_of_its_name_stay_apart() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let semaphore = a.semaphore(NAME);
    semaphore.set_permits(2).await.unwrap();
    let mut command = server.etcdctl();
    command.args(["lock", NAME]).stdin(Stdio::null());
    let mut foreign = Spawned::start(command).unwrap();
    until_keys(&server, 2).await;
    let permit = semaphore.acquire().await.unwrap();
    let sides = a.read_write_lock(NAME);
    for _ in 0..2 {
        for refused in [
            a.lock(NAME).try_acquire().await.map(drop),
            a.lock(NAME).fenced().acquire().await.map(drop),
            a.fair_lock(NAME).acquire().await.map(drop),
            sides.read().acquire().await.map(drop),
            sides.read().try_acquire().await.map(drop),
            sides.write().try_acquire().await.map(drop),
            sides.write().acquire().await.map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        }
    }
    foreign.wait_line("render/", ms(500)).unwrap_err();
    permit.release().await.unwrap();
    until_keys(&server, 2).await;
    assert!(!semaphore.force_release().await.unwrap());
    let permits = semaphore.permits(2).acquire().await.unwrap();
    assert!(semaphore.force_release().await.unwrap());
    assert_eq!(count(&semaphore).await, (2, 2), "the number stays");
    drop(permits);
    foreign.kill().unwrap();
}

/// T51: the waiter that was killed lets those behind it pass, and the permits of the holder that was killed come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_permits_of_a_process_that_was_killed_come_back_once() {
    let server = EtcdServer::start().unwrap();
    let semaphore = client(&server.url()).await.semaphore(NAME);
    semaphore.set_permits(3).await.unwrap();
    let process = |permits: u16| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
        command.args([server.url(), ms(3000).as_millis().to_string()]);
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
    until_only_numbers(&server).await;
}

/// T51: the leases of a holder and of a waiter are revoked. The first is told; the second comes back behind all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_permits_whose_lease_is_revoked_are_told() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let (near, far) = (a.semaphore(NAME), b.semaphore(NAME));
    near.set_permits(2).await.unwrap();
    let held = near.permits(2).acquire().await.unwrap();
    let waiter = waits(&far, 2, 1).await;
    let keys = until_keys(&server, 3).await;
    let revoke = |key: &str| {
        let lease = lease_of(&server, key);
        server.admin(&["lease", "revoke", &lease]).unwrap();
    };
    revoke(&keys[2]);
    until(&near, 1).await;
    assert!(!waiter.is_finished() && held.is_held());
    revoke(&keys[1]);
    assert_eq!(soon("the loss", held.lost()).await, LostReason::Taken);
    let two = soon("the waiter", waiter).await.unwrap();
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(count(&near).await, (0, 2));
    two.release().await.unwrap();
    assert_eq!(until_keys(&server, 1).await, [NUMBER]);
}

/// A key that was deleted by hand takes the number away, not the permits: a forced release still finds their holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_finds_permits_whose_number_was_deleted() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let semaphore = a.semaphore(NAME);
    for only_seen in [false, true] {
        semaphore.set_permits(3).await.unwrap();
        let held = semaphore.permits(2).acquire().await.unwrap();
        server.admin(&["del", NUMBER]).unwrap();
        let lock = a.lock(NAME);
        let freed = if only_seen {
            let seen = lock.inspect().await.unwrap();
            lock.force_release_if(&seen).await
        } else {
            lock.force_release().await
        };
        assert!(freed.unwrap());
        soon("the loss", held.lost()).await;
        assert!(until_keys(&server, 0).await.is_empty());
    }
}

/// T51: no reply and no event arrives while the permits become free, until the waiter's client connects again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_a_waiter_that_hears_nothing_gets_its_permits_once() {
    let server = EtcdServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let near = client(&server.url()).await.semaphore(NAME);
    let url = server
        .url()
        .replace(&server.addr().to_string(), &proxy.addr().to_string());
    let far = client(&url).await.semaphore(NAME);
    near.set_permits(3).await.unwrap();
    for round in 0..3 {
        let held = near.permits(2).acquire().await.unwrap();
        let waiter = waits(&far, 3, 1).await;
        // The requests go through. No reply comes back, until the waiter's client asks again.
        proxy.set(Way::ToClient, Pass::Drop);
        held.release().await.unwrap();
        tokio::time::sleep(ms(300 * round)).await;
        proxy.set(Way::ToClient, Pass::Pass);
        proxy.cut();
        let three = soon("the waiter", waiter).await.unwrap();
        assert_eq!(count(&near).await, (0, 3));
        assert!(three.is_held());
        three.release().await.unwrap();
        assert_eq!(until_keys(&server, 1).await, [NUMBER]);
    }
}

/// T51: an empty server takes the place of the old one. The holder is told, and a waiter waits for a number again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_waiters_go_on_when_an_empty_etcd_gets_permits() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let (near, far) = (a.semaphore(NAME), b.semaphore(NAME));
    near.set_permits(2).await.unwrap();
    let held = near.permits(2).acquire().await.unwrap();
    let waiter = waits(&far, 1, 1).await;
    server.restart_empty().unwrap();
    soon("the loss", held.lost()).await;
    assert!(held.release().await.is_err());
    let waiting = async {
        while !near
            .inspect()
            .await
            .is_ok_and(|seen| seen.waiters == Some(1))
        {
            tokio::time::sleep(ms(20)).await;
        }
    };
    soon("it waits again", waiting).await;
    assert!(!waiter.is_finished());
    assert!(near.set_permits_if_new(1).await.unwrap());
    let permit = soon("the waiter", waiter).await.unwrap();
    assert_eq!(count(&near).await, (0, 1));
    permit.release().await.unwrap();
}

/// What stands at the place of the number, and is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_none_is_refused_and_stays() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let semaphore = a.semaphore(NAME);
    server.admin(&["put", NUMBER, "many"]).unwrap();
    for refused in [
        semaphore.try_acquire().await.map(drop),
        semaphore.acquire().await.map(drop),
        semaphore.set_permits(2).await,
        semaphore.set_permits_if_new(2).await.map(drop),
        semaphore.inspect().await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::WrongType);
    }
    assert_eq!(until_keys(&server, 1).await, [NUMBER]);
}

/// etcd refuses a transaction with more than 128 operations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_holders_of_permits_is_freed_if_it_is_the_one_that_was_seen() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let semaphore = a.semaphore(NAME);
    semaphore.set_permits(140).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..130 {
        held.push(semaphore.acquire().await.unwrap());
    }
    let operator = client(&server.url()).await;
    let lock = operator.lock(NAME);
    let seen = lock.inspect().await.unwrap();
    assert_eq!(seen.holders.len(), held.len());
    held.push(semaphore.acquire().await.unwrap());
    assert!(!lock.force_release_if(&seen).await.unwrap(), "one more");
    let seen = lock.inspect().await.unwrap();
    held.remove(0).release().await.unwrap();
    assert!(lock.force_release_if(&seen).await.unwrap());
    assert_eq!(count(&semaphore).await, (140, 140));
    drop(held);
}

/// The client has a lease that an earlier acquisition left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_cost_what_the_page_says() {
    let server = EtcdServer::start().unwrap();
    let semaphore = patient_client(&server.url()).await.semaphore(NAME);
    semaphore.set_permits(2).await.unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let before = server.requests().unwrap();
    let since = || server.requests().unwrap() - before;
    let two = semaphore.permits(2).acquire().await.unwrap();
    assert_eq!(since(), 3, "a look, a grant, and a keep-alive");
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(since(), 4, "a look");
    two.release().await.unwrap();
    assert_eq!(since(), 5);
}
