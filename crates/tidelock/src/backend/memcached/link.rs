//! A connection that is made when it is needed and made anew when it has died, in the hands of one background task: its
//! sockets never belong to a caller's runtime.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::errors::{unanswered, unsent};
use super::greeting;
use super::place::Place;
use super::stream::{Open, Wire};
use super::wire::{Command, Reply};
use crate::Credentials;
use crate::backend::{Background, Moment, Timers};
use crate::core::rt;
use crate::error::{Error, Result};

/// Which connection an answer came on. What is compared by number makes sense on that one only: a server that was
/// started anew counts from one again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line(u64);

/// A way to the server. Cheap to clone; the clones share one connection.
#[derive(Clone)]
pub(super) struct Link {
    orders: mpsc::UnboundedSender<Message>,
    pub(super) gate: Arc<Gate>,
    numbers: Arc<AtomicU64>,
}

/// Where the server is, and how long it is waited for.
pub(super) struct Gate {
    pub(super) place: Place,
    pub(super) timers: Timers,
    pub(super) limit: Duration,
    /// Asked instead of the place, if there is one.
    pub(super) credentials: Option<Arc<dyn Fn() -> Credentials + Send + Sync>>,
}

enum Message {
    Order(Order),
    /// Nobody waits for this one any more, although it was sent: the connection may be dead without a word.
    Overdue(u64),
    Close,
}

/// Commands that go in one piece, and who waits for their answers.
struct Order {
    number: u64,
    commands: Vec<Command>,
    /// Not on any other connection.
    only_on: Option<Line>,
    stage: Arc<AtomicU8>,
    answer: oneshot::Sender<Result<(Vec<Reply>, Line)>>,
}

const WAITING: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Link {
    pub(super) fn new(gate: Arc<Gate>, background: &Background) -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        background.spawn(run(Arc::clone(&gate), inbox));
        Self {
            orders,
            gate,
            numbers: Arc::default(),
        }
    }

    pub(super) fn deadline(&self) -> Moment {
        self.gate.timers.now() + self.gate.limit
    }

    /// Has commands answered before the deadline, sent in one piece. With `only_on`, on that connection or not at all.
    pub(super) async fn ask(
        &self,
        commands: Vec<Command>,
        only_on: Option<Line>,
        deadline: Moment,
    ) -> Result<(Vec<Reply>, Line)> {
        let (answer, answered) = oneshot::channel();
        let stage: Arc<AtomicU8> = Arc::default();
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let order = Order {
            number,
            commands,
            only_on,
            stage: Arc::clone(&stage),
            answer,
        };
        if self.orders.send(Message::Order(order)).is_err() {
            return Err(unsent(format_args!(
                "{}: the connection was closed",
                self.gate.place
            )));
        }
        match self.gate.timers.until(deadline, answered).await {
            Some(Ok(answer)) => answer,
            // The background has gone, and with it who would know whether it was sent.
            Some(Err(_)) => Err(unanswered("the client is closing")),
            None => {
                let why = format!(
                    "{}: no answer within {:?}",
                    self.gate.place, self.gate.limit
                );
                let withdrawn = stage
                    .compare_exchange(WAITING, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok();
                if withdrawn {
                    return Err(unsent(why));
                }
                // An error means that the connection has ended anyhow.
                let _ = self.orders.send(Message::Overdue(number));
                Err(unanswered(why))
            }
        }
    }

    /// As [`ask`](Self::ask), one command.
    pub(super) async fn ask_one(
        &self,
        command: Command,
        only_on: Option<Line>,
        deadline: Moment,
    ) -> Result<(Reply, Line)> {
        let (mut replies, line) = self.ask(vec![command], only_on, deadline).await?;
        match replies.pop() {
            Some(reply) => Ok((reply, line)),
            None => Err(unanswered("an answer of nothing")),
        }
    }

    pub(super) fn close(&self) {
        // An error means that it is closed.
        let _ = self.orders.send(Message::Close);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.gate.place)
    }
}

async fn run(gate: Arc<Gate>, mut inbox: mpsc::UnboundedReceiver<Message>) {
    let mut wire: Option<Wire> = None;
    let mut made = 0;
    loop {
        let message = match &mut wire {
            None => inbox.recv().await,
            Some(standing) => tokio::select! {
                why = standing.hear() => {
                    standing.fail(&format!("{}: {why}", gate.place));
                    wire = None;
                    continue;
                }
                message = inbox.recv() => message,
            },
        };
        match message {
            None | Some(Message::Close) => return,
            Some(Message::Overdue(number)) => {
                if let Some(standing) = wire.as_mut().filter(|wire| wire.waits_for(number)) {
                    standing.fail("an earlier request was not answered in time");
                    wire = None;
                }
            }
            Some(Message::Order(order)) => {
                if order.stage.load(Ordering::SeqCst) == GIVEN_UP || order.answer.is_closed() {
                    continue;
                }
                let standing = wire.as_ref().map(|wire| wire.line);
                if order.only_on.is_some() && order.only_on != standing {
                    order.refuse(unsent("the connection it belongs to has gone"));
                    continue;
                }
                if wire.is_none() {
                    made += 1;
                    match gate.enter(Line(made)).await {
                        Ok(new) => wire = Some(new),
                        Err(error) => {
                            order.refuse(error);
                            continue;
                        }
                    }
                }
                if let Some(standing) = &mut wire
                    && let Err(why) = order.send(&gate, standing).await
                {
                    standing.fail(&format!("{}: {why}", gate.place));
                    wire = None;
                }
            }
        }
    }
}

