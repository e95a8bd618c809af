//! Requests, waits and pauses that end with their client.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tidelock::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, LockKind, MarkChange, Marks, Name, Renewal,
    Renewed, ready,
};
use tidelock::testing::{Twist, Twisted};
use tidelock::{AcquireOptions, Client, Error, ErrorKind, Owner, Result, Snapshot};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// The turn of an owner may be with a future that is kept and not polled.
#[tokio::test(start_paused = true)]
async fn a_close_ends_a_wait_for_the_turn_of_an_owner() {
    let builder = Client::builder().simulated_time();
    let client = builder.connect("memory:").await.unwrap();
    let (lock, me) = (client.lock("a"), Owner::new());
    let held = lock.acquire().await.unwrap();
    let mine = || lock.acquire_with(AcquireOptions::new().owner(&me));
    let mut kept = Box::pin(mine());
    assert!(futures_util::poll!(kept.as_mut()).is_pending());
    let second = Duration::from_secs(1);
    let waits = tokio::time::timeout(second, mine());
    let (answer, _) = tokio::join!(waits, client.close(Duration::ZERO));
    let error = answer.expect("it ends").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    drop((kept, held));
}

/// Answers no inspection and no renewal.
#[derive(Debug)]
struct Hanging;

impl Twist for Hanging {
    fn renew<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(std::future::pending())
    }

    fn inspect<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        _name: &'a Name,
    ) -> BoxFuture<'a, Result<Snapshot>> {
        Box::pin(std::future::pending())
    }
}

/// The timers of a client stop when it has closed. So no limit would end a request that a close does not wait for.
#[tokio::test]
async fn a_request_that_hangs_ends_with_its_client() {
    let second = Duration::from_secs(1);
    let client = Client::builder()
        .publish_process_info(false)
        .response_timeout(second)
        .connect_to(async |env| {
            let store = tidelock::testing::open("memory:", env).await?;
            Ok(Twisted::wrap(store, Hanging))
        })
        .await
        .unwrap();
    let lock = client.lock("a");
    let guard = lock.acquire().await.unwrap();
    let inspected = async { lock.inspect().await.map(drop) };
    let requests = async {
        tokio::join!(
            client.ping(),
            inspected,
            guard.extend(second * 60),
            client.close(Duration::ZERO)
        )
    };
    let (pinged, inspected, extended, _) = tokio::time::timeout(second * 10, requests)
        .await
        .expect("they end with the client");
    for answer in [pinged, inspected, extended] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Closed);
    }
}

/// Says of each change of a mark that another client was faster.
#[derive(Debug)]
struct Outpaced {
    changes: Arc<Semaphore>,
}

impl Twist for Outpaced {
    fn marks<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn Marks> {
        Some(self)
    }
}

impl Marks for Outpaced {
    fn now<'a>(&'a self, _name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        ready(Ok(SystemTime::now()))
    }

    fn read<'a>(
        &'a self,
        _name: &'a Name,
        _slot: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        ready(Ok(None))
    }

    fn replace<'a>(
        &'a self,
        _name: &'a Name,
        _change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.changes.add_permits(1);
        ready(Ok(false))
    }

    fn history<'a>(
        &'a self,
        _name: &'a Name,
        _limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        ready(Ok(Vec::new()))
    }
}

/// Refuses the lock behind which the members of a barrier wait. So they look again and again, with growing pauses.
#[derive(Debug)]
struct NothingToWaitFor {
    looks: Arc<Semaphore>,
}

impl Twist for NothingToWaitFor {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        if ask.ticket.kind == LockKind::Write {
            return ready(Error::new(ErrorKind::Refused).into());
        }
        if ask.ticket.name.as_str().ends_with("%barrier") {
            self.looks.add_permits(1);
        }
        inner.attempt(ask)
    }
}

async fn twisted(twist: impl Twist) -> Client {
    let builder = Client::builder()
        .publish_process_info(false)
        .response_timeout(Duration::from_secs(1));
    let client = builder.connect_to(async move |env| {
        let store = tidelock::testing::open("memory:", env).await?;
        Ok(Twisted::wrap(store, twist))
    });
    client.await.unwrap()
}

/// Closes the client. The call ends with it, although its timers stop. Nothing else polls the task of the call: a poll
/// would let a pause end that is over.
async fn ends_with<T: Send + 'static>(client: &Client, call: JoinHandle<Result<T>>) {
    client.close(Duration::ZERO).await;
    let ended = tokio::time::timeout(Duration::from_secs(10), call).await;
    let ended = ended.unwrap().unwrap();
    let error = ended.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

/// The timers of a client stop when it has closed, and with them the pause before a member of a barrier repeats a step.
#[tokio::test]
async fn a_step_of_a_barrier_ends_with_its_client() {
    // A close may come when a pause is nearly over, so one round would not always show that nothing ends the pause.
    for _ in 0..4 {
        let changes = Arc::new(Semaphore::new(0));
        let twist = Outpaced {
            changes: Arc::clone(&changes),
        };
        let client = twisted(twist).await;
        let barrier = client.barrier("both", 2);
        let entered = tokio::spawn(async move { barrier.enter().await });
        // By then the pauses are long.
        drop(changes.acquire_many(7).await.unwrap());
        ends_with(&client, entered).await;
    }
}

/// The same for the pause between two looks.
#[tokio::test]
async fn a_member_that_leaves_a_barrier_ends_with_its_client() {
    let looks = Arc::new(Semaphore::new(0));
    let twist = NothingToWaitFor {
        looks: Arc::clone(&looks),
    };
    let client = twisted(twist).await;
    let barrier = client.barrier("both", 2);
    let (first, second) = tokio::join!(barrier.enter(), barrier.enter());
    let (first, second) = (first.unwrap(), second.unwrap());
    let left = tokio::spawn(first.leave());
    // By then the pauses are long.
    drop(looks.acquire_many(10).await.unwrap());
    ends_with(&client, left).await;
    drop(second);
}
