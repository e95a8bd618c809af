//! A store that is replaced by an empty one in the middle of a call.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tidelock::once::{Once, Slot};
use tidelock::store::{
    AttemptReply, AttemptRequest, Backend, BoxFuture, Env, MarkChange, Marks, Name, Released,
    Renewal, Renewed, Ticket,
};
use tidelock::testing::{Twist, Twisted};
use tidelock::{Client, LostReason, Result};

/// So long that the only renewals are those that a call asks for.
const LEASE: Duration = Duration::from_secs(600);

const EMPTY: &str = "memory:the empty store";

/// A store that is replaced by an empty one as soon as it has answered a renewal.
#[derive(Debug)]
struct Emptied {
    old: Arc<dyn Backend>,
    empty: Arc<dyn Backend>,
    is_replaced: Arc<AtomicBool>,
}

impl Emptied {
    fn server(&self) -> &dyn Backend {
        if self.is_replaced.load(Ordering::SeqCst) {
            &*self.empty
        } else {
            &*self.old
        }
    }

    fn server_marks(&self) -> &dyn Marks {
        self.server().extensions().marks.unwrap()
    }
}

impl Twist for Emptied {
    fn marks<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn Marks> {
        Some(self)
    }

    fn attempt<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        self.server().attempt(ask)
    }

    fn renew<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        batch: &'a [Renewal],
    ) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        Box::pin(async move {
            let answers = self.server().renew(batch).await;
            self.is_replaced.store(true, Ordering::SeqCst);
            answers
        })
    }

    fn release<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        self.server().release(ticket)
    }

    fn withdraw<'a>(
        &'a self,
        _inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        self.server().withdraw(ticket)
    }
}

impl Marks for Emptied {
    fn now<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        self.server_marks().now(name)
    }

    fn read<'a>(&'a self, name: &'a Name, slot: &'a str) -> BoxFuture<'a, Result<Option<String>>> {
        self.server_marks().read(name, slot)
    }

    fn replace<'a>(
        &'a self,
        name: &'a Name,
        change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.server_marks().replace(name, change)
    }

    fn history<'a>(
        &'a self,
        name: &'a Name,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        self.server_marks().history(name, limit)
    }
}

/// A mark has a larger token than the next attempt, which therefore asks whether it still holds the lock. It does; then the store
/// is lost, and the lock with it. The attempt must not begin: another client can have the lock already.
#[tokio::test]
async fn an_attempt_does_not_begin_if_the_store_is_emptied_before_its_mark() {
    let replaced = Arc::<AtomicBool>::default();
    let is_replaced = Arc::clone(&replaced);
    let settings = Client::builder().publish_process_info(false).lease(LEASE);
    let connecting = settings.connect_to(async move |env: &Env| {
        let old = tidelock::testing::open("memory:", env).await?;
        let empty = tidelock::testing::open(EMPTY, env).await?;
        let crashed = "mark1 running attempt=1 token=100 started=5 owner=another:1";
        let crashed = MarkChange::unacknowledged("today", None, crashed, LEASE);
        let marks = old.front.extensions().marks.unwrap();
        assert!(marks.replace(&Name::new("report")?, crashed).await?);
        let twist = Emptied {
            old: Arc::clone(&old.front),
            empty: Arc::clone(&empty.front),
            is_replaced,
        };
        Ok(Twisted::wrap(old, twist))
    });
    let client = connecting.await.unwrap();
    let begun = client.once("report").slot(Slot::id("today")).begin().await;
    let asked = replaced.load(Ordering::SeqCst);
    assert!(asked, "it has not asked whether it holds the lock");
    let error = begun.map(drop).unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Taken), "{error}");
    // It has left no mark, so the next call makes the first attempt.
    let next = Client::connect(EMPTY).await.unwrap();
    let job = next.once("report").slot(Slot::id("today"));
    let marks = job.history(1).await.unwrap();
    assert!(marks.is_empty(), "{marks:?}");
    let ran = job.run(|run| async move { Ok::<_, Infallible>(run.attempt()) });
    assert_eq!(ran.await.unwrap(), Once::Ran(1));
}