impl Order {
    /// Sends it, unless its caller has given it up.
    async fn send(self, gate: &Gate, wire: &mut Wire) -> Result<(), String> {
        let sent = self
            .stage
            .compare_exchange(WAITING, SENT, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if !sent {
            return Ok(());
        }
        let commands = self.commands.iter();
        let bytes: Vec<u8> = commands.flat_map(|command| command.bytes.clone()).collect();
        let open = Open {
            number: self.number,
            shapes: self.commands.iter().map(|command| command.shape).collect(),
            replies: Vec::new(),
            answer: self.answer,
        };
        let sending = wire.send(&bytes, open);
        match gate.timers.limit(gate.limit, sending).await {
            Some(done) => done,
            None => Err("it takes nothing".to_owned()),
        }
    }

    fn refuse(self, error: Error) {
        // An error means that nobody waits any more.
        let _ = self.answer.send(Err(error));
    }
}

impl Gate {
    /// Asked for at each connect: passwords are rotated while clients run. On another thread: a source may read a file or
    /// ask a server, and this one is the steward's.
    async fn login(&self) -> Result<Option<(String, String)>> {
        let Some(ask) = self.credentials.clone() else {
            return Ok(self.place.login.clone());
        };
        let given = rt::blocking(move || ask())
            .await
            .ok_or_else(|| unsent("the source of the credentials panicked"))?;
        Ok(given.user.zip(given.password))
    }

    /// Connects and introduces us, within the limit.
    async fn enter(&self, line: Line) -> Result<Wire> {
        let entering = async {
            let address = (self.place.host.as_str(), self.place.port);
            let stream = TcpStream::connect(address)
                .await
                .map_err(|e| unsent(format_args!("{}: {e}", self.place)))?;
            // Commands are small: waiting for more to send would only delay them.
            stream
                .set_nodelay(true)
                .map_err(|e| unsent(format_args!("{}: {e}", self.place)))?;
            let mut wire = Wire::new(stream, line);
            greeting::exchange(&mut wire, &self.place, self.login().await?).await?;
            Ok(wire)
        };
        self.timers
            .limit(self.limit, entering)
            .await
            .unwrap_or_else(|| {
                Err(unsent(format_args!(
                    "{}: no connection within {:?}",
                    self.place, self.limit
                )))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Clock;
    use crate::error::ErrorKind;

    /// A server that greets, answers one command with that, and hangs up.
    async fn serve(listener: &tokio::net::TcpListener, answer: &[u8]) -> Vec<u8> {
        let (peer, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        for answer in [&b"VERSION 1.6.0\r\n"[..], b"END\r\n", answer] {
            let mut bytes = [0; 1024];
            let count = loop {
                peer.readable().await.unwrap();
                match peer.try_read(&mut bytes) {
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                    read => break read.unwrap(),
                }
            };
            asked = bytes[..count].to_vec();
            peer.writable().await.unwrap();
            assert_eq!(peer.try_write(answer).unwrap(), answer.len());
        }
        asked
    }

    #[tokio::test]
    async fn what_was_read_on_one_connection_is_never_compared_on_another() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("memcached://{}", listener.local_addr().unwrap());
        let (background, stop) = Background::start(Clock::Boot).unwrap();
        let timers = Timers::new(Clock::Boot);
        background.spawn(timers.clone().drive());
        let gate = Gate {
            place: Place::parse(&url).unwrap(),
            timers,
            limit: Duration::from_secs(5),
            credentials: None,
        };
        let link = Link::new(Arc::new(gate), &background);
        let get = Command::get("a");
        let (served, found) = tokio::join!(
            serve(&listener, b"VA 1 c1 t9\r\nx\r\n"),
            link.ask_one(get.clone(), None, link.deadline())
        );
        assert_eq!(served, get.bytes);
        let (_, first) = found.unwrap();
        // The server has been started anew, and its first item has the same number.
        let delete = Command::delete("a", 1);
        loop {
            let refused = link.ask_one(delete.clone(), Some(first), link.deadline());
            match refused.await.map(drop).unwrap_err().kind() {
                // The end of the connection had not been noticed yet.
                ErrorKind::OutcomeUnknown => {}
                kind => break assert_eq!(kind, ErrorKind::Unavailable),
            }
        }
        let (served, again) = tokio::join!(
            serve(&listener, b"EN\r\n"),
            link.ask_one(get.clone(), None, link.deadline())
        );
        assert_eq!(served, get.bytes, "and not the delete");
        assert_eq!(again.unwrap().0, Reply::Missing);
        drop(stop);
    }
}
