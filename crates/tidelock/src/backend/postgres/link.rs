//! A connection that is made when it is needed, and made anew when it has died.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row};

use super::place::Place;
use super::trouble::Trouble;
use crate::backend::{Asker, Background, Env, Moment, Timers};
use crate::error::Result;

/// A value for a statement, with its type: so the server need not be asked for it first.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// Who hears what the server says unasked. `None`: the connection has ended.
pub(super) type Ear = Box<dyn Fn(Option<&str>) + Send + Sync>;

/// A connection that is made when it is needed and made anew when it has died.
#[derive(Clone)]
pub(super) struct Link(Arc<Inner>);

struct Inner {
    place: Arc<Place>,
    timers: Timers,
    background: Background,
    limit: Duration,
    live: RwLock<Option<Arc<Client>>>,
    /// Whoever connects has it; the others wait for what comes of it.
    turn: tokio::sync::Mutex<()>,
    /// The server runs one after the other. What still waits here costs nothing if its caller leaves.
    places: Arc<Semaphore>,
}

/// How many statements are with the server at a time: enough that it never waits for the next.
const AT_ONCE: usize = 16;

impl Link {
    pub(super) fn new(place: Arc<Place>, env: &Env) -> Self {
        Self(Arc::new(Inner {
            place,
            timers: env.timers.clone(),
            background: env.background.clone(),
            limit: env.response_timeout,
            live: RwLock::default(),
            turn: tokio::sync::Mutex::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }))
    }

    pub(super) fn limit(&self) -> Duration {
        self.0.limit
    }

    pub(super) fn timers(&self) -> &Timers {
        &self.0.timers
    }

    pub(super) fn background(&self) -> &Background {
        &self.0.background
    }

    pub(super) fn deadline(&self) -> Moment {
        self.0.timers.now() + self.0.limit
    }

    fn live(&self) -> Option<Arc<Client>> {
        let live = self.0.live.read().unwrap_or_else(PoisonError::into_inner);
        live.as_ref().filter(|client| !client.is_closed()).cloned()
    }

    fn put(&self, client: Option<Arc<Client>>) {
        *self.0.live.write().unwrap_or_else(PoisonError::into_inner) = client;
    }

    /// The next request connects anew; those under way keep this one until they are done.
    fn retire(&self, client: &Arc<Client>) {
        let mut live = self.0.live.write().unwrap_or_else(PoisonError::into_inner);
        if live.as_ref().is_some_and(|up| Arc::ptr_eq(up, client)) {
            *live = None;
        }
    }

    pub(super) fn close(&self) {
        self.put(None);
    }

    async fn get(&self, deadline: Moment) -> Result<Arc<Client>, Trouble> {
        if let Some(client) = self.live() {
            return Ok(client);
        }
        let connect = async {
            let _turn = self.0.turn.lock().await;
            if let Some(client) = self.live() {
                return Ok(client);
            }
            let client = Arc::new(self.connect(None).await?);
            self.put(Some(Arc::clone(&client)));
            Ok(client)
        };
        let connected = self.0.timers.until(deadline, connect).await;
        connected.unwrap_or_else(|| {
            Err(Trouble::Unsent(format!(
                "{}: no connection in time",
                self.0.place
            )))
        })
    }

    /// A connection of its own, on the steward's thread. It ends with the client that is returned.
    pub(super) async fn connect(&self, ear: Option<Ear>) -> Result<Client, Trouble> {
        let (mut answer, answered) = oneshot::channel();
        let place = Arc::clone(&self.0.place);
        self.0.background.spawn(async move {
            let dialled = tokio::select! {
                dialled = place.dial() => dialled,
                // Nobody waits any more, and a server that does not answer may hang for minutes.
                () = answer.closed() => return,
            };
            let (client, mut connection) = match dialled {
                Ok(both) => both,
                Err(trouble) => {
                    // An error means that nobody waits any more.
                    let _ = answer.send(Err(trouble));
                    return;
                }
            };
            if answer.send(Ok(client)).is_err() {
                return;
            }
            loop {
                match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
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
            Err(_) => Err(Trouble::Unsent("the client is going".to_owned())),
        }
    }

    /// One statement, one trip, answered within the response timeout.
    pub(super) async fn ask(
        &self,
        statement: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Trouble> {
        let somebody = Asker::default();
        self.ask_for(&somebody, statement, params, self.deadline())
            .await
    }

    /// As [`ask`](Self::ask), answered before the deadline, and not sent if nobody waits for it any more.
    pub(super) async fn ask_for(
        &self,
        asker: &Asker,
        statement: &str,
        params: &[Param<'_>],
        deadline: Moment,
    ) -> Result<Vec<Row>, Trouble> {
        let client = self.get(deadline).await?;
        let place = self.place(&client, deadline).await?;
        if asker.has_left() {
            place.answered();
            return Err(Trouble::Unsent("nobody waits for it any more".to_owned()));
        }
        // Without a name for the statement: behind a pooler the next one may be somebody else's session.
        let query = client.query_typed(statement, params);
        let answer = self.settle(&client, query, deadline).await;
        place.answered();
        answer
    }

    /// Statements without values or answers, as one transaction.
    pub(super) async fn run(&self, statements: &str) -> Result<(), Trouble> {
        let deadline = self.deadline();
        let client = self.get(deadline).await?;
        let done = client.batch_execute(statements);
        self.settle(&client, done, deadline).await
    }

    /// A place among those with the server.
    async fn place(&self, client: &Arc<Client>, deadline: Moment) -> Result<Seat, Trouble> {
        let free = Arc::clone(&self.0.places).acquire_owned();
        let Some(Ok(permit)) = self.0.timers.until(deadline, free).await else {
            return Err(Trouble::Unsent(format!(
                "the server did not come to it within {:?}",
                self.0.limit
            )));
        };
        Ok(Seat {
            client: Arc::clone(client),
            background: self.0.background.clone(),
            permit: Some(permit),
        })
    }

    async fn settle<T>(
        &self,
        client: &Arc<Client>,
        asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
        deadline: Moment,
    ) -> Result<T, Trouble> {
        // Pinned here: passed on by value it would lie in the caller's future twice.
        let asked = std::pin::pin!(asked);
        let answer = match self.0.timers.until(deadline, asked).await {
            Some(answer) => answer.map_err(|error| Trouble::of(&error)),
            None => Err(Trouble::Broken(format!(
                "no answer within {:?}",
                self.0.limit
            ))),
        };
        // After a silence the connection may be half-open, and TCP would take minutes to find out.
        if answer.as_ref().is_err_and(Trouble::ends_connection) {
            self.retire(client);
        }
        answer
    }
}

/// A place among the statements that are with the server. Kept until it has come to the end of this one, also when its
/// caller has left: else those who come and go would fill the connection with what nobody waits for.
struct Seat {
    client: Arc<Client>,
    background: Background,
    permit: Option<OwnedSemaphorePermit>,
}

impl Seat {
    fn answered(mut self) {
        self.permit.take();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let client = Arc::clone(&self.client);
            self.background.spawn(async move {
                // Answered after all that was sent before it. An error means that the connection is gone.
                let _ = client.batch_execute("").await;
                drop(permit);
            });
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.place.fmt(f)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
