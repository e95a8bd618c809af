//! A connection that connects on first use and reconnects after a failure. The requests of all tasks are
//! multiplexed over it as a pipeline, so there is no connection pool.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row, SimpleQueryMessage, SimpleQueryRow};

use crate::engine::runtime::event::Flag;
use crate::error::Result;
use crate::store::connect_once::{ConnectOnce, ConnectionRuntime};
use crate::store::errors::{unexpected, unsent};
use crate::store::postgres::abandoned;
use crate::store::postgres::address::Address;
use crate::store::postgres::errors::RequestError;
use crate::store::postgres::named_row::NamedRow;
use crate::store::postgres::prepared::{LiveClient, NamedRequest, NamedStatement, Value};
use crate::store::{Background, BootInstant, Env, Liveness, Ticket, Timers};

/// A statement's parameter and its type. Without the type the driver would need another round trip.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Receives the payload of each notification. `None`: the connection has ended.
pub(crate) type NotificationHandler = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// A connection that connects on first use and reconnects after a failure. Clones share it.
#[derive(Clone)]
pub(crate) struct Connection(Arc<ConnectionInner>);

struct ConnectionInner {
    address: Arc<Address>,
    timers: Timers,
    background: Background,
    limit: Duration,
    once: ConnectOnce<LiveClient>,
    /// A session has refused a statement that was prepared, probably because a pooler is between. From then on all
    /// statements are sent in full.
    unnamed: AtomicBool,
}

/// Begins each text of several statements. The first statements wait for a row, and the later ones must see what others
/// have committed meanwhile. With another default of the server, the database or the role they would not see it, and two
/// holders could get the same permit. A setting of the session would not do: behind a pooler it is the setting of others
/// too.
const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ";

impl Connection {
    pub(crate) fn new(address: Arc<Address>, env: &Env) -> Self {
        Self(Arc::new(ConnectionInner {
            unnamed: AtomicBool::new(address.unnamed),
            address,
            timers: env.timers.clone(),
            background: env.background.clone(),
            limit: env.response_timeout,
            once: ConnectOnce::new(),
        }))
    }

    pub(crate) fn limit(&self) -> Duration {
        self.0.limit
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.0.timers
    }

    pub(crate) fn background(&self) -> &Background {
        &self.0.background
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        self.0.timers.now() + self.0.limit
    }

    /// Lets the connection go. A later request opens another one.
    pub(crate) fn close(&self) {
        self.0.once.close();
    }

    async fn get(&self, deadline: BootInstant) -> Result<Arc<LiveClient>, RequestError> {
        if let Some(client) = self.0.once.live() {
            return Ok(client);
        }
        let ConnectionInner {
            address,
            timers,
            background,
            limit,
            once,
            ..
        } = &*self.0;
        let open = || {
            let (address, background) = (Arc::clone(address), background.clone());
            let (timers, limit) = (timers.clone(), *limit);
            let given_up = Arc::<Flag>::default();
            async move {
                let ends = Arc::clone(&given_up);
                let dialled = dial(Arc::clone(&address), &background, None, ends);
                match timers.limit(limit, dialled).await {
                    Some(Ok(client)) => Ok(LiveClient::new(client, given_up)),
                    Some(Err(failure)) => Err(failure.error()),
                    None => Err(unsent(format_args!("{address}: no connection in time"))),
                }
            }
        };
        let home = ConnectionRuntime::Background(background.clone());
        let connecting = once.connect(timers, deadline, &home, address, open);
        Box::pin(connecting).await.map_err(RequestError::Classified)
    }

    /// Whether a request need not wait for a connect.
    pub(crate) fn is_open(&self) -> bool {
        self.0.once.live().is_some()
    }

    /// The connection that is open. Another one may lead to another server.
    pub(crate) fn current(&self) -> Weak<LiveClient> {
        let live = self.0.once.live();
        live.map_or_else(Weak::new, |live| Arc::downgrade(&live))
    }

    /// Opens it for later requests, if the server admits it.
    pub(crate) async fn open(&self) {
        // The next request tries again.
        let _ = self.get(self.deadline()).await;
    }

