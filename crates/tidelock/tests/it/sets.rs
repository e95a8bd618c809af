//! Sets of the reference store keep every promise of a single store. More sets, also on servers, are in
//! `tests/real_servers`.

mod contested;
mod losses;
mod restarts;
mod runs;
mod waits;

mod majority_of_three {
    use tidelock::testing::Fixture;

    tidelock::conformance!(Fixture::majority_of([(); 3].map(|()| Fixture::memory())).simulated());
}

mod all_of_three_with_faults {
    use tidelock::testing::{Faults, Fixture};

    fn parts() -> [Fixture; 3] {
        let faults = Faults::seeded().shared_by(3);
        [(); 3].map(|()| Fixture::memory().through(faults.clone()))
    }

    tidelock::conformance!(faces: Fixture::all_of(parts()).simulated());
}

mod doubt {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use tidelock::store::{
        Attempt, AttemptReply, AttemptRequest, Backend, BoxFuture, Released, Ticket, ready,
    };
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
        ) -> BoxFuture<'a, AttemptReply> {
            Box::pin(async move {
                let answer = inner.attempt(ask).await;
                if self.spoken.swap(true, Ordering::SeqCst) {
                    return answer;
                }
                Error::new(ErrorKind::OutcomeUnknown)
                    .because("the reply was lost")
                    .into()
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
    async fn a_try_is_not_refused_by_its_own_ticket() {
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

    /// Answers its first attempt in doubt, and counts withdrawals.
    #[derive(Debug, Clone)]
    struct Doubtful {
        answer: fn() -> Result<Attempt>,
        answered: Arc<AtomicBool>,
        withdrawn: Arc<AtomicUsize>,
    }

    impl Twist for Doubtful {
        fn attempt<'a>(
            &'a self,
            inner: &'a dyn Backend,
            ask: &'a AttemptRequest,
        ) -> BoxFuture<'a, AttemptReply> {
            if self.answered.swap(true, Ordering::SeqCst) {
                return inner.attempt(ask);
            }
            ready(AttemptReply {
                outcome: (self.answer)(),
                in_doubt: true,
            })
        }

        fn withdraw<'a>(
            &'a self,
            inner: &'a dyn Backend,
            ticket: &'a Ticket,
        ) -> BoxFuture<'a, Result<Released>> {
            self.withdrawn.fetch_add(1, Ordering::SeqCst);
            inner.withdraw(ticket)
        }
    }

    /// The ticket is withdrawn at each member that answered in doubt, and at no other. The next ticket is not in doubt.
    #[tokio::test]
    async fn the_doubt_of_each_member_is_a_doubt_of_the_set() {
        let answers: [fn() -> Result<Attempt>; 3] = [
            || Ok(Attempt::held(None, Duration::from_millis(1))),
            || Err(Error::new(ErrorKind::Unavailable)),
            || Err(Error::new(ErrorKind::OutcomeUnknown)),
        ];
        for answer in answers {
            let doubtful = |answered| Doubtful {
                answer,
                answered: Arc::new(AtomicBool::new(answered)),
                withdrawn: Arc::default(),
            };
            let members = [doubtful(false), doubtful(false), doubtful(true)];
            let withdrawn = members.clone().map(|member| member.withdrawn);
            let withdrawn = || {
                withdrawn
                    .each_ref()
                    .map(|count| count.load(Ordering::SeqCst))
            };
            let fixture = Fixture::majority_of(members.map(|member| {
                Fixture::memory().wrapped(move |_, store| Twisted::wrap(store, member.clone()))
            }));
            let client = fixture.client(fixture.builder()).await;
            let guard = client.lock("a").acquire().await.unwrap();
            guard.release().await.unwrap();
            assert!(client.close(Duration::from_secs(1)).await == 0);
            assert_eq!(withdrawn(), [1, 1, 0], "{:?}", answer());
        }
    }
}
