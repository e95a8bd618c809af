//! A connection behind our own types: the only file that names the driver.
//!
//! The driver only frames and matches requests and answers. It retries nothing, has no time limit, and its task ends
//! when the connection does, which is how a dead connection is noticed at once.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use redis::aio::{AsyncPushSender, MultiplexedConnection};
use tokio::sync::{Notify, oneshot};

use super::errors::{self, Complaint, unanswered, unsent};
use super::scripts::Script;
use super::url::Target;
use super::wire;
use crate::Credentials;
use crate::backend::{Background, BoxFuture, Moment, Timers, TlsFiles};
use crate::core::rt::{self, Task};
use crate::error::{Error, ErrorKind, Result};

/// An answer of the server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Nil,
    Int(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
}

impl Reply {
    pub(super) fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    pub(super) fn list(&self) -> Option<&[Reply]> {
        match self {
            Self::List(list) => Some(list),
            _ => None,
        }
    }
}

/// Why a request brought no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server said no.
    Complaint(Complaint),
    /// No usable answer: it may have run.
    Broken(String),
}

impl Trouble {
    pub(super) fn error(&self) -> Error {
        match self {
            Self::Complaint(complaint) => complaint.error(),
            Self::Broken(why) => unanswered(why),
        }
    }
}

/// Something the server said unasked, on a connection for subscriptions.
#[derive(Debug)]
pub(super) enum Push {
    Message { channel: String, payload: Vec<u8> },
    Subscribed(String),
    Unsubscribed(String),
}

/// A request, in the order of its words.
#[derive(Debug, Clone)]
pub(super) struct Request(redis::Cmd);

impl Request {
    pub(super) fn new(command: &str) -> Self {
        Self(redis::cmd(command))
    }

    pub(super) fn arg(mut self, arg: impl redis::ToRedisArgs) -> Self {
        self.0.arg(arg);
        self
    }

    fn script(how: &str, what: &str, keys: &[&str], args: &[&str]) -> Self {
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
        Self(cmd)
    }
}

/// One connection and the task that drives it.
pub(super) struct Conn {
    mux: MultiplexedConnection,
    pub(super) life: Arc<Life>,
    /// Dropped with the last user of the connection, which ends it.
    _task: Task,
}

/// Whether a connection still lives.
#[derive(Debug, Default)]
pub(super) struct Life {
    over: AtomicBool,
    pub(super) end: Notify,
}

/// Marks the end however the driver's task ends, also when its runtime goes.
struct Obituary(Arc<Life>);

impl Drop for Obituary {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
        self.0.end.notify_one();
    }
}

impl Conn {
    pub(super) fn alive(&self) -> bool {
        !self.life.over.load(Ordering::SeqCst)
    }

    /// Sends one request. The caller bounds the time.
    pub(super) async fn ask(&self, request: &Request) -> Result<Reply, Trouble> {
        let mut mux = self.mux.clone();
        match mux.send_packed_command(&request.0).await {
            Ok(value) => reply(value),
            Err(e) => Err(trouble(&e)),
        }
    }

    /// The outcome shows as a [`Push`]; what comes back here is only a refusal.
    pub(super) async fn subscribe(&self, channel: &str) -> Result<(), Trouble> {
        let mut mux = self.mux.clone();
        mux.subscribe(channel).await.map_err(|e| trouble(&e))
    }

    pub(super) async fn unsubscribe(&self, channel: &str) -> Result<(), Trouble> {
        let mut mux = self.mux.clone();
        mux.unsubscribe(channel).await.map_err(|e| trouble(&e))
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
            "the connection broke before the answer came: {error}"
        )),
    }
}

