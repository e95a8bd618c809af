//! The router: sends a request to the one server, or to the cluster node that has the slot of its key.
//!
//! In a cluster, a request follows redirections and is retried for a short while, but only if it certainly did not
//! run.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::error::{Error, ErrorKind, ReplyScope, Result};
use crate::store::redis::address::HostAddress;
use crate::store::redis::keys;
use crate::store::redis::slots;
use crate::store::redis::topology::cluster::{Cluster, ClusterNode};
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::job::{RequestJob, ScriptJob, ServerJob};
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::topology::server_run;
use crate::store::redis::topology::server_run::ServerRun;
use crate::store::redis::wire::errors::{Redirect, server_error, unsent};
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::request::Request;
use crate::store::redis::wire::script::Script;
use crate::store::{BootInstant, Incarnation, Name, Timers};

/// How many redirections a request follows without a pause. Nodes that do not agree yet may redirect it in a circle.
const HOPS: u32 = 4;

/// How long the router retries a request that certainly did not run. A waiter has its own deadline for longer
/// retries.
pub(crate) const RETRY_LIMIT: Duration = Duration::from_millis(500);

/// The pauses between such retries.
pub(crate) const RETRY_PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(10), Duration::from_millis(100));

/// The router of one store handle.
#[derive(Clone)]
pub(crate) enum Router {
    One(Connection),
    Cluster(Arc<Cluster>, ConnectionFace),
}

/// The connections that a store handle uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionFace {
    /// Connections on the callers' runtime.
    Front,
    /// Connections on the steward's runtime.
    Back,
}

impl Router {
    pub(crate) fn limit(&self) -> Duration {
        match self {
            Self::One(connection) => connection.limit(),
            Self::Cluster(cluster, _) => cluster.limit,
        }
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        match self {
            Self::One(connection) => connection.deadline(),
            Self::Cluster(cluster, _) => cluster.timers.now() + cluster.limit,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(..))
    }

