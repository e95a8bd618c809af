//! Semaphores whose requests arrive late, whose granting reply is lost, and whose queue is larger than what gRPC usually reads.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use testkit::proxy::{Mode as Pass, Proxy, Way};
use testkit::servers::EtcdServer;
use tidelock::store::{AttemptReply, AttemptRequest, Backend, BoxFuture};
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{AcquireOptions, Client, ErrorKind, Permits, Semaphore};
use tokio::task::JoinHandle;

use crate::permits::{NAME, NUMBER, count, patient_client, until, waits};
use crate::world::{SOON, client, ms, soon, until_keys};

/// A client that connects through the proxy.
async fn through(proxy: &Proxy, server: &EtcdServer) -> Client {
    let (here, there) = (proxy.addr().to_string(), server.addr().to_string());
    // So long that a connection that is silent for the whole response timeout is no outage of a lease.
    let builder = Client::builder().lease(ms(6000)).response_timeout(ms(1000));
    let builder = builder.publish_process_info(false);
    let url = server.url().replace(&there, &here);
    builder.connect(&url).await.unwrap()
}

fn holders(server: &EtcdServer) -> usize {
    let keys = server.keys().unwrap();
    let held = format!("%permits/{NAME}/held/");
    keys.iter().filter(|key| key.starts_with(&held)).count()
}

/// T51: exactly the reply to the granting transaction is lost, of a ticket with a place in the queue and of one that only tries.
/// The permits are found again, and are counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_permits_on_etcd_whose_granting_reply_was_lost_are_found_again() {
    let server = EtcdServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let near = client(&server.url()).await.semaphore(NAME);
    let far = through(&proxy, &server).await.semaphore(NAME);
    near.set_permits(3).await.unwrap();
    // The client has a lease that an earlier acquisition left, so that all requests fit into its response timeout.
    far.acquire().await.unwrap().release().await.unwrap();
    for waits in [true, false] {
        let wanted = far.permits(2);
        proxy.set(Way::ToClient, Pass::Delay(ms(200)));
        let taking = tokio::spawn(async move {
            if waits {
                wanted.acquire().await.map(Some)
            } else {
                wanted.try_acquire().await
            }
        });
        let begun = Instant::now();
        loop {
            // We look at the task first. Otherwise the grant and its reply could both come after our look at the server.
            let is_over = taking.is_finished();
            if holders(&server) > 0 {
                break;
            }
            assert!(begun.elapsed() < SOON && !is_over);
        }
        // The server has granted them a moment ago, and its reply is still on its way.
        proxy.cut();
        proxy.set(Way::ToClient, Pass::Pass);
        match soon("an answer", taking).await.unwrap() {
            Ok(permits) => {
                let two = permits.expect("three were there");
                assert_eq!(count(&near).await, (1, 3));
                assert!(two.is_held());
                two.release().await.unwrap();
            }
            // A try does not outlast an outage. Then what it may have taken goes back.
            Err(error) => assert!(!waits && error.is_retryable(), "{error}"),
        }
        assert_eq!(until_keys(&server, 1).await, [NUMBER]);
        assert_eq!(count(&near).await, (3, 3));
    }
}

/// Holds back what the client sends on these connections, or lets it go on.
fn steer(proxy: &Proxy, connections: &[u64], mode: Pass) {
    for connection in connections {
        // Those of earlier rounds have ended.
        let _ = proxy.set_connection(*connection, Way::ToServer, mode);
    }
}