/// Where to connect, and as whom.
pub(super) struct Gate {
    pub(super) target: Target,
    pub(super) credentials: Option<Arc<dyn Fn() -> Credentials + Send + Sync>>,
    pub(super) tls: TlsFiles,
    pub(super) timers: Timers,
    pub(super) limit: Duration,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl Gate {
    /// Connects on the runtime this is called on, within the limit. With `pushes`, for subscriptions.
    pub(super) async fn enter(
        &self,
        pushes: Option<Arc<dyn Fn(Push) + Send + Sync>>,
    ) -> Result<Conn> {
        match self.timers.limit(self.limit, self.knock(pushes)).await {
            Some(result) => result,
            None => Err(unsent(format_args!(
                "{}: no connection within {:?}",
                self.target.place, self.limit
            ))),
        }
    }

    async fn knock(&self, pushes: Option<Arc<dyn Fn(Push) + Send + Sync>>) -> Result<Conn> {
        let stream = wire::dial(&self.target.place, &self.tls).await?;
        let mut config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut info = self.login();
        if let Some(pushes) = pushes {
            info = info.set_protocol(redis::ProtocolVersion::RESP3);
            config = config.set_push_sender(Listener(pushes));
        }
        let (mux, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(|e| self.turned_away(&e))?;
        let life = Arc::new(Life::default());
        let obituary = Obituary(Arc::clone(&life));
        let task = rt::spawn_here(async move {
            let _obituary = obituary;
            driver.await;
        })?;
        let conn = Conn {
            mux,
            life,
            _task: task,
        };
        self.greet(&conn).await?;
        Ok(conn)
    }

    /// Asked for at each connect: passwords are rotated while clients run.
    fn login(&self) -> redis::RedisConnectionInfo {
        let credentials = self.credentials.as_ref().map(|ask| ask());
        let (user, password) = match &credentials {
            Some(given) => (given.user.as_deref(), given.password.as_deref()),
            None => (self.target.user.as_deref(), self.target.password.as_deref()),
        };
        let mut info = redis::RedisConnectionInfo::default()
            .set_db(self.target.db)
            .set_lib_name("tidelock", env!("CARGO_PKG_VERSION"));
        if let Some(password) = password {
            info = info.set_password(password);
            if let Some(user) = user {
                info = info.set_username(user);
            }
        }
        info
    }

    /// A server that wants a password says so only when asked for something; so does one that is still loading.
    async fn greet(&self, conn: &Conn) -> Result<()> {
        match conn.ask(&Request::new("PING")).await {
            Ok(_) => Ok(()),
            Err(Trouble::Complaint(complaint)) => {
                let error = complaint.error();
                // Logged in, only not allowed to ping.
                if error.kind() == ErrorKind::Refused && !complaint.ends_session() {
                    return Ok(());
                }
                Err(if error.outcome_unknown() {
                    unsent(error.detail().unwrap_or_default())
                } else {
                    error
                })
            }
            Err(Trouble::Broken(why)) => Err(unsent(format_args!("{}: {why}", self.target.place))),
        }
    }

    fn turned_away(&self, error: &redis::RedisError) -> Error {
        let place = &self.target.place;
        match error.kind() {
            redis::ErrorKind::AuthenticationFailed => Error::new(ErrorKind::Refused).because(
                format!("{place}: authentication failed: check user and password ({error})"),
            ),
            redis::ErrorKind::Io | redis::ErrorKind::Parse => {
                let hint = if self.target.is_tls() {
                    "if the server wants a client certificate, set `tls_identity`"
                } else {
                    "if the port speaks TLS, write rediss:// instead of redis://"
                };
                unsent(format_args!(
                    "{place}: the server ended the connection during the greeting; {hint} ({error})"
                ))
            }
            redis::ErrorKind::Server(_) | redis::ErrorKind::Extension => match trouble(error) {
                Trouble::Complaint(complaint) if !complaint.error().outcome_unknown() => {
                    complaint.error()
                }
                _ => unsent(format_args!("{place}: {error}")),
            },
            _ => unsent(format_args!(
                "{place}: the server refused the greeting, perhaps the database {}: {error}",
                self.target.db
            )),
        }
    }
}

struct Listener(Arc<dyn Fn(Push) + Send + Sync>);

impl AsyncPushSender for Listener {
    fn send(&self, info: redis::PushInfo) -> Result<(), redis::aio::SendError> {
        let mut words = info.data.into_iter().map(|word| match word {
            redis::Value::BulkString(text) => text,
            redis::Value::SimpleString(text) => text.into_bytes(),
            _ => Vec::new(),
        });
        let channel = words.next().and_then(|text| String::from_utf8(text).ok());
        let push = match (info.kind, channel) {
            (redis::PushKind::Message, Some(channel)) => Push::Message {
                channel,
                payload: words.next().unwrap_or_default(),
            },
            (redis::PushKind::Subscribe, Some(channel)) => Push::Subscribed(channel),
            (redis::PushKind::Unsubscribe, Some(channel)) => Push::Unsubscribed(channel),
            _ => return Ok(()),
        };
        (self.0)(push);
        Ok(())
    }
}

/// The runtime a link's connections live on.
#[derive(Debug, Clone)]
pub(super) enum Home {
    /// The one that needs the connection: nearest to the caller.
    Caller,
    /// The steward's thread.
    Background(Background),
}

/// A connection that is made when it is needed and made anew when it has died.
#[derive(Clone)]
pub(super) struct Link(Arc<Inner>);

struct Inner {
    gate: Arc<Gate>,
    home: Home,
    slot: RwLock<Slot>,
}

#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    /// Whoever needs it meanwhile waits for the same one.
    Connecting(Arc<()>, Shared<BoxFuture<'static, Outcome>>),
    Up(Arc<Conn>),
}

/// `None`: the runtime that was connecting has gone.
type Outcome = Option<Result<Arc<Conn>, Arc<Error>>>;

impl Link {
    pub(super) fn new(gate: Arc<Gate>, home: Home) -> Self {
        Self(Arc::new(Inner {
            gate,
            home,
            slot: RwLock::default(),
        }))
    }

    /// The connection, if there is one that lives.
    fn live(&self) -> Option<Arc<Conn>> {
        match &*self.0.slot.read().unwrap_or_else(PoisonError::into_inner) {
            Slot::Up(conn) if conn.alive() => Some(Arc::clone(conn)),
            _ => None,
        }
    }

    pub(super) async fn get(&self) -> Result<Arc<Conn>> {
        if let Some(conn) = self.live() {
            return Ok(conn);
        }
        let (mark, connecting) = self.connecting()?;
        match connecting.await {
            Some(Ok(conn)) => Ok(conn),
            Some(Err(e)) => Err(Error::new(e.kind()).because(e.detail().unwrap_or_default())),
            None => {
                self.put(&mark, Slot::Empty);
                Err(unsent("the runtime that was connecting has gone"))
            }
        }
    }

    fn connecting(&self) -> Result<(Arc<()>, Shared<BoxFuture<'static, Outcome>>)> {
        let mut slot = self.0.slot.write().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Slot::Connecting(mark, connecting) => {
                return Ok((Arc::clone(mark), connecting.clone()));
            }
            Slot::Up(conn) if conn.alive() => {
                let found = Arc::clone(conn);
                let ready: BoxFuture<'static, Outcome> =
                    Box::pin(std::future::ready(Some(Ok(found))));
                return Ok((Arc::default(), ready.shared()));
            }
            _ => {}
        }
        let mark: Arc<()> = Arc::default();
        let (answer, answered) = oneshot::channel();
        let (link, own) = (self.clone(), Arc::clone(&mark));
        let work = async move {
            let result = link
                .0
                .gate
                .enter(None)
                .await
                .map(Arc::new)
                .map_err(Arc::new);
            link.put(
                &own,
                match &result {
                    Ok(conn) => Slot::Up(Arc::clone(conn)),
                    Err(_) => Slot::Empty,
                },
            );
            // An error means that nobody waits any more; the connection is kept for the next.
            let _ = answer.send(result);
        };
        match &self.0.home {
            Home::Caller => rt::spawn_detached(work)?,
            Home::Background(background) => background.spawn(work),
        }
        let waiting: BoxFuture<'static, Outcome> = Box::pin(async move { answered.await.ok() });
        let waiting = waiting.shared();
        *slot = Slot::Connecting(Arc::clone(&mark), waiting.clone());
        Ok((mark, waiting))
    }

    /// Ends the connecting that bears this mark, if it has not been given up.
    fn put(&self, mark: &Arc<()>, new: Slot) {
        let mut slot = self.0.slot.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*slot, Slot::Connecting(own, _) if Arc::ptr_eq(own, mark)) {
            *slot = new;
        }
    }