    /// The lane of a lock: locks in the same lane fail together. In a cluster it is the node that has the slot now.
    pub(crate) fn lane(&self, name: &Name) -> u64 {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster, _) => cluster.lane(slots::of(name.as_str())),
        }
    }

    /// Rejects a name whose keys lie in different slots: in a cluster, a script may use keys of one slot only.
    pub(crate) fn check(&self, name: &Name) -> Result<()> {
        match self {
            Self::One(_) => Ok(()),
            Self::Cluster(..) if keys::share_a_slot(name) => Ok(()),
            Self::Cluster(..) => Err(Error::new(ErrorKind::InvalidName).on_lock(name).because(
                "the braces in its name are not a hash tag, so the keys of this lock would be on different nodes of the cluster; \
                 use no braces, or a non-empty {…} before any other brace",
            )),
        }
    }

    /// The server run that the connection leads to now. `None`: the server does not report it, or the store has several
    /// servers.
    pub(crate) async fn incarnation(&self, timers: &Timers) -> Result<Option<Incarnation>> {
        let Self::One(connection) = self else {
            return Ok(None);
        };
        let deadline = connection.deadline();
        let conn = connection.get(deadline).await?;
        // Attachments have connections of their own, as those for `WAIT`. The lock may have been granted there, by a server
        // that has replaced the one that this connection has asked before.
        let known = conn.server.run.get();
        let known = known.filter(|_| connection.attachments().is_empty());
        let server_run = if let Some(run) = known {
            run.clone()
        } else {
            // Each caller asks for itself until one has the answer. If the others waited for the first one, a future that is
            // kept and not polled would keep them waiting.
            let run = ask_run(connection, &conn, timers, deadline).await?;
            conn.server.run.get_or_init(|| run.clone());
            run
        };
        Ok(server_run.map(|server_run| server_run.by(timers.now())))
    }

    /// Runs a job on the server that has its key.
    pub(crate) async fn run<J: ServerJob>(&self, job: &J) -> Result<J::Output> {
        match self {
            Self::One(connection) => job.run(connection, false).await,
            // Boxed: inline, the state of a routed request would enlarge every request to a single server too.
            Self::Cluster(cluster, face) => {
                Box::pin(RoutedRequest::new(cluster, *face, job).run(job)).await
            }
        }
    }

    /// Runs a job once on a node of the cluster, without following a redirection.
    pub(crate) async fn run_on<J: ServerJob>(
        &self,
        node: &ClusterNode,
        job: &J,
    ) -> Result<J::Output> {
        let Self::Cluster(cluster, face) = self else {
            return self.run(job).await;
        };
        let answer = attend(cluster, job.run(&face.connection(node), false)).await;
        if answer.as_ref().is_err_and(Error::outcome_unknown) {
            cluster.doubt();
        }
        answer
    }

    /// Runs a script.
    pub(crate) async fn eval(
        &self,
        script: &'static Script,
        keys: &[&str],
        args: &[&str],
        deadline: BootInstant,
    ) -> Result<Reply> {
        let job = ScriptJob {
            script,
            keys,
            args,
            deadline,
        };
        self.run(&job).await
    }

    /// Sends one request.
    pub(crate) async fn ask(
        &self,
        key: &str,
        request: &Request,
        deadline: BootInstant,
    ) -> Result<Reply> {
        let job = RequestJob {
            key,
            request,
            deadline,
        };
        self.run(&job).await
    }

    /// Closes the connections of this store handle.
    pub(crate) fn close(&self) {
        for connection in self.everywhere() {
            connection.close();
        }
    }

    /// A connection to each server that has locks, always in the same order.
    pub(crate) fn everywhere(&self) -> Vec<Connection> {
        self.whole_map().1
    }

    /// The same, and a number that is another one for other servers, or for the same in another order.
    pub(crate) fn whole_map(&self) -> (u64, Vec<Connection>) {
        match self {
            Self::One(connection) => (0, vec![connection.clone()]),
            Self::Cluster(cluster, face) => {
                let nodes = cluster.primaries();
                let mut hasher = DefaultHasher::new();
                for node in &nodes {
                    node.address.to_string().hash(&mut hasher);
                }
                let nodes = nodes.iter().map(|node| face.connection(node));
                (hasher.finish(), nodes.collect())
            }
        }
    }
}

impl ConnectionFace {
    pub(crate) fn connection(self, node: &ClusterNode) -> Connection {
        match self {
            Self::Front => node.front.clone(),
            Self::Back => node.back.clone(),
        }
    }
}

/// Asks for the server run. A refusal counts as an answer: the server does not report it.
async fn ask_run(
    connection: &Connection,
    conn: &Arc<LiveConnection>,
    timers: &Timers,
    deadline: BootInstant,
) -> Result<Option<ServerRun>> {
    let info = Request::new("INFO").arg("server");
    match connection.settle(conn, &info, deadline).await {
        Ok(reply) => {
            let info = reply.text().unwrap_or_default();
            Ok(server_run::read(info, timers.now()))
        }
        Err(failure) => match failure.error() {
            error if error.kind() == ErrorKind::Refused => Ok(None),
            error => Err(error),
        },
    }
}

/// Awaits the reply. If the node is slow, another one may have replaced it; we refresh the slot map while we wait, so
/// that the result is there before the deadline.
async fn attend<T>(cluster: &Cluster, sent: impl Future<Output = Result<T>>) -> Result<T> {
    let mut sent = std::pin::pin!(sent);
    let slow = cluster.limit / 8;
    if let Some(answer) = cluster.timers.limit(slow, &mut sent).await {
        return answer;
    }
    cluster.doubt();
    sent.await
}

