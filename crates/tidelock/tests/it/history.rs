//! The suite can fail: it detects a store that breaks its promises.

use tidelock::Result;
use tidelock::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BoxFuture, Released, Store, Ticket, ready,
};
use tidelock::testing::{Fixture, Twist, Twisted, promises};

/// Grants every attempt.
#[derive(Debug)]
struct Generous;

impl Twist for Generous {
    fn attempt<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        ready(Ok(Attempt::granted(None)).into())
    }

    fn release<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        ready(Ok(Released::Freed))
    }
}

fn generous() -> Fixture {
    Fixture::memory().wrapped(|_, store| Twisted::wrap(Store::single(store.front), Generous))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[should_panic(expected = "two holders at once")]
async fn a_store_that_lets_everybody_in_is_caught() {
    promises::mutex::one_holder_at_a_time(&generous()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[should_panic(expected = "two holders at once")]
async fn it_is_caught_also_by_those_who_leave_early() {
    promises::cancel::dropped_at_random_moments_400(&generous()).await;
}
