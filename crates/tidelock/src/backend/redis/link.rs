//! A reconnecting connection: it connects at the first request, and again after it has broken.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::sync::{oneshot, watch};

use super::ack::Lines;
use super::conn::Conn;
use super::errors::unsent;
use super::gate::Gate;
use super::reply::{Reply, Trouble};
use super::request::{Call, Request, Words};
use super::scripts::Script;
use super::solo::{self, Solo};
use crate::backend::{Background, BoxFuture, Moment, Timers};
use crate::core::rt;
use crate::error::{Error, Result};

/// The runtime on which a connection runs.
#[derive(Debug, Clone)]
pub(super) enum Home {
    /// The runtime of the caller that needs the connection: the closest to its requests.
    Caller,
    /// The runtime of the steward.
    Background(Background),
}

impl Home {
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        match self {
            Self::Caller => rt::spawn_detached(work),
            Self::Background(background) => {
                background.spawn(work);
                Ok(())
            }
        }
    }
}

/// A connection that connects at the first request, and reconnects after it has broken.
#[derive(Clone)]
pub(super) struct Link(Arc<Inner>);

struct Inner {
    gate: Arc<Gate>,
    home: Home,
    slot: RwLock<Slot>,
    /// Dropped with the last clone. A connect in progress then stops.
    used: watch::Sender<()>,
    /// Additional connections, used when replicas must acknowledge.
    lines: Lines,
    /// Connections for transactions, used when the user is not allowed to run scripts.
    solo: Solo,
}

#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    /// Concurrent callers share one connect.
    Connecting(Arc<()>, Shared<BoxFuture<'static, Outcome>>),
    Up(Arc<Conn>),
}

/// `None`: the runtime that was connecting has shut down.
type Outcome = Option<Result<Arc<Conn>, Arc<Error>>>;

impl Link {
    pub(super) fn new(gate: Arc<Gate>, home: Home) -> Self {
        Self(Arc::new(Inner {
            gate,
            home,
            slot: RwLock::default(),
            used: watch::Sender::default(),
            lines: Lines::default(),
            solo: Solo::default(),
        }))
    }

    /// The connection, if it is open.
    fn live(&self) -> Option<Arc<Conn>> {
        match &*self.0.slot.read().unwrap_or_else(PoisonError::into_inner) {
            Slot::Up(conn) if conn.alive() => Some(Arc::clone(conn)),
            _ => None,
        }
    }

    /// The open connection, or a new one if it can be opened before the deadline.
    pub(super) async fn get(&self, deadline: Moment) -> Result<Arc<Conn>> {
        match self.live() {
            Some(conn) => Ok(conn),
            None => Box::pin(self.connect(deadline)).await,
        }
    }

    async fn connect(&self, deadline: Moment) -> Result<Arc<Conn>> {
        let (mark, connecting) = self.connecting()?;
        let timers = &self.0.gate.timers;
        match timers.until(deadline, connecting).await {
            Some(Some(Ok(conn))) => Ok(conn),
            Some(Some(Err(e))) => Err(Error::new(e.kind()).because(e.detail().unwrap_or_default())),
            // The runtime that was connecting has shut down, or does not poll its tasks. The next call connects on
            // its own runtime.
            Some(None) | None => {
                self.put(&mark, Slot::Empty);
                Err(unsent(format_args!(
                    "{}: no connection in time",
                    self.0.gate
                )))
            }
        }
    }

    fn connecting(&self) -> Result<(Arc<()>, Shared<BoxFuture<'static, Outcome>>)> {
        let mut slot = self.0.slot.write().unwrap_or_else(PoisonError::into_inner);
        // We check again under the write lock: another caller may have connected since `live`.
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
        let (gate, own) = (Arc::clone(&self.0.gate), Arc::clone(&mark));
        let (link, mut used) = (Arc::downgrade(&self.0), self.0.used.subscribe());
        let work = async move {
            let result = tokio::select! {
                result = gate.enter(None) => result.map(Arc::new).map_err(Arc::new),
                // The timers stop together with the client; without them, this connect would have no deadline.
                _ = used.changed() => return,
            };
            if let Some(link) = link.upgrade().map(Link) {
                link.put(
                    &own,
                    match &result {
                        Ok(conn) => Slot::Up(Arc::clone(conn)),
                        Err(_) => Slot::Empty,
                    },
                );
            }
            // A send error means that no caller waits any more. The next caller uses the connection.
            let _ = answer.send(result);
        };
        self.0.home.spawn(work)?;
        let waiting: BoxFuture<'static, Outcome> = Box::pin(async move { answered.await.ok() });
        let waiting = waiting.shared();
        *slot = Slot::Connecting(Arc::clone(&mark), waiting.clone());
        Ok((mark, waiting))
    }

