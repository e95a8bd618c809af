//! Transactions for users that are not allowed to run scripts: WATCH and read, decide, then MULTI and EXEC. The
//! writes take effect only if no watched key has changed.
//!
//! WATCH affects every command on its connection. So transactions have a connection of their own, and run one at a
//! time. Each runs in a task on the steward's thread. Otherwise a caller that is kept and not polled, or whose runtime
//! nobody drives any more, would keep its turn, and stop all others.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, ReplyScope, Result};
use crate::store::redis::topology::connection::{Connection, ConnectionRuntime};
use crate::store::redis::topology::job::ServerJob;
use crate::store::redis::wire::errors::{ServerError, unanswered, unexpected, unsent};
use crate::store::redis::wire::reply::{CommandResult, Reply, RequestError};
use crate::store::redis::wire::request::Request;
use crate::store::{Background, BootInstant};

/// How often a transaction is retried because a watched key has changed.
const MAX_TRANSACTION_RETRIES: usize = 20;

/// How much longer a caller waits than its transaction may take, because the error of the transaction is more precise than
/// a timeout. The runtime of its task may have stopped.
const ANSWER_SLACK: Duration = Duration::from_millis(50);

/// The keys to watch, the reads, and the decision. All keys are in one slot.
pub(crate) trait Transaction: Send + Sync + 'static {
    fn watch(&self) -> Request;

    fn reads(&self) -> Vec<Request>;

    /// Whether the caller splits it after an error that may concern one of its keys only.
    fn may_split(&self) -> bool {
        false
    }

    /// Decides from the replies to the reads.
    fn decide(&self, seen: &[CommandResult]) -> Result<TransactionStep>;
}

/// The next step after the reads.
pub(crate) enum TransactionStep {
    /// The transaction ends with this reply, without writes.
    Answer(Reply),
    /// Run these writes, and compute the reply from their replies. `None`: a value differs from what we read, so the
    /// transaction is retried.
    Write(Vec<Request>, AnswerToWrites),
}

pub(crate) type AnswerToWrites = Box<dyn FnOnce(&[Reply]) -> Result<Option<Reply>> + Send>;

/// The connection for the transactions of one reconnecting connection, and the lock that serializes them.
#[derive(Default)]
pub(crate) struct TransactionConnection {
    connection: std::sync::OnceLock<Connection>,
    next_node: tokio::sync::Mutex<()>,
}

/// Runs a transaction.
pub(crate) struct TransactionJob<'a, T> {
    pub(crate) key: &'a str,
    pub(crate) transaction: Arc<T>,
    pub(crate) deadline: BootInstant,
    pub(crate) background: &'a Background,
}

/// A transaction in its task.
struct TransactionRun<T> {
    transaction: Arc<T>,
    deadline: BootInstant,
    background: Background,
}

impl<T: Transaction> ServerJob for TransactionJob<'_, T> {
    type Output = Reply;

    fn key(&self) -> &str {
        self.key
    }

    fn deadline(&self) -> BootInstant {
        self.deadline
    }

    /// With `asking` the transaction fails, because the server cannot watch the keys of that slot yet.
    async fn run(&self, connection: &Connection, asking: bool) -> Result<Reply> {
        if asking {
            return Err(unsent(
                "the slot of this lock is being migrated to another node",
            ));
        }
        let transactions = connection.attachments().get::<TransactionConnection>();
        let run = TransactionRun {
            transaction: Arc::clone(&self.transaction),
            deadline: self.deadline,
            background: self.background.clone(),
        };
        let own = connection.clone();
        let request = async move { run.in_turn(&transactions, &own).await };
        let answered = self.background.run_for_caller(request);
        let until = self.deadline + ANSWER_SLACK;
        match connection.timers().until(until, answered).await {
            Some(Some(result)) => result,
            Some(None) => Err(unanswered("the transaction was given up")),
            None => Err(unanswered(format_args!(
                "no answer within {:?}",
                connection.limit()
            ))),
        }
    }
}

impl<T: Transaction> TransactionRun<T> {
    /// Waits for its turn, and repeats the transaction until no watched key has changed.
    async fn in_turn(
        &self,
        transactions: &TransactionConnection,
        connection: &Connection,
    ) -> Result<Reply> {
        let turn = transactions.next_node.lock();
        let turn = connection.timers().until(self.deadline, turn).await;
        let Some(_turn) = turn else {
            return Err(unsent(
                "earlier transactions on this connection did not finish in time",
            ));
        };
        let own = transactions.connection.get_or_init(|| {
            connection.sibling_on(ConnectionRuntime::Background(self.background.clone()))
        });
        for _ in 0..MAX_TRANSACTION_RETRIES {
            if let Some(answer) = self.run_once(own).await? {
                return Ok(answer);
            }
        }
        let error = unsent("the key changed during every try");
        Err(if self.transaction.may_split() {
            error.replied(ReplyScope::Request)
        } else {
            error
        })
    }

