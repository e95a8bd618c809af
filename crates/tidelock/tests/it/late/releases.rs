//! Releases and withdrawals whose answers are lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidelock::store::{Backend, BoxFuture, Released, Store, Ticket, ready};
use tidelock::testing::{Fixture, Twist, Twisted};
use tidelock::{Error, ErrorKind, LostReason, Result};

/// Executes releases, but loses their replies until the given instant.
#[derive(Debug)]
struct Mute {
    until: Instant,
    answered: Arc<AtomicBool>,
}

impl Twist for Mute {
    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let released = inner.release(ticket).await;
            if Instant::now() < self.until {
                return Err(Error::new(ErrorKind::OutcomeUnknown).because("no reply"));
            }
            self.answered.store(true, Ordering::SeqCst);
            released
        })
    }
}

/// The result of a release whose replies are lost for this long, and whether the release was confirmed later.
async fn release_in_an_outage(outage: Duration) -> (Result<()>, bool) {
    let answered = Arc::<AtomicBool>::default();
    let told = Arc::clone(&answered);
    let fixture = Fixture::memory().wrapped(move |_, store| {
        let mute = Mute {
            until: Instant::now() + outage,
            answered: Arc::clone(&told),
        };
        Twisted::wrap(Store::single(store.front), mute)
    });
    let (timeout, lease) = (Duration::from_millis(200), Duration::from_secs(10));
    let settings = fixture.builder().response_timeout(timeout).lease(lease);
    let client = fixture.client(settings).await;
    let guard = client.lock("stock").acquire().await.unwrap();
    let result = guard.release().await;
    while !answered.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (result, client.close(timeout).await == 0)
}

/// A lost reply does not make a successful release look like a failure: the client retries it. Without a reply for two
/// response timeouts the caller learns that the outcome is unknown, and the release continues in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_outlasts_an_outage_of_a_response_timeout_and_then_is_unknown() {
    let (result, is_clean) = release_in_an_outage(Duration::from_millis(150)).await;
    assert!(result.is_ok() && is_clean, "{result:?}");
    let (result, is_clean) = release_in_an_outage(Duration::from_secs(2)).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert!(is_clean);
}

/// Answers releases with these errors first.
#[derive(Debug)]
struct Overwritten(Mutex<Vec<ErrorKind>>);

impl Twist for Overwritten {
    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        match self.0.lock().unwrap().pop() {
            Some(kind) => ready(Err(Error::new(kind))),
            None => inner.release(ticket),
        }
    }
}

/// Something else stands at the key. That is a loss, unless an earlier release without a reply may have freed the lock.
#[tokio::test]
async fn a_release_that_was_repeated_may_find_something_else_at_the_key() {
    use ErrorKind::{OutcomeUnknown, WrongType};
    for errors in [vec![WrongType], vec![WrongType, OutcomeUnknown]] {
        let (was_repeated, told) = (errors.len() == 2, errors.clone());
        let fixture = Fixture::memory()
            .wrapped(move |_, store| Twisted::wrap(store, Overwritten(Mutex::new(errors.clone()))));
        let guard = fixture.party().await.lock("stock").acquire().await.unwrap();
        let lost = guard.release().await.map_err(|error| error.lost_reason());
        let expected = if was_repeated {
            Ok(())
        } else {
            Err(Some(LostReason::WrongType))
        };
        assert_eq!(lost, expected, "{told:?}");
    }
}

/// An acquire without a reply may lie in the buffers of a frozen server, and be granted for a whole lease when it resumes. So
/// the client withdraws the ticket again and again, for twice the lease or a minute.
#[tokio::test(start_paused = true)]
async fn a_ticket_in_doubt_is_withdrawn_for_twice_its_lease() {
    let second = Duration::from_secs(1);
    for (lease, minutes) in [(second * 120, 4), (second * 3, 1)] {
        let plug = tidelock::test_util::Plug::new();
        let builder = tidelock::Client::builder()
            .simulated_time()
            .publish_process_info(false)
            .lease(lease)
            .response_timeout(second / 2)
            .plug(&plug);
        let client = builder.connect("memory:").await.unwrap();
        plug.lose_replies(1);
        let mut acquire = Box::pin(client.lock("a").acquire().into_future());
        assert!(futures_util::poll!(acquire.as_mut()).is_pending());
        plug.pull();
        drop(acquire);
        let goes_on = async |after| {
            tokio::time::sleep(after).await;
            let before = plug.requests();
            tokio::time::sleep(second * 5).await;
            plug.requests() > before
        };
        assert!(goes_on(second * (60 * minutes - 10)).await, "{lease:?}");
        assert!(!goes_on(second * 10).await, "{lease:?}");
        assert_eq!(client.stats().cleanups_given_up, 1);
    }
}
