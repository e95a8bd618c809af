//! One connection: the only file that names the driver.
//!
//! The driver only frames and matches requests and answers. It retries nothing, has no time limit, and its task ends
//! when the connection does, which is how a dead connection is noticed at once.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{AbortHandle, Abortable};
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use tokio::sync::{Notify, OnceCell};

use super::ack::Standing;
use super::birth::Birth;
use super::errors::{Complaint, hide_arguments};
use super::reply::{Push, Reply, Trouble};
use super::wire::Stream;
use crate::core::rt::{self, Task};

/// A request, in the order of its words.
#[derive(Debug, Clone)]
pub(super) struct Request {
    cmd: redis::Cmd,
    /// For a slot that is on its way to this node.
    asking: bool,
}

impl Request {
    pub(super) fn new(command: &str) -> Self {
        Self {
            cmd: redis::cmd(command),
            asking: false,
        }
    }

    pub(super) fn arg(mut self, arg: impl redis::ToRedisArgs) -> Self {
        self.cmd.arg(arg);
        self
    }

    pub(super) fn script(how: &str, what: &str, keys: &[&str], args: &[&str]) -> Self {
        let size = keys
            .iter()
            .chain(args)
            .map(|word| word.len())
            .sum::<usize>()
            + what.len()
            + 16;
        let mut cmd = redis::Cmd::with_capacity(3 + keys.len() + args.len(), size);
        cmd.arg(how).arg(what).arg(keys.len());
        for word in keys.iter().chain(args) {
            cmd.arg(*word);
        }
        Self { cmd, asking: false }
    }

    /// As another node has told us: this one does not have the slot yet, but is to take the request.
    pub(super) fn asking(mut self, asking: bool) -> Self {
        self.asking = asking;
        self
    }
}

/// What is done about a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscription {
    /// Of the slot of the channel only: `SSUBSCRIBE`.
    pub(super) sharded: bool,
    pub(super) ends: bool,
}

impl Subscription {
    fn command(self) -> &'static str {
        match (self.sharded, self.ends) {
            (false, false) => "SUBSCRIBE",
            (false, true) => "UNSUBSCRIBE",
            (true, false) => "SSUBSCRIBE",
            (true, true) => "SUNSUBSCRIBE",
        }
    }

    fn confirmation(self) -> redis::PushKind {
        match (self.sharded, self.ends) {
            (false, false) => redis::PushKind::Subscribe,
            (false, true) => redis::PushKind::Unsubscribe,
            (true, false) => redis::PushKind::SSubscribe,
            (true, true) => redis::PushKind::SUnsubscribe,
        }
    }
}

/// One connection and the task that drives it.
pub(super) struct Conn {
    mux: MultiplexedConnection,
    pub(super) life: Arc<Life>,
    /// What is known of the server's replicas.
    pub(super) standing: Standing,
    /// Asked for once.
    pub(super) birth: OnceCell<Option<Birth>>,
    /// Dropped with the last user of the connection, which ends it.
    _task: Task,
}

/// Whether a connection still lives.
#[derive(Debug)]
pub(super) struct Life {
    over: AtomicBool,
    pub(super) end: Notify,
    stop: AbortHandle,
}

impl Life {
    fn new(stop: AbortHandle) -> Self {
        Self {
            over: AtomicBool::new(false),
            end: Notify::new(),
            stop,
        }
    }

    /// Ends the connection, also for those who wait for an answer.
    pub(super) fn cut(&self) {
        self.stop.abort();
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// Marks the end however the driver's task ends, also when its runtime goes.
struct Obituary(Arc<Life>);

impl Drop for Obituary {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.end.notify_one();
    }
}

/// Who connects, and to which database.
pub(super) struct Login {
    pub(super) db: i64,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// Why a server did not let us in.
#[derive(Debug)]
pub(super) enum Closed {
    /// User or password.
    Stranger(String),
    /// The connection ended, or what came was no Redis.
    Ended(String),
    Complaint(Complaint),
    Other(String),
}

/// Who hears what the server says unasked.
pub(super) type Ears = Arc<dyn Fn(Push) + Send + Sync>;

impl Conn {
    /// Introduces us on a stream that stands. The connection lives on the runtime this is called on. With ears it is
    /// for subscriptions. The caller bounds the time.
    pub(super) async fn open(
        stream: Pin<Box<dyn Stream>>,
        login: &Login,
        ears: Option<Ears>,
    ) -> Result<Self, Closed> {
        let mut config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut info = redis::RedisConnectionInfo::default()
            .set_db(login.db)
            .set_lib_name("tidelock", env!("CARGO_PKG_VERSION"));
        if let Some(password) = &login.password {
            info = info.set_password(password);
            if let Some(user) = &login.user {
                info = info.set_username(user);
            }
        }
        if let Some(ears) = ears {
            info = info.set_protocol(redis::ProtocolVersion::RESP3);
            config = config.set_push_sender(Listener(ears));
        }
        let (mux, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|e| closed(&e))?;
        let (stop, stopped) = AbortHandle::new_pair();
        let life = Arc::new(Life::new(stop));
        let obituary = Obituary(Arc::clone(&life));
        let task = rt::spawn_here(async move {
            let _obituary = obituary;
            // Looked at for each request, so it must cost next to nothing: an error means that it was stopped.
            let _ = Abortable::new(driver, stopped).await;
        })
        .map_err(|e| Closed::Other(e.to_string()))?;
        Ok(Self {
            mux,
            life,
            standing: Standing::default(),
            birth: OnceCell::new(),
            _task: task,
        })
    }

    pub(super) fn alive(&self) -> bool {
        !self.life.is_over()
    }