    /// Ends the connect with this mark, unless another one has replaced it.
    fn put(&self, mark: &Arc<()>, new: Slot) {
        let mut slot = self.0.slot.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*slot, Slot::Connecting(own, _) if Arc::ptr_eq(own, mark)) {
            *slot = new;
        }
    }

    /// The next request reconnects. Requests in flight keep this connection until they are done.
    pub(super) fn retire(&self, conn: &Arc<Conn>) {
        let mut slot = self.0.slot.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*slot, Slot::Up(up) if Arc::ptr_eq(up, conn)) {
            *slot = Slot::Empty;
        }
    }

    /// The server rejects writes, or has no replicas left: another server is or becomes the primary.
    pub(super) fn demoted(&self, conn: &Arc<Conn>) {
        self.retire(conn);
        self.0.gate.doubt();
    }

    pub(super) fn close(&self) {
        self.0.lines.close();
        *self.0.slot.write().unwrap_or_else(PoisonError::into_inner) = Slot::Empty;
    }

    pub(super) fn home(&self) -> &Home {
        &self.0.home
    }

    pub(super) fn lines(&self) -> &Lines {
        &self.0.lines
    }

    pub(super) fn solo(&self) -> &Solo {
        &self.0.solo
    }

    /// A second connection to the same endpoint.
    pub(super) fn sibling(&self) -> Self {
        Self::new(Arc::clone(&self.0.gate), self.0.home.clone())
    }

    pub(super) fn timers(&self) -> &Timers {
        &self.0.gate.timers
    }

    pub(super) fn limit(&self) -> Duration {
        self.0.gate.limit
    }

    pub(super) fn deadline(&self) -> Moment {
        self.0.gate.timers.now() + self.0.gate.limit
    }

    /// Sends one request and returns the reply, or an error at the deadline.
    pub(super) async fn ask(&self, request: &Request, deadline: Moment) -> Result<Reply> {
        let conn = self.get(deadline).await?;
        self.settle(&conn, request, deadline)
            .await
            .map_err(|e| e.error())
    }

    /// Runs a script with EVALSHA. If the server replies NOSCRIPT, it has not run the script, and we send it again
    /// with EVAL.
    pub(super) fn eval(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[&str],
        deadline: Moment,
    ) -> impl Future<Output = Result<Reply>> {
        // We return the future without awaiting it. An `await` here would copy it, with all its arguments, once more.
        self.eval_as(false, script, keys, args, deadline)
    }

    /// Like [`eval`](Self::eval). `asking`: the slot is being migrated to this node, so an ASKING goes first.
    pub(super) async fn eval_as(
        &self,
        asking: bool,
        script: &Script,
        keys: &[&str],
        args: &[&str],
        deadline: Moment,
    ) -> Result<Reply> {
        let conn = self.get(deadline).await?;
        self.eval_on(&conn, asking, script, keys, args, deadline)
            .await
    }

    /// Like [`eval_as`](Self::eval_as), on the given connection.
    pub(super) async fn eval_on(
        &self,
        conn: &Arc<Conn>,
        asking: bool,
        script: &Script,
        keys: &[&str],
        args: &[&str],
        deadline: Moment,
    ) -> Result<Reply> {
        let mut call = Call {
            how: "EVALSHA",
            what: script.sha(),
            keys,
            args,
            asking,
        };
        loop {
            match self.settle(conn, &call, deadline).await {
                Err(Trouble::Complaint(complaint))
                    if call.how == "EVALSHA" && complaint.is_no_script() =>
                {
                    (call.how, call.what) = ("EVAL", script.source);
                }
                other => return other.map_err(|e| e.error()),
            }
        }
    }

    pub(super) async fn settle(
        &self,
        conn: &Arc<Conn>,
        request: &impl Words,
        deadline: Moment,
    ) -> Result<Reply, Trouble> {
        let timers = &self.0.gate.timers;
        // Pinned here: passed by value, it would take its space in the caller's future twice, and be copied with it.
        let asking = std::pin::pin!(conn.ask(request));
        let result = timers.until(deadline, asking).await;
        let result = result.unwrap_or_else(|| Err(self.mute()));
        self.judge(conn, &result);
        result
    }

    /// Sends several requests as one pipeline, and returns the replies before the deadline.
    pub(super) async fn settle_all(
        &self,
        conn: &Arc<Conn>,
        requests: &[Request],
        deadline: Moment,
    ) -> Result<Vec<solo::Outcome>, Trouble> {
        let asking = conn.ask_all(requests);
        let answers = self.0.gate.timers.until(deadline, asking).await;
        let answers = answers.unwrap_or_else(|| Err(self.mute()));
        match answers {
            Err(trouble) => {
                let result = Err(trouble);
                self.judge(conn, &result);
                result.map(|_: Reply| Vec::new())
            }
            Ok(outcomes) => {
                for complaint in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
                    let trouble = Trouble::Complaint(complaint.clone());
                    self.judge(conn, &Err(trouble));
                }
                Ok(outcomes)
            }
        }
    }

    fn mute(&self) -> Trouble {
        Trouble::Broken(format!("no answer within {:?}", self.0.gate.limit))
    }

    /// Retires the connection if the reply shows that it is broken, logged out, or connected to a replica.
    fn judge(&self, conn: &Arc<Conn>, result: &Result<Reply, Trouble>) {
        match result {
            // The connection may be half-open, and TCP would need minutes to notice.
            Err(Trouble::Broken(_)) => self.retire(conn),
            Err(Trouble::Complaint(complaint)) if complaint.ends_session() => self.retire(conn),
            Err(Trouble::Complaint(complaint)) if complaint.is_replica() => self.demoted(conn),
            Ok(reply) if reply.says_replica() => self.demoted(conn),
            _ => {}
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.gate.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server accepts and stays silent. Dropping the client also stops the thread that drives the timers.
    #[tokio::test]
    async fn a_client_that_is_given_up_while_it_connects_hangs_up() {
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", mute.local_addr().unwrap());
        let limit = Duration::from_millis(200);
        let connecting = tokio::time::timeout(limit, crate::Client::connect(&url));
        let (peer, _) = tokio::join!(async { mute.accept().await.unwrap().0 }, connecting);
        let hung_up = async {
            let mut bytes = [0; 1024];
            loop {
                peer.readable().await.unwrap();
                if matches!(peer.try_read(&mut bytes), Ok(0)) {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), hung_up)
            .await
            .expect("it hangs up");
    }
}
