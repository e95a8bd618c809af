//! Transactions for users that are not allowed to run scripts: WATCH and read, decide, then MULTI and EXEC. The
//! writes take effect only if no watched key has changed.
//!
//! WATCH affects every command on its connection. So transactions have a connection of their own, and run one at a
//! time.

use crate::error::Result;
use crate::store::BootInstant;
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::wire::errors::{ServerError, unanswered, unexpected, unsent};
use crate::store::redis::wire::reply::{Reply, RequestError};
use crate::store::redis::wire::request::Request;

/// How often a transaction is retried because a watched key has changed.
const MAX_TRANSACTION_RETRIES: usize = 20;

/// The reply to one command.
pub(crate) type CommandResult = Result<Reply, ServerError>;

/// Decides the next step from the replies to the reads.
pub(crate) type Decide<'a> =
    Box<dyn Fn(&[CommandResult]) -> Result<TransactionStep> + Send + Sync + 'a>;

/// The keys to watch, the reads, and the decision.
pub(crate) struct Transaction<'a> {
    pub(crate) watch: Vec<&'a str>,
    pub(crate) looks: Vec<Request>,
    pub(crate) decide: Decide<'a>,
}

/// The next step after the reads.
pub(crate) enum TransactionStep {
    /// The transaction ends with this reply, without writes.
    Answer(Reply),
    /// Run these writes, and compute the reply from their replies. `None`: a value differs from what we read, so the
    /// transaction is retried.
    Write(Vec<Request>, fn(&[Reply]) -> Option<Reply>),
}

/// The connection for transactions, and the lock that serializes them.
#[derive(Default)]
pub(crate) struct TransactionConnection {
    connection: std::sync::OnceLock<Connection>,
    next_node: tokio::sync::Mutex<()>,
}

impl Connection {
    /// Runs a transaction. `asking`: the slot is being migrated to this node, which cannot watch its keys yet; the
    /// transaction fails.
    pub(crate) async fn transact(
        &self,
        asking: bool,
        transaction: &Transaction<'_>,
        deadline: BootInstant,
    ) -> Result<Reply> {
        if asking {
            return Err(unsent(
                "the slot of this lock is being migrated to another node",
            ));
        }
        let transactions = self.transactions();
        let Some(_turn) = self
            .timers()
            .until(deadline, transactions.next_node.lock())
            .await
        else {
            return Err(unsent(
                "earlier transactions on this connection did not finish in time",
            ));
        };
        let connection = transactions.connection.get_or_init(|| self.sibling());
        for _ in 0..MAX_TRANSACTION_RETRIES {
            if let Some(answer) = connection.transact_once(transaction, deadline).await? {
                return Ok(answer);
            }
        }
        Err(unsent("the key changed during every try"))
    }

    async fn transact_once(
        &self,
        transaction: &Transaction<'_>,
        deadline: BootInstant,
    ) -> Result<Option<Reply>> {
        let conn = self.get(deadline).await?;
        let mut watch = Request::new("WATCH");
        for key in &transaction.watch {
            watch = watch.arg(*key);
        }
        // UNWATCH first: an earlier transaction that was not completed may still watch keys.
        let mut looks = vec![Request::new("UNWATCH"), watch];
        looks.extend(transaction.looks.iter().cloned());
        let seen = match self.settle_all(&conn, &looks, deadline).await {
            Ok(seen) => seen,
            Err(RequestError::Broken(why)) => return Err(unsent(why)),
            Err(RequestError::Server(server_error)) => return Err(server_error.error()),
        };
        for preparation in &seen[..2] {
            if let Err(server_error) = preparation {
                return Err(server_error.error());
            }
        }
        let (writes, answer) = match (transaction.decide)(&seen[2..])? {
            TransactionStep::Answer(answer) => return Ok(Some(answer)),
            TransactionStep::Write(writes, answer) => (writes, answer),
        };
        let mut all = vec![Request::new("MULTI")];
        all.extend(writes);
        all.push(Request::new("EXEC"));
        let done = self.settle_all(&conn, &all, deadline).await;
        let mut done = done.map_err(|failure| failure.error())?;
        let executed = done.pop();
        match executed {
            // A watched key has changed: nothing was written.
            Some(Ok(Reply::Nil)) => Ok(None),
            Some(Ok(Reply::List(said))) => Ok(answer(&said)),
            Some(Ok(other)) => Err(unexpected(&other)),
            // The server refused one of the commands, so it ran none. The error of that command says more than the
            // error of EXEC.
            Some(Err(aborted)) => {
                let refused = done.into_iter().find_map(Result::err);
                Err(refused.unwrap_or(aborted).error())
            }
            None => Err(unanswered("an answer of nothing")),
        }
    }
}
