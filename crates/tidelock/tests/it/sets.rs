//! Sets of the reference store keep every promise of a single store. More sets, also on servers, are in
//! `tests/real_servers`.

mod majority_of_three {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::majority_of([(); 3].map(|()| Fixture::memory())));
}

mod all_of_three_with_faults {
    use tidelock::testing::{Faults, Fixture};

    fn part() -> Fixture {
        Fixture::memory().through(Faults::seeded().shared_by(3))
    }

    tidelock::conformance!(faces: Fixture::all_of([part(), part(), part()]));
}

mod doubt {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tidelock::store::{Attempt, AttemptRequest, Backend, BoxFuture, Released, Ticket};
    use tidelock::testing::{Fixture, Twist, Twisted};
    use tidelock::{Error, ErrorKind, Result};
    use tokio::sync::Semaphore;

    /// Loses the reply of its first grant, and withdraws nothing before the test opens the gate.
    #[derive(Debug, Clone, Default)]
    struct Mute {
        spoken: Arc<AtomicBool>,
        gate: Arc<Gate>,
    }

    #[derive(Debug)]
    struct Gate {
        come: Semaphore,
        open: Semaphore,
    }

    impl Default for Gate {
        fn default() -> Self {
            let (come, open) = (Semaphore::new(0), Semaphore::new(0));
            Self { come, open }
        }
    }

    impl Twist for Mute {
        fn attempt<'a>(
            &'a self,
            inner: &'a dyn Backend,
            ask: &'a AttemptRequest,
        ) -> BoxFuture<'a, Result<Attempt>> {
            Box::pin(async move {
                let answer = inner.attempt(ask).await;
                if self.spoken.swap(true, Ordering::SeqCst) {
                    return answer;
                }
                Err(Error::new(ErrorKind::OutcomeUnknown).because("the reply was lost"))
            })
        }

        fn withdraw<'a>(
            &'a self,
            inner: &'a dyn Backend,
            ticket: &'a Ticket,
        ) -> BoxFuture<'a, Result<Released>> {
            Box::pin(async move {
                self.gate.come.add_permits(1);
                let _open = self.gate.open.acquire().await;
                inner.withdraw(ticket).await
            })
        }
    }

    #[tokio::test]
    async fn who_only_asks_is_not_refused_by_its_own_ticket() {
        let mute = Mute::default();
        let gate = Arc::clone(&mute.gate);
        let second = Fixture::memory().wrapped(move |_, store| Twisted::wrap(store, mute.clone()));
        let first = Fixture::memory();
        let (one, other) = (
            first.client(first.builder()).await,
            second.client(second.builder()).await,
        );
        let both = one.multi_lock([one.lock("a"), other.lock("b")]).unwrap();
        let mut asking = tokio::spawn(async move { both.try_acquire().await });
        // The set's first ticket holds the second lock, and its withdrawal is in progress.
        gate.come.acquire().await.unwrap().forget();
        let early = tokio::time::timeout(Duration::from_millis(200), &mut asking).await;
        assert!(early.is_err(), "refused by its own ticket: {early:?}");
        gate.open.add_permits(Semaphore::MAX_PERMITS);
        let guard = asking.await.unwrap().unwrap().expect("it is free");
        guard.release().await.unwrap();
    }
}
