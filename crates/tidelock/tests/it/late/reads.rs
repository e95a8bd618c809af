//! Reads whose reply is lost.

use std::time::SystemTime;

use tidelock::store::{Backend, BoxFuture, MarkChange, Marks, Name, ready};
use tidelock::testing::{Twist, Twisted};
use tidelock::{Client, Error, ErrorKind, Result};

/// Has no reply to those who read marks.
#[derive(Debug)]
struct NoReply;

fn lost<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T>> {
    ready(Err(Error::new(ErrorKind::OutcomeUnknown)))
}

impl Twist for NoReply {
    fn marks<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn Marks> {
        Some(self)
    }
}

impl Marks for NoReply {
    fn now<'a>(&'a self, _name: &'a Name) -> BoxFuture<'a, Result<SystemTime>> {
        lost()
    }

    fn read<'a>(
        &'a self,
        _name: &'a Name,
        _slot: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>>> {
        lost()
    }

    fn replace<'a>(
        &'a self,
        _name: &'a Name,
        _change: MarkChange<'a>,
    ) -> BoxFuture<'a, Result<bool>> {
        lost()
    }

    fn history<'a>(
        &'a self,
        _name: &'a Name,
        _limit: u32,
    ) -> BoxFuture<'a, Result<Vec<(String, String)>>> {
        lost()
    }
}

/// A caller who is told of an unknown outcome asks whether something was changed, such as whether its job has run.
#[tokio::test(start_paused = true)]
async fn a_call_that_only_reads_is_never_in_doubt() {
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false);
    let client = builder.connect_to(async |env| {
        let store = tidelock::testing::open("memory:", env).await?;
        Ok(Twisted::wrap(store, NoReply))
    });
    let client = client.await.unwrap();
    let (election, job) = (client.election("billing"), client.once("report"));
    let leader = client.lock("billing").acquire().await.unwrap();
    for (call, answer) in [
        ("leader", election.leader().await.map(drop)),
        ("candidates", election.candidates().await.map(drop)),
        ("history", job.history(1).await.map(drop)),
        ("begin", job.begin().await.map(drop)),
        (
            "members",
            client.barrier("solver", 2).members().await.map(drop),
        ),
        ("processes", client.processes().await.map(drop)),
        ("awaited", client.awaited().await.map(drop)),
    ] {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{call}: {error}");
    }
    leader.release().await.unwrap();
}
