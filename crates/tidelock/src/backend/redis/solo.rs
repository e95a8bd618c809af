//! Transactions: a look, a decision of ours, and writes that happen only if nothing of what was looked at has changed.
//!
//! What a connection watches concerns whatever is sent on it, so this one carries nothing else, one transaction at a time.

use super::errors::{Complaint, unanswered, unexpected, unsent};
use super::link::Link;
use super::reply::{Reply, Trouble};
use super::request::Request;
use crate::backend::Moment;
use crate::error::Result;

/// How often one question looks again because something has changed meanwhile.
const ROUNDS: usize = 20;

/// What came of one command.
pub(super) type Outcome = Result<Reply, Complaint>;

/// From the answers to the looks to what follows.
pub(super) type Decide<'a> = Box<dyn Fn(&[Outcome]) -> Result<Next> + Send + Sync + 'a>;

/// What to look at, and what to make of it.
pub(super) struct Transaction<'a> {
    pub(super) watch: Vec<&'a str>,
    pub(super) looks: Vec<Request>,
    pub(super) decide: Decide<'a>,
}

/// What follows from a look.
pub(super) enum Next {
    /// That is the answer already.
    Answer(Reply),
    /// These are to be written, and what they say makes the answer. `None`: something was not as it had looked.
    Write(Vec<Request>, fn(&[Reply]) -> Option<Reply>),
}

/// The connection kept for transactions, and whose turn it is.
#[derive(Default)]
pub(super) struct Solo {
    link: std::sync::OnceLock<Link>,
    turn: tokio::sync::Mutex<()>,
}

impl Link {
    /// Carries out a transaction. `asking`: the slot is on its way here, where its keys cannot be watched yet.
    pub(super) async fn transact(
        &self,
        asking: bool,
        transaction: &Transaction<'_>,
        deadline: Moment,
    ) -> Result<Reply> {
        if asking {
            return Err(unsent(
                "the slot of this lock is on its way to another node",
            ));
        }
        let solo = self.solo();
        let Some(_turn) = self.timers().until(deadline, solo.turn.lock()).await else {
            return Err(unsent("other transactions were not answered in time"));
        };
        let link = solo.link.get_or_init(|| self.sibling());
        for _ in 0..ROUNDS {
            if let Some(answer) = link.transact_once(transaction, deadline).await? {
                return Ok(answer);
            }
        }
        Err(unsent("the key changes again and again"))
    }

    async fn transact_once(
        &self,
        transaction: &Transaction<'_>,
        deadline: Moment,
    ) -> Result<Option<Reply>> {
        let conn = self.get(deadline).await?;
        let mut watch = Request::new("WATCH");
        for key in &transaction.watch {
            watch = watch.arg(*key);
        }
        // A transaction that was left half done may still watch something.
        let mut looks = vec![Request::new("UNWATCH"), watch];
        looks.extend(transaction.looks.iter().cloned());
        let seen = match self.settle_all(&conn, &looks, deadline).await {
            Ok(seen) => seen,
            Err(Trouble::Broken(why)) => return Err(unsent(why)),
            Err(Trouble::Complaint(complaint)) => return Err(complaint.error()),
        };
        for preparation in &seen[..2] {
            if let Err(complaint) = preparation {
                return Err(complaint.error());
            }
        }
        let (writes, answer) = match (transaction.decide)(&seen[2..])? {
            Next::Answer(answer) => return Ok(Some(answer)),
            Next::Write(writes, answer) => (writes, answer),
        };
        let mut all = vec![Request::new("MULTI")];
        all.extend(writes);
        all.push(Request::new("EXEC"));
        let done = self.settle_all(&conn, &all, deadline).await;
        let mut done = done.map_err(|trouble| trouble.error())?;
        let executed = done.pop();
        match executed {
            // Something has changed: nothing was written.
            Some(Ok(Reply::Nil)) => Ok(None),
            Some(Ok(Reply::List(said))) => Ok(answer(&said)),
            Some(Ok(other)) => Err(unexpected(&other)),
            // One of the commands was refused, which says more, and then none is carried out.
            Some(Err(aborted)) => {
                let refused = done.into_iter().find_map(Result::err);
                Err(refused.unwrap_or(aborted).error())
            }
            None => Err(unanswered("an answer of nothing")),
        }
    }
}