    async fn run_once(&self, connection: &Connection) -> Result<Option<Reply>> {
        let conn = connection.get(self.deadline).await?;
        // An empty transaction first. If the user may not use MULTI, its error comes before we write; otherwise the server
        // would run each write by itself, although the keys may have changed. Its EXEC ends the watch of keys by an earlier
        // transaction that was not completed.
        let mut reads = ["MULTI", "EXEC"].map(Request::new).to_vec();
        reads.push(self.transaction.watch());
        reads.extend(self.transaction.reads());
        let seen = match connection.settle_all(&conn, &reads, self.deadline).await {
            Ok(seen) => seen,
            Err(RequestError::Broken(why)) => return Err(unsent(why)),
            Err(RequestError::Server(server_error)) => return Err(server_error.error()),
        };
        let (preparations, seen) = seen.split_at(3);
        if preparations[0].is_ok() && preparations[1].is_err() {
            // MULTI was allowed and EXEC was not, so the connection is still inside the transaction.
            connection.retire(&conn);
        }
        for preparation in preparations {
            if let Err(server_error) = preparation {
                // Nothing was written, also if we do not know the error: a proxy or a single node of a cluster refuses to watch
                // keys of several slots.
                return Err(server_error.error().without_effect());
            }
        }
        let (writes, answer) = match self.transaction.decide(seen)? {
            TransactionStep::Answer(answer) => return Ok(Some(answer)),
            TransactionStep::Write(writes, answer) => (writes, answer),
        };
        let mut all = vec![Request::new("MULTI")];
        all.extend(writes);
        all.push(Request::new("EXEC"));
        let done = connection.settle_all(&conn, &all, self.deadline).await;
        let mut done = done.map_err(|failure| failure.error())?;
        let executed = done.pop();
        match executed {
            // A watched key has changed: nothing was written.
            Some(Ok(Reply::Nil)) => Ok(None),
            Some(Ok(Reply::List(said))) => answer(&said),
            Some(Ok(other)) => Err(unexpected(&other)),
            Some(Err(failure)) => Err(not_executed(&done, &failure)),
            None => Err(unanswered("an answer of nothing")),
        }
    }
}

