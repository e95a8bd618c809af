//! A reconnecting connection: connects on first use, and reconnects after a failure.
//!
//! One background task owns the socket, so the socket never belongs to a caller's runtime. Callers send their requests
//! to the task through a channel. The task pipelines them: it sends a request without waiting for earlier answers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::Credentials;
use crate::error::{Error, Result};
use crate::store::credentials::given_by;
use crate::store::memcached::address::Address;
use crate::store::memcached::errors::{unanswered, unsent};
use crate::store::memcached::handshake;
use crate::store::memcached::live_connection::{ConnectionId, LiveConnection, PendingBatch};
use crate::store::memcached::wire::{Command, Reply};
use crate::store::{Background, BootInstant, Timers, tcp};

/// A reconnecting connection to the server. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub(crate) struct Connection {
    orders: mpsc::UnboundedSender<ConnectionMessage>,
    pub(crate) endpoint: Arc<Endpoint>,
    background: Background,
    /// The number of the next request.
    numbers: Arc<AtomicU64>,
}

/// Endpoint: address, login and timeout.
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    pub(crate) timers: Timers,
    /// Bounds a connect with its handshake, a write, and a request as a whole.
    pub(crate) limit: Duration,
    /// If set, called at each connect, and replaces the login of the URL. A password without a user is for the user of the
    /// URL.
    pub(crate) credentials: Option<Arc<dyn Fn() -> Credentials + Send + Sync>>,
}

enum ConnectionMessage {
    Order(CommandBatch),
    /// A request in flight has timed out: the connection may be half-open.
    Overdue(u64),
    Close,
}

/// One request: commands that are sent in one piece, and the sender for their answers.
struct CommandBatch {
    number: u64,
    commands: Vec<Command>,
    /// If set, the request is only sent on this connection.
    only_on: Option<ConnectionId>,
    /// Shared with the caller: decides whether the task sends the request or the caller gives it up.
    stage: Arc<AtomicU8>,
    answer: oneshot::Sender<Result<(Vec<Reply>, ConnectionId)>>,
}

/// Stages of a request. From `WAITING` it goes to exactly one of the other two.
const WAITING: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

/// A caller that waits for its answer. If it leaves before its deadline, its request is not sent any more, or the answer is
/// still expected until the deadline: the connection may be half-open, and nobody else might wait long enough to notice.
struct OverdueOnDrop<'a> {
    connection: &'a Connection,
    number: u64,
    stage: Arc<AtomicU8>,
    deadline: BootInstant,
    /// It has an answer, or its deadline has passed.
    is_done: bool,
}

impl OverdueOnDrop<'_> {
    /// Either we give the request up before the task sends it, or it counts as sent: never both.
    fn gives_up(&self) -> bool {
        self.stage
            .compare_exchange(WAITING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }
}

impl Drop for OverdueOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_done || self.gives_up() {
            return;
        }
        let Connection {
            orders,
            endpoint,
            background,
            ..
        } = self.connection;
        // Weak: the task of the connection ends when the last user of the connection is gone.
        let (orders, number) = (orders.downgrade(), self.number);
        let deadline = endpoint.timers.at(self.deadline);
        background.spawn(async move {
            deadline.await;
            if let Some(orders) = orders.upgrade() {
                // An error means that the connection was closed.
                let _ = orders.send(ConnectionMessage::Overdue(number));
            }
        });
    }
}

impl Connection {
    pub(crate) fn new(endpoint: Arc<Endpoint>, background: &Background) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        background.spawn(run(Arc::clone(&endpoint), inbox));
        Self {
            orders,
            endpoint,
            background: background.clone(),
            numbers: Arc::default(),
        }
    }

    /// The deadline of a request that starts now.
    pub(crate) fn deadline(&self) -> BootInstant {
        self.endpoint.timers.now() + self.endpoint.limit
    }

    /// Sends commands in one piece and waits for their answers until the deadline. With `only_on`, sends them on that
    /// connection or not at all.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the commands were certainly not sent, `OutcomeUnknown` if they may have been.
    pub(crate) async fn ask(
        &self,
        commands: Vec<Command>,
        only_on: Option<ConnectionId>,
        deadline: BootInstant,
    ) -> Result<(Vec<Reply>, ConnectionId)> {
        let (answer, answered) = oneshot::channel();
        let stage: Arc<AtomicU8> = Arc::default();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let order = CommandBatch {
            number,
            commands,
            only_on,
            stage: Arc::clone(&stage),
            answer,
        };
        if self.orders.send(ConnectionMessage::Order(order)).is_err() {
            return Err(unsent(format_args!(
                "{}: the connection was closed",
                self.endpoint.address
            )));
        }
        let mut caller = OverdueOnDrop {
            connection: self,
            number,
            stage,
            deadline,
            is_done: false,
        };
        let answer = self.endpoint.timers.until(deadline, answered).await;
        caller.is_done = true;
        match answer {
            Some(Ok(answer)) => answer,
            // The background task has ended, so nobody knows whether the request was sent.
            Some(Err(_)) => Err(unanswered("the client is closing")),
            None => {
                let why = format!(
                    "{}: no answer within {:?}",
                    self.endpoint.address, self.endpoint.limit
                );
                if caller.gives_up() {
                    return Err(unsent(why));
                }
                // An error means that the background task has ended already.
                let _ = self.orders.send(ConnectionMessage::Overdue(number));
                Err(unanswered(why))
            }
        }
    }

    /// As [`ask`](Self::ask), for one command.
    pub(crate) async fn ask_one(
        &self,
        command: Command,
        only_on: Option<ConnectionId>,
        deadline: BootInstant,
    ) -> Result<(Reply, ConnectionId)> {
        let (mut replies, connection_id) = self.ask(vec![command], only_on, deadline).await?;
        match replies.pop() {
            Some(reply) => Ok((reply, connection_id)),
            None => Err(unanswered("an answer of nothing")),
        }
    }

    pub(crate) fn close(&self) {
        // An error means that it is closed already.
        let _ = self.orders.send(ConnectionMessage::Close);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.endpoint.address)
    }
}

