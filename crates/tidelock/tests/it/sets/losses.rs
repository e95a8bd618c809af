//! What the release of a set says, and what it leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tidelock::store::{Backend, BoxFuture, Released, Ticket, ready};
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{Client, Error, ErrorKind, Lock, RedLock, Result, test_util::Plug};

async fn is_free(lock: &Lock) -> bool {
    !lock.inspect().await.unwrap().is_locked()
}

/// One lock in two levels would be released twice, and the second release would find nothing.
#[tokio::test]
async fn a_lock_that_is_also_part_of_an_inner_set_counts_once() {
    let client = Client::connect("memory:").await.unwrap();
    let parts = ["x", "y", "z"].map(|name| client.lock(name));
    let [x, y, z] = &parts;
    let inner = client.multi_lock([x, y]).unwrap();
    let middle = client.multi_lock([&inner, z]).unwrap();
    for whole in [
        client.multi_lock([&inner, x]).unwrap(),
        client.multi_lock([y, &middle, &inner]).unwrap(),
    ] {
        let guard = whole.acquire().await.unwrap();
        assert!(!is_free(x).await && !is_free(y).await);
        guard.release().await.unwrap();
        for part in &parts {
            assert!(is_free(part).await, "{} of {}", part.name(), whole.name());
        }
    }
    assert_eq!(middle.name(), "x+y+z");
}

/// A member whose release fails: with this error, once or always.
#[derive(Debug, Clone)]
struct Failing {
    kind: ErrorKind,
    always: bool,
    failed: Arc<AtomicBool>,
}

impl Twist for Failing {
    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        if self.failed.swap(true, Ordering::SeqCst) && !self.always {
            return inner.release(ticket);
        }
        ready(Err(Error::new(self.kind)))
    }
}

async fn failing(kind: ErrorKind, always: bool) -> Client {
    let twist = Failing {
        kind,
        always,
        failed: Arc::default(),
    };
    let fixture = Fixture::memory().simulated();
    let fixture = fixture.wrapped(move |_, store| Twisted::wrap(store, twist.clone()));
    let settings = fixture.builder().lease(Duration::from_secs(3600));
    fixture.client(settings).await
}

/// Otherwise the part that can be released stays held until its lease ends.
#[tokio::test(start_paused = true)]
async fn a_part_that_no_retry_can_release_does_not_end_the_release_of_the_others() {
    let refused = failing(ErrorKind::Refused, true).await;
    let away = failing(ErrorKind::Unavailable, false).await;
    let parts = [refused.lock("x"), away.lock("y")];
    let guard = refused.multi_lock(&parts).unwrap().acquire().await.unwrap();
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(!error.to_string().contains("; y: "), "{error}");
    let freed = parts[1].acquire_timeout(Duration::from_secs(60)).await;
    drop(freed.expect("released in the background"));
}

/// The reply of one server is lost when the lock is acquired, so its release withdraws the ticket there. It must not take
/// what was lost since for what was never acquired.
#[tokio::test]
async fn a_loss_is_told_although_a_reply_was_lost_before() {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let (mut clients, mut watchers, plug) = (Vec::new(), Vec::new(), Plug::new());
    for server in 0..3 {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let url = format!("memory:losses {number}");
        let mut settings = Client::builder().lease(Duration::from_secs(30));
        if server == 1 {
            settings = settings.plug(&plug);
        }
        clients.push(settings.connect(&url).await.unwrap());
        watchers.push(Client::connect(&url).await.unwrap());
    }
    let redlock = RedLock::new(clients.clone()).unwrap();
    let parts = [redlock.lock("a"), redlock.lock("b")];
    let whole = clients[0].multi_lock(parts).unwrap();
    for lost in [true, false] {
        plug.lose_replies(1);
        let guard = whole.acquire().await.unwrap();
        for watcher in watchers.iter().step_by(2).filter(|_| lost) {
            assert!(watcher.lock("a").force_release().await.unwrap());
        }
        let released = guard.release().await;
        let told = released.as_ref().err().map(Error::kind);
        assert_eq!(told, lost.then_some(ErrorKind::Lost), "{released:?}");
    }
}

/// One member forgets an extended lock. With the lease of a renewal it would free the lock before the others do: after such a loss
/// at each of two members, a majority would be free while the holder still has a proof.
#[tokio::test(start_paused = true)]
async fn a_member_gets_the_lock_again_for_as_long_as_the_others_keep_it() {
    const LEASE: Duration = Duration::from_secs(30);
    let (mut members, mut watchers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let fixture = Fixture::memory().simulated();
        let client = async |settings| fixture.client(settings).await;
        members.push(client(fixture.builder().lease(LEASE)).await);
        watchers.push(client(fixture.builder()).await);
    }
    let redlock = RedLock::new(members).unwrap();
    let guard = redlock.lock("a").acquire().await.unwrap();
    guard.extend(LEASE * 20).await.unwrap();
    for watcher in &watchers[1..] {
        let part = watcher.lock("a");
        assert!(part.force_release().await.unwrap());
        // The next renewal comes within that time.
        tokio::time::sleep(LEASE / 2).await;
        let left = part.inspect().await.unwrap().expires_in.unwrap();
        assert!(
            left >= guard.valid_for(),
            "{left:?}, {:?}",
            guard.valid_for()
        );
    }
    // An extension that is shorter than the rest of an earlier one is an acquisition at a member that has forgotten the lock, too.
    let part = watchers[0].lock("a");
    assert!(part.force_release().await.unwrap());
    guard.extend(LEASE / 10).await.unwrap();
    tokio::time::sleep(LEASE / 100).await;
    let left = part.inspect().await.unwrap().expires_in.unwrap();
    assert!(
        left >= guard.valid_for(),
        "{left:?}, {:?}",
        guard.valid_for()
    );
    guard.release().await.unwrap();
}