/// A wait for one permit, which ends after `limit`, and the connections of its client, which are held from 680 ms on.
/// `None`: on a busy machine the wait was over by then, so its last requests have passed.
async fn held_before_it_leaves(
    near: &Semaphore,
    far: &Semaphore,
    proxy: &Proxy,
    limit: Duration,
) -> Option<(JoinHandle<tidelock::Result<Permits>>, Vec<u64>)> {
    until(near, 0).await;
    // We count from before the wait. Its place in the queue may be found later than the 20 ms that are left at the end.
    let begun = Instant::now();
    let wanted = far.permits(1);
    let options = AcquireOptions::new().wait(limit);
    let leaves = tokio::spawn(async move { wanted.acquire_with(options).await });
    let waits = tokio::time::timeout(limit, until(near, 1)).await.is_ok();
    tokio::time::sleep(ms(680).saturating_sub(begun.elapsed())).await;
    let connections: Vec<u64> = (1..=proxy.accepted()).collect();
    steer(proxy, &connections, Pass::Hold);
    if waits && !leaves.is_finished() {
        return Some((leaves, connections));
    }
    steer(proxy, &connections, Pass::Pass);
    drop(soon("the wait ends", leaves).await);
    None
}

/// T51: a waiter leaves while its requests are on their way, also the one that removes its place. All of them arrive late, after
/// permits became free. Nothing stays, nothing is taken, and the next waiter of the same client keeps its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t51_a_late_removal_of_a_place_touches_no_other() {
    let server = EtcdServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let near = client(&server.url()).await.semaphore(NAME);
    let far = through(&proxy, &server).await.semaphore(NAME);
    near.set_permits(2).await.unwrap();
    // Longer than the response timeout in the end: then the client goes on with another connection.
    for pause in [0, 1, 3, 10, 40, 1500] {
        let held = near.permits(2).acquire().await.unwrap();
        let limit = ms(700 + pause % 50);
        let begun = Instant::now();
        let (leaves, old) = loop {
            let round = held_before_it_leaves(&near, &far, &proxy, limit).await;
            if let Some(round) = round {
                break round;
            }
            assert!(begun.elapsed() < SOON, "each wait was over too early");
        };
        held.release().await.unwrap();
        let left = soon("the wait ends", leaves).await.unwrap();
        assert!(left.is_err(), "a request has passed");
        tokio::time::sleep(ms(pause)).await;
        if pause < 1000 {
            // Its last requests wait in the proxy while the next one comes.
            let next = far.permits(2);
            let next = tokio::spawn(async move { next.acquire().await });
            steer(&proxy, &old, Pass::Pass);
            let next = soon("the next one", next).await.unwrap().unwrap();
            assert_eq!(count(&near).await, (0, 2));
            next.release().await.unwrap();
        } else {
            let held = soon("the permits", near.permits(2).acquire())
                .await
                .unwrap();
            let next = far.permits(2);
            let next = tokio::spawn(async move { next.acquire().await.unwrap() });
            until(&near, 1).await;
            // What has waited since then arrives now.
            steer(&proxy, &old, Pass::Pass);
            tokio::time::sleep(ms(200)).await;
            until(&near, 1).await;
            held.release().await.unwrap();
            let next = soon("the next one", next).await.unwrap();
            assert_eq!(count(&near).await, (0, 2));
            next.release().await.unwrap();
        }
        assert_eq!(until_keys(&server, 1).await, [NUMBER]);
        assert_eq!(count(&near).await, (2, 2));
    }
}

/// Makes the second attempt of a ticket that waits one that has no patience: it only looks. Keeps the kind of its error.
#[derive(Debug, Default)]
struct LooksAgain {
    has_asked: AtomicBool,
    looked: Arc<Mutex<Option<ErrorKind>>>,
}

impl Twist for LooksAgain {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        // It asks once before it waits.
        if ask.patience.is_zero() || !self.has_asked.swap(true, Ordering::SeqCst) {
            return inner.attempt(ask);
        }
        let mut ask = ask.clone();
        ask.patience = Duration::ZERO;
        Box::pin(async move {
            let reply = inner.attempt(&ask).await;
            let kind = reply.outcome.as_ref().err().map(tidelock::Error::kind);
            *self.looked.lock().unwrap() = kind;
            reply
        })
    }
}