/// A routed request: it goes to the node that has the key, and follows that node's redirections. We retry it only if
/// it certainly did not run.
struct RoutedRequest<'a> {
    cluster: &'a Cluster,
    face: ConnectionFace,
    slot: u16,
    give_up: BootInstant,
    /// The node to which the request was sent last.
    address: Option<HostAddress>,
    /// The target of an `ASK` redirection, for the next step only.
    asked_for: Option<Arc<ClusterNode>>,
    hops: u32,
    /// How many pauses this request has made.
    pauses: u32,
    /// The last error that was not a redirection.
    last_error: Option<Error>,
}

impl<'a> RoutedRequest<'a> {
    fn new(cluster: &'a Cluster, face: ConnectionFace, job: &impl ServerJob) -> Self {
        let patience = RETRY_LIMIT.min(cluster.limit / 3);
        Self {
            cluster,
            face,
            slot: slots::of(job.key()),
            give_up: job.deadline().min(cluster.timers.now() + patience),
            address: None,
            asked_for: None,
            hops: 0,
            pauses: 0,
            last_error: None,
        }
    }

    /// Sends the request until there is a final reply.
    async fn run<J: ServerJob>(mut self, job: &J) -> Result<J::Output> {
        loop {
            let answer = match self.step() {
                Ok((connection, asking)) => {
                    attend(self.cluster, job.run(&connection, asking)).await
                }
                Err(error) => Err(error),
            };
            if let Some(answer) = self.follow_redirect_or_fail(answer).await {
                return answer;
            }
            job.again();
        }
    }

    /// The next node, and whether ASKING must come first.
    fn step(&mut self) -> Result<(Connection, bool)> {
        let asked_for = self.asked_for.take();
        let asking = asked_for.is_some();
        let node = asked_for.or_else(|| self.cluster.owner(self.slot));
        self.address = node.as_ref().map(|node| node.address.clone());
        let node = node.ok_or_else(|| {
            unsent(format_args!(
                "{}: no node has slot {}",
                self.cluster, self.slot
            ))
        })?;
        Ok((self.face.connection(&node), asking))
    }

    /// Decides about a reply. `None`: the request must be sent again.
    async fn follow_redirect_or_fail<T>(&mut self, answer: Result<T>) -> Option<Result<T>> {
        let error = match answer {
            Ok(answer) => return Some(Ok(answer)),
            Err(error) => error,
        };
        let args = server_error(&error);
        let address = self.address.take();
        let redirection = address.and_then(|address| args?.redirection(&address));
        let sent_on = redirection.is_some();
        match redirection {
            Some(Redirect::Moved(slot, to)) => self.cluster.moved(slot, &to),
            Some(Redirect::Ask(slot, to)) => {
                self.cluster.migrates(slot);
                self.asked_for = Some(self.cluster.node_at(&to));
            }
            // We return these errors: a refused request would be refused again, and one that may have run must not
            // run twice.
            None if error.kind() != ErrorKind::Unavailable
                || error.reply_scope() == Some(ReplyScope::Request)
                    && args.is_none_or(|args| !args.passes()) =>
            {
                if error.outcome_unknown() {
                    self.cluster.doubt();
                }
                return Some(Err(error));
            }
            // Not a redirection: pause before the next attempt.
            None => self.hops = HOPS,
        }
        self.hops += 1;
        if self.hops > HOPS {
            self.cluster.doubt();
            let mut changes = self.cluster.changes.subscribe();
            let pause = RETRY_PAUSES.pause(self.pauses);
            self.pauses += 1;
            let rest = self.cluster.timers.limit(pause, changes.changed());
            let over = self
                .cluster
                .timers
                .until(self.give_up, rest)
                .await
                .is_none();
            if !sent_on {
                self.last_error = Some(error);
            }
            if over {
                return Some(Err(self.last_error.take().unwrap_or_else(|| {
                    unsent(format_args!(
                        "{}: its nodes disagree about which node has slot {}",
                        self.cluster, self.slot
                    ))
                })));
            }
        }
        None
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(connection) => connection.fmt(f),
            Self::Cluster(cluster, _) => write!(f, "{cluster}"),
        }
    }
}

#[cfg(test)]
mod tests;