/// The error of a transaction whose EXEC failed. If the server refused one of the commands before, the error of that command
/// says more than the error of EXEC.
fn not_executed(queued: &[CommandResult], failure: &ServerError) -> Error {
    let refused = queued.iter().find_map(|reply| reply.as_ref().err());
    let error = refused.unwrap_or(failure).error();
    // No command ran, also if we do not know why one was refused.
    if failure.aborts() {
        return error.without_effect();
    }
    match queued.first() {
        // MULTI was refused, although it was allowed before the reads. So the commands after it ran one by one.
        Some(Err(_)) => unanswered(error.detail().unwrap_or_default()),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::redis::topology::tests::endpoint_to;
    use crate::store::redis::wire::live_connection::peer::{in_time, request_of};
    use crate::store::redis::wire::tests::{HANG_UP, LIMIT, ScriptedServer, simulated};

    const NOTHING: &str = "*0\r\n";
    const CHANGED: &str = "*-1\r\n";
    const DONE: &str = "*1\r\n+OK\r\n";
    const FORBIDDEN: &str = "-NOPERM no permissions\r\n";

    /// Writes a key if it is free.
    struct WriteOnce {
        may_split: bool,
    }

    impl Transaction for WriteOnce {
        fn watch(&self) -> Request {
            request_of("WATCH k")
        }

        fn reads(&self) -> Vec<Request> {
            vec![request_of("GET k")]
        }

        fn may_split(&self) -> bool {
            self.may_split
        }

        fn decide(&self, seen: &[CommandResult]) -> Result<TransactionStep> {
            Ok(match seen {
                [Ok(Reply::Nil)] => TransactionStep::Write(
                    vec![request_of("SET k v")],
                    Box::new(|said: &[Reply]| Ok(Some(Reply::List(said.to_vec())))),
                ),
                [Ok(taken)] => TransactionStep::Answer(taken.clone()),
                other => panic!("{other:?}"),
            })
        }
    }

    async fn run(connection: &Connection, may_split: bool, asking: bool) -> Result<Reply> {
        let (background, _) = simulated();
        let deadline = connection.deadline();
        let job = TransactionJob {
            key: "k",
            transaction: Arc::new(WriteOnce { may_split }),
            deadline,
            background: &background,
        };
        assert_eq!((job.key(), job.deadline()), ("k", deadline));
        in_time(job.run(connection, asking)).await
    }

    /// A server where the key is free, which answers EXEC so.
    async fn server(executed: &[&str]) -> (ScriptedServer, Connection) {
        let server = ScriptedServer::start().await;
        server.answers("GET", &["$-1\r\n"]);
        server.answers("EXEC", executed);
        // Longer than all the pauses between retries on a busy machine.
        let (endpoint, _) = endpoint_to(server.address(), LIMIT * 5);
        let connection = Connection::new(endpoint, ConnectionRuntime::Caller);
        (server, connection)
    }

    #[tokio::test]
    async fn a_transaction_is_repeated_until_no_key_has_changed() {
        let done = Reply::List(vec![Reply::Text(b"OK".to_vec())]);
        for (executed, writes) in [
            (&[NOTHING, DONE][..], 1),
            (&[NOTHING, CHANGED, NOTHING, DONE][..], 2),
        ] {
            let (server, connection) = server(executed).await;
            let reply = run(&connection, false, false).await.unwrap();
            assert_eq!(reply, done);
            assert_eq!(server.heard("SET").len(), writes);
        }
        let (server, connection) = server(&[NOTHING]).await;
        server.answers("GET", &["+taken\r\n"]);
        let reply = run(&connection, false, false).await.unwrap();
        assert_eq!(reply, Reply::Text(b"taken".to_vec()));
        assert!(server.heard("SET").is_empty(), "it writes nothing");
    }

    /// Another transaction of its caller may succeed: the part without that key.
    #[tokio::test]
    async fn a_transaction_whose_key_changes_again_and_again_gives_up() {
        for (may_split, scope) in [(false, None), (true, Some(ReplyScope::Request))] {
            let executed = [NOTHING, CHANGED].repeat(MAX_TRANSACTION_RETRIES);
            let (server, connection) = server(&executed).await;
            let error = run(&connection, may_split, false).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert_eq!(error.reply_scope(), scope);
            assert_eq!(server.heard("WATCH").len(), MAX_TRANSACTION_RETRIES);
        }
    }

    /// The connection is still inside the transaction if the user may begin one and not execute it.
    #[tokio::test]
    async fn a_user_who_may_not_run_transactions_writes_nothing() {
        for (begun, executed, stays) in [
            (FORBIDDEN, "-ERR EXEC without MULTI\r\n", true),
            ("+OK\r\n", FORBIDDEN, false),
        ] {
            let (server, connection) = server(&[executed]).await;
            server.answers("MULTI", &[begun]);
            for _ in 0..2 {
                let error = run(&connection, false, false).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Refused);
            }
            assert!(server.heard("SET").is_empty());
            let used = server.connections("WATCH");
            assert_eq!(used[0] == used[1], stays, "{begun}");
        }
    }

    #[tokio::test]
    async fn a_transaction_is_in_doubt_only_once_its_writes_were_sent() {
        for (request, reply, kind) in [
            ("GET", HANG_UP, ErrorKind::Unavailable),
            ("SET", HANG_UP, ErrorKind::OutcomeUnknown),
            ("WATCH", "-ERR several slots\r\n", ErrorKind::Unavailable),
        ] {
            let (server, connection) = server(&[NOTHING]).await;
            server.answers(request, &[reply]);
            let error = run(&connection, false, false).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{request}");
        }
        let (_server, connection) = server(&[NOTHING, ":1\r\n"]).await;
        let error = run(&connection, false, false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    }

    #[tokio::test]
    async fn keys_of_a_slot_that_migrates_cannot_be_watched() {
        let (server, connection) = server(&[NOTHING]).await;
        let error = run(&connection, false, true).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(server.heard("WATCH").is_empty());
    }

    #[test]
    fn a_transaction_that_the_server_aborts_has_run_nothing() {
        let aborts = "EXECABORT Transaction discarded because of previous errors.";
        let strange = Some("ERR something new");
        let no_multi = "ERR EXEC without MULTI";
        for (multi, write, failure, kind) in [
            (None, None, aborts, ErrorKind::Unavailable),
            (None, strange, aborts, ErrorKind::Unavailable),
            (None, Some("NOPERM no"), aborts, ErrorKind::Refused),
            // MULTI was refused: the other commands ran at once.
            (strange, None, no_multi, ErrorKind::OutcomeUnknown),
            (Some("NOPERM no"), None, no_multi, ErrorKind::OutcomeUnknown),
            (None, None, "ERR something new", ErrorKind::OutcomeUnknown),
        ] {
            let said = |text: Option<&str>| match text {
                Some(text) => Err(ServerError::parse(text)),
                None => Ok(Reply::Nil),
            };
            let queued = [said(multi), said(write)];
            let error = not_executed(&queued, &ServerError::parse(failure));
            assert_eq!(error.kind(), kind, "{failure}");
        }
    }
}