/// A ticket that has a lease looks at the permits, and has no answer. It has written nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_has_only_looked_at_permits_on_etcd_is_not_in_doubt() {
    let server = EtcdServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let near = client(&server.url()).await.semaphore(NAME);
    near.set_permits(1).await.unwrap();
    let held = near.acquire().await.unwrap();
    let twist = LooksAgain::default();
    let looked = Arc::clone(&twist.looked);
    let twist = Mutex::new(Some(twist));
    let far = Fixture::url(format!("etcd://{}", proxy.addr())).wrapped(move |_, store| {
        let twist = twist.lock().unwrap().take();
        Twisted::wrap(store, twist.expect("one client"))
    });
    // Its waiters ask again after two seconds.
    let builder = far.builder().lease(ms(6000)).response_timeout(ms(1000));
    let far = far.client(builder).await.semaphore(NAME);
    let waiter = tokio::spawn(async move { far.acquire().await.map(drop) });
    until(&near, 1).await;
    proxy.set(Way::ToClient, Pass::Drop);
    let end = Instant::now() + SOON;
    while looked.lock().unwrap().is_none() {
        assert!(Instant::now() < end && !waiter.is_finished());
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(*looked.lock().unwrap(), Some(ErrorKind::Unavailable));
    waiter.abort();
    held.release().await.unwrap();
}

/// What an operator would do with what it sees is not in doubt either, if it cannot see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forced_release_that_has_only_looked_at_permits_is_not_in_doubt() {
    let server = EtcdServer::start().unwrap();
    let proxy = Proxy::start(server.addr()).unwrap();
    let near = client(&server.url()).await.semaphore(NAME);
    let operator = through(&proxy, &server).await;
    near.set_permits(2).await.unwrap();
    let two = near.permits(2).acquire().await.unwrap();
    let lock = operator.lock(NAME);
    let seen = lock.inspect().await.unwrap();
    proxy.set(Way::ToClient, Pass::Drop);
    let (looked, forced) = tokio::join!(lock.inspect(), lock.force_release_if(&seen));
    for error in [looked.unwrap_err(), forced.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    proxy.set(Way::ToClient, Pass::Pass);
    proxy.cut();
    assert!(two.is_held());
    two.release().await.unwrap();
}

/// Puts so many waiters for one permit into the queue, in few transactions. They belong to no client.
fn fill(server: &EtcdServer, name: &str, waiters: usize) {
    // etcd refuses a transaction with more than 128 operations.
    const MOST: usize = 120;
    for first in (0..waiters).step_by(MOST) {
        let mut command = server.etcdctl();
        command
            .arg("txn")
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut running = command.spawn().unwrap();
        let mut input = String::from("\n");
        for n in first..(first + MOST).min(waiters) {
            let key = format!("%permits/{name}/waiting/f{n:07x}.1");
            writeln!(input, "put {key} stranger:{n}").unwrap();
        }
        input.push_str("\n\n");
        let mut stdin = running.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        drop(stdin);
        assert!(running.wait().unwrap().success());
    }
}

/// Ten thousand waiters with a long name: each look at the semaphore reads some 5 MiB, and gRPC reads 4 unless it is told otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_for_permits_larger_than_a_usual_answer_is_read() {
    const WAITERS: usize = 9_000;
    let server = EtcdServer::start().unwrap();
    let name = "r".repeat(500);
    let semaphore = patient_client(&server.url()).await.semaphore(&name);
    semaphore.set_permits(1).await.unwrap();
    let held = semaphore.acquire().await.unwrap();
    fill(&server, &name, WAITERS);
    let seen = semaphore.inspect().await.unwrap();
    assert_eq!(seen.waiters, Some(WAITERS as u64));
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let waiter = waits(&semaphore, 1, WAITERS as u64 + 1).await;
    let theirs = format!("%permits/{name}/waiting/f");
    server.admin(&["del", "--prefix", &theirs]).unwrap();
    until(&semaphore, 1).await;
    held.release().await.unwrap();
    soon("its turn", waiter)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