    /// Sends one request. The caller bounds the time.
    pub(super) async fn ask(&self, request: &Request) -> Result<Reply, Trouble> {
        let mut mux = self.mux.clone();
        let value = if request.asking {
            // In one piece: `ASKING` is about the next command of its connection, whosever that is.
            let mut both = redis::Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(request.cmd.clone());
            // Behind a pointer: it would lie in every request.
            let values = Box::pin(mux.send_packed_commands(&both, 1, 1)).await;
            values.map(|mut values| values.pop().unwrap_or(redis::Value::Nil))
        } else {
            mux.send_packed_command(&request.cmd).await
        };
        match value {
            Ok(value) => reply(value),
            Err(e) => Err(trouble(&e)),
        }
    }

    /// Sends several requests in one piece. The caller bounds the time.
    pub(super) async fn ask_all(
        &self,
        requests: &[Request],
    ) -> Result<Vec<Result<Reply, Complaint>>, Trouble> {
        let mut mux = self.mux.clone();
        let mut all = redis::Pipeline::with_capacity(requests.len());
        all.ignore_errors();
        for request in requests {
            all.add_command(request.cmd.clone());
        }
        let values = mux.send_packed_commands(&all, 0, requests.len()).await;
        let values = values.map_err(|e| trouble(&e))?;
        let each = values.into_iter().map(|value| match reply(value) {
            Ok(reply) => Ok(Ok(reply)),
            Err(Trouble::Complaint(complaint)) => Ok(Err(complaint)),
            Err(broken) => Err(broken),
        });
        each.collect()
    }

    /// Subscribes, or unsubscribes. What happened shows as a [`Push`]; what comes back here is only a refusal. An answer
    /// to something else breaks the connection: a server that takes a subscription away unasked says so in the place of the next answer.
    pub(super) async fn subscription(
        &self,
        kind: Subscription,
        channel: &str,
    ) -> Result<(), Trouble> {
        let mut mux = self.mux.clone();
        let mut cmd = redis::cmd(kind.command());
        let value = mux.send_packed_command(cmd.arg(channel)).await;
        let value = value.map_err(|e| trouble(&e))?;
        match &value {
            redis::Value::Push { kind: said, data }
                if *said == kind.confirmation()
                    && matches!(data.first(), Some(redis::Value::BulkString(name)) if name == channel.as_bytes()) =>
            {
                Ok(())
            }
            redis::Value::ServerError(_) => reply(value).map(drop),
            other => Err(Trouble::Broken(format!(
                "an answer to something else: {other:?}"
            ))),
        }
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("alive", &self.alive())
            .finish_non_exhaustive()
    }
}

fn reply(value: redis::Value) -> Result<Reply, Trouble> {
    Ok(match value {
        redis::Value::Nil => Reply::Nil,
        redis::Value::Int(number) => Reply::Int(number),
        redis::Value::BulkString(text) => Reply::Text(text),
        redis::Value::SimpleString(text) => Reply::Text(text.into_bytes()),
        redis::Value::Okay => Reply::Text(b"OK".to_vec()),
        redis::Value::Array(list) => {
            Reply::List(list.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        redis::Value::ServerError(e) => {
            return Err(Trouble::Complaint(Complaint::new(
                e.code(),
                e.details().unwrap_or_default(),
            )));
        }
        other => {
            return Err(Trouble::Broken(format!(
                "an answer of a kind that was not asked for: {other:?}"
            )));
        }
    })
}

fn trouble(error: &redis::RedisError) -> Trouble {
    match (error.kind(), error.code()) {
        (redis::ErrorKind::Server(_) | redis::ErrorKind::Extension, Some(code)) => {
            Trouble::Complaint(Complaint::new(code, error.detail().unwrap_or_default()))
        }
        _ => Trouble::Broken(format!(
            "the connection broke before the answer came: {}",
            text(error)
        )),
    }
}

/// The driver's words, without what a server may have repeated of a greeting.
fn text(error: &redis::RedisError) -> String {
    let mut text = error.to_string();
    hide_arguments(&mut text);
    text
}

fn closed(error: &redis::RedisError) -> Closed {
    match error.kind() {
        redis::ErrorKind::AuthenticationFailed => Closed::Stranger(text(error)),
        redis::ErrorKind::Io | redis::ErrorKind::Parse => Closed::Ended(text(error)),
        _ => match trouble(error) {
            Trouble::Complaint(complaint) => Closed::Complaint(complaint),
            Trouble::Broken(_) => Closed::Other(text(error)),
        },
    }
}

struct Listener(Ears);

impl AsyncPushSender for Listener {
    fn send(&self, info: redis::PushInfo) -> Result<(), redis::aio::SendError> {
        let mut words = info.data.into_iter().map(|word| match word {
            redis::Value::BulkString(text) => text,
            redis::Value::SimpleString(text) => text.into_bytes(),
            _ => Vec::new(),
        });
        let channel = words.next().and_then(|text| String::from_utf8(text).ok());
        let push = match (info.kind, channel) {
            (redis::PushKind::Message | redis::PushKind::SMessage, Some(channel)) => {
                Push::Message {
                    channel,
                    payload: words.next().unwrap_or_default(),
                }
            }
            (redis::PushKind::Subscribe | redis::PushKind::SSubscribe, Some(channel)) => {
                Push::Subscribed(channel)
            }
            (redis::PushKind::Unsubscribe | redis::PushKind::SUnsubscribe, Some(channel)) => {
                Push::Unsubscribed(channel)
            }
            _ => return Ok(()),
        };
        (self.0)(push);
        Ok(())
    }
}