    /// Opens a separate connection, which runs on the steward's thread. It ends when the returned client is dropped.
    pub(crate) async fn connect(
        &self,
        ear: Option<NotificationHandler>,
    ) -> Result<Client, RequestError> {
        let (address, never) = (Arc::clone(&self.0.address), Arc::default());
        dial(address, &self.0.background, ear, never).await
    }

    /// Runs one statement, in one round trip, within the response timeout.
    pub(crate) async fn ask(
        &self,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, RequestError> {
        let deadline = self.deadline();
        let (live, permit) = self.begin(&Liveness::default(), deadline).await?;
        // The driver's named statements have numbers. Behind a pooler the next request may run in a session in which
        // another client gave that number to another statement.
        let query = live.client.query_typed(statement, params);
        let answer = self.settle(&live, query, deadline).await;
        permit.answered();
        answer
    }

    /// As [`ask`](Self::ask), for a statement that the server parses once for each connection. Returns its row. The
    /// statement is not sent if its caller has left.
    pub(crate) async fn ask_named(
        &self,
        liveness: &Liveness,
        statement: &NamedStatement,
        params: &[Value<'_>],
        deadline: BootInstant,
    ) -> Result<Option<NamedRow>, RequestError> {
        let (live, permit) = self.begin(liveness, deadline).await?;
        let unnamed = &self.0.unnamed;
        let query = async {
            if unnamed.load(Ordering::Relaxed) {
                return statement.run_unnamed(&live, params).await;
            }
            let now = self.0.timers.now();
            statement
                .run(&live, params, NamedRequest { liveness, now })
                .await
        };
        let answer = self.settle(&live, query, deadline).await;
        permit.answered();
        let answer = answer?;
        if answer.was_refused && !unnamed.swap(true, Ordering::Relaxed) {
            tracing::debug!(
                "a session has forgotten a prepared statement; from now on they are sent in full"
            );
        }
        if answer.has_left {
            return Err(nobody_waits());
        }
        Ok(answer.row)
    }

    /// Runs a statement on the name and the owner of a ticket. Returns its row.
    pub(crate) async fn ask_named_for_ticket(
        &self,
        ticket: &Ticket,
        statement: &NamedStatement,
    ) -> Result<Option<NamedRow>, RequestError> {
        let params = [
            Value::Text(ticket.name.as_str()),
            Value::Text(ticket.owner.text()),
        ];
        let somebody = Liveness::default();
        self.ask_named(&somebody, statement, &params, self.deadline())
            .await
    }

    /// Runs statements without parameters or results as one transaction.
    pub(crate) async fn run(&self, statements: &str) -> Result<(), RequestError> {
        let deadline = self.deadline();
        let (live, permit) = self.begin(&Liveness::default(), deadline).await?;
        let done = live.client.batch_execute(statements);
        let done = self.settle(&live, done, deadline).await;
        permit.answered();
        done
    }

    /// Runs a text of several statements as one transaction, in one round trip within the response timeout. Returns the
    /// last row. The text is not sent if its caller has left.
    pub(crate) async fn ask_text(
        &self,
        liveness: &Liveness,
        text: &str,
        deadline: BootInstant,
    ) -> Result<TextAnswer, RequestError> {
        let (live, permit) = self.begin(liveness, deadline).await?;
        let text = format!("{READ_COMMITTED}{text}");
        let query = live.client.simple_query(&text);
        let answer = self.settle(&live, query, deadline).await;
        permit.answered();
        let rows = answer?.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(TextAnswer(rows.last()))
    }

    /// Connects, and waits for a free slot among the statements in flight. Fails if the caller has left.
    async fn begin(
        &self,
        liveness: &Liveness,
        deadline: BootInstant,
    ) -> Result<(Arc<LiveClient>, StatementPermit), RequestError> {
        loop {
            let live = self.get(deadline).await?;
            let free = Arc::clone(&live.in_flight).acquire_owned();
            let permit = match self.0.timers.until(deadline, free).await {
                Some(Ok(permit)) => permit,
                // The connection was given up meanwhile. The next one has slots of its own.
                Some(Err(_)) => continue,
                None => {
                    return Err(RequestError::Unsent(format!(
                        "the server did not come to it within {:?}",
                        self.0.limit
                    )));
                }
            };
            if liveness.has_left() {
                return Err(nobody_waits());
            }
            let permit = StatementPermit {
                live: Arc::clone(&live),
                connection: self.clone(),
                permit: Some(permit),
            };
            return Ok((live, permit));
        }
    }

    async fn settle<T>(
        &self,
        live: &Arc<LiveClient>,
        asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
        deadline: BootInstant,
    ) -> Result<T, RequestError> {
        // Pinned here: passed by value, the future would be stored twice in the caller's future.
        let asked = std::pin::pin!(asked);
        let answer = match self.0.timers.until(deadline, asked).await {
            Some(answer) => answer.map_err(|error| RequestError::of(&error)),
            None => Err(RequestError::Broken(format!(
                "no answer within {:?}",
                self.0.limit
            ))),
        };
        // After a timeout the connection may be half-open, and TCP takes minutes to notice. So we reconnect.
        if answer.as_ref().is_err_and(RequestError::ends_connection) {
            if self.0.once.retire(live) {
                let (address, timers) = (Arc::clone(&self.0.address), self.0.timers.clone());
                let ends = abandoned::end(Arc::clone(live), address, timers, self.0.limit);
                self.0.background.spawn(ends);
            }
            live.in_flight.close();
        }
        answer
    }
}

/// Opens a connection, which runs on the steward's thread. It ends when the returned client is dropped and every statement is
/// answered, or when it is given up.
async fn dial(
    address: Arc<Address>,
    background: &Background,
    ear: Option<NotificationHandler>,
    given_up: Arc<Flag>,
) -> Result<Client, RequestError> {
    let (mut answer, answered) = oneshot::channel();
    background.spawn(async move {
        let dialled = tokio::select! {
            dialled = address.dial() => dialled,
            // The caller left. A server that does not answer could block this task for minutes.
            () = answer.closed() => return,
        };
        let (client, mut connection) = match dialled {
            Ok(both) => both,
            Err(failure) => {
                // A send error means that the caller left.
                let _ = answer.send(Err(failure));
                return;
            }
        };
        if answer.send(Ok(client)).is_err() {
            return;
        }
        let mut over = std::pin::pin!(given_up.happened());
        loop {
            let message = tokio::select! {
                biased;
                message = std::future::poll_fn(|cx| connection.poll_message(cx)) => message,
                () = &mut over => break,
            };
            match message {
                Some(Ok(AsyncMessage::Notification(said))) => {
                    if let Some(ear) = &ear {
                        ear(Some(said.payload()));
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break,
            }
        }
        if let Some(ear) = &ear {
            ear(None);
        }
    });
    match answered.await {
        Ok(client) => client,
        Err(_) => Err(RequestError::Unsent("the client is closing".to_owned())),
    }
}

fn nobody_waits() -> RequestError {
    RequestError::Unsent("nobody waits for it any more".to_owned())
}

/// A row of texts.
pub(crate) struct TextAnswer(Option<SimpleQueryRow>);

impl TextAnswer {
    pub(crate) fn text(&self, column: usize) -> Result<&str> {
        let text = self.0.as_ref().and_then(|row| row.try_get(column).ok()?);
        text.ok_or_else(|| unexpected("a row without an expected column"))
    }

    pub(crate) fn number(&self, column: usize) -> Result<u64> {
        let text = self.text(column)?;
        let number = text.parse();
        number.map_err(|_| unexpected(format_args!("{text:?} is no number")))
    }
}

/// The slot of a statement in flight. It stays taken until the server has finished the statement, even when the caller
/// leaves. Otherwise callers that come and go would fill the connection with abandoned statements.
struct StatementPermit {
    live: Arc<LiveClient>,
    connection: Connection,
    permit: Option<OwnedSemaphorePermit>,
}

impl StatementPermit {
    fn answered(mut self) {
        self.permit.take();
    }
}

impl Drop for StatementPermit {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let (live, connection) = (Arc::clone(&self.live), self.connection.clone());
            self.connection.background().spawn(async move {
                // The server answers this after everything sent before it. Without an answer the connection is given up, as
                // if the caller still waited. Otherwise calls that are dropped could take all slots of a half-open one.
                let done = live.client.batch_execute("");
                let deadline = connection.deadline();
                let _ = connection.settle(&live, done, deadline).await;
                drop(permit);
            });
        }
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.address.fmt(f)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
