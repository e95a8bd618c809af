//! An election with a leader and a candidate.

use anyhow::{Context, Result, ensure};
use tidelock::election::Leadership;
use tidelock::{Client, FencingToken};

use super::{Known, until};

const NAME: &str = "boss";
const PRIORITY: i32 = 3;

pub(super) async fn lead(client: &Client) -> Result<Leadership> {
    let election = client.election(NAME).identity("first");
    let leading = election.campaign().await?;
    // Its mark gets the term in the background. SQLite counts the marks in the order in which they are written.
    let told = until("it says in which term it leads", async || {
        let leader = election.leader().await?;
        Ok(leader.and_then(|leader| leader.term))
    });
    told.await?;
    Ok(leading)
}

/// The other client becomes a candidate. `queues`: it also has a place in the queue of the lock.
pub(super) async fn stand(client: &Client, other: &Client, queues: bool) -> Result<()> {
    let candidate = other.election(NAME).identity("second").priority(PRIORITY);
    tokio::spawn(async move { candidate.campaign().await.map(drop) });
    let (election, lock) = (client.election(NAME), client.lock(NAME));
    let complete = async || {
        let candidates = election.candidates().await?;
        let waits = !queues || lock.inspect().await?.waiters == Some(1);
        Ok((candidates.len() == 1 && waits).then_some(()))
    };
    until("there is a candidate", complete).await
}

/// The leader leads in its term, the candidate is one, and the next term is greater.
pub(super) async fn is_understood(client: &Client, known: &Known) -> Result<()> {
    let election = client.election(NAME);
    let leader = election.leader().await?.context("nobody leads")?;
    let identity = leader.identity.as_deref();
    ensure!(
        identity == Some("first") && leader.term == Some(known.term),
        "{leader:?}, not the first in term {}",
        known.term
    );
    let candidates = election.candidates().await?;
    let [candidate] = &*candidates else {
        anyhow::bail!("{candidates:?}");
    };
    ensure!(
        candidate.identity == "second"
            && candidate.priority == PRIORITY
            && Some(&candidate.client) == known.waiters.first(),
        "{candidate:?}"
    );
    let lock = client.lock(NAME).fenced();
    let token = lock.inspect().await?.token.map(FencingToken::get);
    ensure!(token == Some(known.term), "held with the token {token:?}");
    // The candidate may have a place in the queue, and gets the lock first.
    for _ in 0..2 {
        ensure!(lock.force_release().await?, "nothing to release by force");
        if let Some(guard) = lock.try_acquire().await? {
            let next = guard.token().get();
            ensure!(next > known.term, "the term {next} after {}", known.term);
            return Ok(guard.release().await?);
        }
    }
    anyhow::bail!("somebody else has the lock of the election");
}