/// The background task: connects, sends requests and distributes answers, until it is closed.
async fn run(endpoint: Arc<Endpoint>, mut inbox: mpsc::UnboundedReceiver<ConnectionMessage>) {
    let mut wire: Option<LiveConnection> = None;
    let mut made = 0;
    loop {
        let message = match &mut wire {
            None => inbox.recv().await,
            Some(standing) => tokio::select! {
                // After a freeze a reply may lie there together with the word that it is overdue: the reply counts.
                biased;
                why = standing.hear() => {
                    standing.fail(&format!("{}: {why}", endpoint.address));
                    wire = None;
                    continue;
                }
                message = inbox.recv() => message,
            },
        };
        match message {
            None | Some(ConnectionMessage::Close) => return,
            Some(ConnectionMessage::Overdue(number)) => {
                if let Some(standing) = wire.as_mut().filter(|wire| wire.waits_for(number)) {
                    standing.fail("an earlier request was not answered in time");
                    wire = None;
                }
            }
            Some(ConnectionMessage::Order(order)) => {
                // Do not connect for a request that nobody waits for.
                if order.stage.load(Ordering::SeqCst) == GIVEN_UP || order.answer.is_closed() {
                    continue;
                }
                let standing = wire.as_ref().map(|wire| wire.connection_id);
                if order.only_on.is_some() && order.only_on != standing {
                    order.refuse(unsent("the connection of this request was closed"));
                    continue;
                }
                if wire.is_none() {
                    made += 1;
                    match endpoint.enter(ConnectionId(made)).await {
                        Ok(new) => wire = Some(new),
                        Err(error) => {
                            order.refuse(error);
                            continue;
                        }
                    }
                }
                if let Some(standing) = &mut wire
                    && let Err(why) = order.send(&endpoint, standing).await
                {
                    standing.fail(&format!("{}: {why}", endpoint.address));
                    wire = None;
                }
            }
        }
    }
}

impl CommandBatch {
    /// Sends the request, unless its caller has given it up.
    async fn send(self, endpoint: &Endpoint, wire: &mut LiveConnection) -> Result<(), String> {
        let sent = self
            .stage
            .compare_exchange(WAITING, SENT, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if !sent {
            return Ok(());
        }
        let commands = self.commands.iter();
        let bytes: Vec<u8> = commands.flat_map(|command| command.bytes.clone()).collect();
        let open = PendingBatch {
            number: self.number,
            shapes: self.commands.iter().map(|command| command.shape).collect(),
            replies: Vec::new(),
            answer: self.answer,
        };
        let sending = wire.send(&bytes, open);
        match endpoint.timers.limit(endpoint.limit, sending).await {
            Some(done) => done,
            None => Err("it takes nothing".to_owned()),
        }
    }

    fn refuse(self, error: Error) {
        // An error means that the caller has given up.
        let _ = self.answer.send(Err(error));
    }
}

impl Endpoint {
    /// The login for a new connection.
    async fn login(&self) -> Result<Option<(String, String)>> {
        let Address { user, password, .. } = &self.address;
        let Some(source) = &self.credentials else {
            return Ok(user.clone().zip(password.clone()));
        };
        let given = given_by(source, user.as_deref()).await?;
        Ok(given.user.zip(given.password))
    }

    /// Connects and performs the handshake, within the timeout.
    async fn enter(&self, connection_id: ConnectionId) -> Result<LiveConnection> {
        let entering = async {
            let stream = tcp::connect(&self.address.host, self.address.port, &self.timers)
                .await
                .map_err(|e| unsent(format_args!("{}: {e}", self.address)))?;
            // Disable Nagle's algorithm: commands are small, and buffering would only delay them.
            stream
                .set_nodelay(true)
                .map_err(|e| unsent(format_args!("{}: {e}", self.address)))?;
            let mut wire = LiveConnection::new(stream, connection_id);
            handshake::exchange(&mut wire, &self.address, self.login().await?).await?;
            wire.refuse_surplus()
                .map_err(|why| unsent(format_args!("{}: {why}", self.address)))?;
            Ok(wire)
        };
        self.timers
            .limit(self.limit, entering)
            .await
            .unwrap_or_else(|| {
                Err(unsent(format_args!(
                    "{}: no connection within {:?}",
                    self.address, self.limit
                )))
            })
    }
}

#[cfg(test)]
mod tests;