    /// The next request connects anew; those under way keep this one until they are done.
    pub(super) fn retire(&self, conn: &Arc<Conn>) {
        let mut slot = self.0.slot.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*slot, Slot::Up(up) if Arc::ptr_eq(up, conn)) {
            *slot = Slot::Empty;
        }
    }

    pub(super) fn close(&self) {
        *self.0.slot.write().unwrap_or_else(PoisonError::into_inner) = Slot::Empty;
    }

    pub(super) fn limit(&self) -> Duration {
        self.0.gate.limit
    }

    pub(super) fn deadline(&self) -> Moment {
        self.0.gate.timers.now() + self.0.gate.limit
    }

    /// One request, answered before the deadline.
    pub(super) async fn ask(&self, request: &Request, deadline: Moment) -> Result<Reply> {
        let conn = self.reach(deadline).await?;
        self.settle(&conn, request, deadline)
            .await
            .map_err(|e| e.error())
    }

    /// Runs a script: by its hash, and once more as text if the server surely did not run it for want of the text.
    pub(super) async fn eval(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[&str],
        deadline: Moment,
    ) -> Result<Reply> {
        let conn = self.reach(deadline).await?;
        let by_hash = Request::script("EVALSHA", script.sha(), keys, args);
        match self.settle(&conn, &by_hash, deadline).await {
            Err(Trouble::Complaint(complaint)) if complaint.is_no_script() => {
                let by_text = Request::script("EVAL", script.source, keys, args);
                self.settle(&conn, &by_text, deadline).await
            }
            other => other,
        }
        .map_err(|e| e.error())
    }

    async fn reach(&self, deadline: Moment) -> Result<Arc<Conn>> {
        if let Some(conn) = self.live() {
            return Ok(conn);
        }
        let timers = &self.0.gate.timers;
        match timers.limit(deadline.since(timers.now()), self.get()).await {
            Some(result) => result,
            None => Err(errors::unsent("no connection in time")),
        }
    }

    async fn settle(
        &self,
        conn: &Arc<Conn>,
        request: &Request,
        deadline: Moment,
    ) -> Result<Reply, Trouble> {
        let timers = &self.0.gate.timers;
        let result = timers
            .limit(deadline.since(timers.now()), conn.ask(request))
            .await
            .unwrap_or_else(|| {
                Err(Trouble::Broken(format!(
                    "no answer within {:?}",
                    self.0.gate.limit
                )))
            });
        match &result {
            // The connection may be half-open, and TCP would take minutes to find out.
            Err(Trouble::Broken(_)) => self.retire(conn),
            Err(Trouble::Complaint(complaint)) if complaint.ends_session() => self.retire(conn),
            _ => {}
        }
        result
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.gate.fmt(f)
    }
}
