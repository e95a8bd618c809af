//! Grants whose answer comes after the lease has ended.

use tidelock::HandOff;
use tidelock::store::{AttemptReply, AttemptRequest, Backend, BoxFuture};
use tidelock::testing::{Twist, Twisted};
use tokio::time::timeout;

use super::leaving::{Slow, a_scout};
use super::*;

/// As [`Slow`], but the store decides at once, and only its answer is late.
#[derive(Debug, Clone)]
struct LateAnswer(Slow);

impl Twist for LateAnswer {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            let answer = inner.attempt(ask).await;
            if self.0.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.0.asked.notify_one();
                self.0.answer.notified().await;
            }
            answer
        })
    }
}

/// A client whose attempt with this number is answered late.
async fn with_a_late_answer(store: &str, attempt: usize) -> (Client, Slow) {
    let slow = Slow {
        left: Arc::new(AtomicUsize::new(attempt)),
        asked: Arc::default(),
        answer: Arc::default(),
    };
    let twist = LateAnswer(slow.clone());
    let here = builder()
        .hand_off(HandOff::default().within(SECOND * 60))
        .connect_to(async |env| {
            let store = tidelock::testing::open(store, env).await?;
            Ok(Twisted::wrap(store, twist))
        })
        .await
        .unwrap();
    (here, slow)
}

/// A probe is granted the lock, but its answer comes after the lease has ended and the leader has the lock. The leader's
/// hold is still handed off, to the waiter that has probed.
#[tokio::test(start_paused = true)]
async fn a_probe_that_is_granted_too_late_takes_no_leadership() {
    let store = store();
    let far = client(&store).await;
    // The stopped leader makes the first attempt. The second is the probe.
    let (here, slow) = with_a_late_answer(&store, 2).await;
    let held = far.lock("a").acquire().await.unwrap();
    let (idle, next) = a_scout(&here.lock("a")).await;
    held.release().await.unwrap();
    let asked = timeout(SECOND * 21, slow.asked.notified()).await;
    assert!(asked.is_ok(), "{:?} attempts are left", slow.left);
    sleep(SECOND * 31).await;
    // With a waiter behind it, the leader reserves tokens for hand-offs.
    let (last, _) = crowd(&here.lock("a"), 1, Duration::ZERO).await;
    let guard = timeout(SECOND, idle).await.expect("it leads").unwrap();
    let attempts = slow.left.load(Ordering::SeqCst);
    slow.answer.notify_one();
    settled().await;
    guard.release().await.unwrap();
    let guard = timeout(SECOND, next).await.expect("it waits on").unwrap();
    guard.unwrap().release().await.unwrap();
    timeout(SECOND, last.join_all()).await.expect("and this");
    assert_eq!(slow.left.load(Ordering::SeqCst), attempts, "hand-offs");
    assert!(here.is_idle());
}

/// A waiter whose grant came too late waits on with a new ticket, behind somebody else. In a queue of the store a wake
/// belongs to one ticket, so it needs a new one: with the old one it would sleep until it looks by itself.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_was_granted_the_lock_too_late_is_woken_again() {
    let store = store();
    let far = client(&store).await;
    // It asks, asks again to sleep, and is woken.
    let (here, slow) = with_a_late_answer(&store, 3).await;
    let held = far.fair_lock("a").acquire().await.unwrap();
    let waiting = tokio::spawn(here.fair_lock("a").acquire());
    settled().await;
    held.release().await.unwrap();
    let asked = timeout(SECOND, slow.asked.notified()).await;
    assert!(asked.is_ok(), "{:?} attempts are left", slow.left);
    sleep(SECOND * 31).await;
    let held = far.fair_lock("a").acquire().await.unwrap();
    slow.answer.notify_one();
    sleep(SECOND).await;
    assert!(!waiting.is_finished());
    held.release().await.unwrap();
    let woken = timeout(SECOND / 10, waiting).await.expect("it is woken");
    woken.unwrap().unwrap().release().await.unwrap();
    assert!(here.is_idle());
}
