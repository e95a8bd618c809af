//! One connection for `WAIT`. It runs one batch at a time:
//!
//! 1. Connect. On a new connection, check that the server permits `WAIT` and read its replication status.
//! 2. Pipeline the status query if needed, all scripts as `EVALSHA`, and one `WAIT`.
//! 3. Return each script's reply as it arrives, then the replica count to all.
//! 4. Repeat with `EVAL` for the scripts that the server did not know by their hash.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{MaybeDone, join, maybe_done};
use futures_util::poll;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::store::redis::replicas::demand::{AckDemand, AckResult, give_up_if_strict};
use crate::store::redis::topology::connection::Connection;
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::topology::replication::{ReplicaView, Replicas, question};
use crate::store::redis::wire::errors::{forbids, unsent};
use crate::store::redis::wire::reply::{Reply, RequestError};
use crate::store::redis::wire::request::{Request, ScriptCall};
use crate::store::redis::wire::script::Script;
use crate::store::{BootInstant, ReplicaAck};

/// How long we trust the number of replicas if the policy needs only one of them.
const REPLICA_COUNT_TTL: Duration = Duration::from_secs(1);

/// A `WAIT` connection. It runs one batch at a time.
pub(crate) struct WaitConnection {
    connection: Connection,
    /// The connection that passed the check of step 1.
    known: Weak<LiveConnection>,
    /// The refusal, if the server forbids `WAIT`.
    forbidden: Option<Arc<Error>>,
}

/// One script that needs an acknowledgement, and the channels to its caller.
pub(crate) struct AckRequest {
    /// The slot is still migrating to this node: the script needs `ASKING`.
    pub(crate) asking: bool,
    pub(crate) script: &'static Script,
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<String>,
    pub(crate) demand: AckDemand,
    /// The caller waits for the reply until then.
    pub(crate) deadline: BootInstant,
    pub(crate) answer: oneshot::Sender<Result<Reply>>,
    pub(crate) tally: oneshot::Sender<AckResult>,
}

/// The replicas of a server, or the reason why we may not ask them.
type ReplicaCount = Result<Replicas, Arc<Error>>;

/// How a request identifies its script.
#[derive(Clone, Copy, PartialEq)]
enum ScriptReference {
    Hash,
    Text,
}

impl WaitConnection {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            known: Weak::new(),
            forbidden: None,
        }
    }

    /// Runs a batch, and returns itself for the next one.
    pub(crate) async fn serve(mut self, group: Vec<AckRequest>) -> Self {
        let Some(deadline) = group.iter().map(|order| order.deadline).max() else {
            return self;
        };
        match self.connected(deadline).await {
            Ok((conn, replicas)) => {
                let mut orders = turn_away(group, &replicas);
                for by in [ScriptReference::Hash, ScriptReference::Text] {
                    if !orders.is_empty() {
                        orders = self.run(&conn, &replicas, orders, by, deadline).await;
                    }
                }
            }
            // Nothing was sent.
            Err(error) => {
                for order in group {
                    order.refuse(&error);
                }
            }
        }
        self
    }

    /// The connection and the replicas of its server. A new connection is first checked for the right to use `WAIT`.
    async fn connected(
        &mut self,
        deadline: BootInstant,
    ) -> Result<(Arc<LiveConnection>, ReplicaCount)> {
        let conn = self.connection.get(deadline).await?;
        let timers = self.connection.timers();
        if !Weak::ptr_eq(&self.known, &Arc::downgrade(&conn))
            || conn.server.replication.view().is_none()
        {
            let probe = Request::new("WAIT").arg(0).arg(0);
            let tried = join(conn.ask(&probe), conn.read_replication(timers));
            self.forbidden = match timers.until(deadline, tried).await {
                Some((Err(RequestError::Server(server_error)), _)) => {
                    forbids(&server_error).map(Arc::new)
                }
                Some((Ok(_), _)) => None,
                Some((Err(RequestError::Broken(_)), _)) | None => {
                    return Err(self.uncounted(&conn));
                }
            };
            self.known = Arc::downgrade(&conn);
        }
        let replicas = match (conn.server.replication.view(), &self.forbidden) {
            (Some((ReplicaView::Forbidden(why), _)), _) => Err(why),
            (Some((ReplicaView::Replicas(none), _)), _) if none.count == 0 => Ok(none),
            (Some(_), Some(why)) => Err(Arc::clone(why)),
            (Some((ReplicaView::Replicas(replicas), _)), None) => Ok(replicas),
            (None, _) => return Err(self.uncounted(&conn)),
        };
        Ok((conn, replicas))
    }

    fn uncounted(&self, conn: &Arc<LiveConnection>) -> Error {
        self.connection.retire(conn);
        unsent("the server does not report its number of replicas")
    }

    /// Pipelines all scripts and one `WAIT` behind them, and returns each script's reply as it arrives. The result is
    /// the list of scripts that the server does not know by their hash. These did not run.
    async fn run(
        &self,
        conn: &Arc<LiveConnection>,
        replicas: &ReplicaCount,
        orders: Vec<AckRequest>,
        by: ScriptReference,
        deadline: BootInstant,
    ) -> Vec<AckRequest> {
        let demands: Vec<_> = orders.iter().map(|order| order.demand).collect();
        let needed = |replicas: &Replicas| {
            let each = demands.iter().map(|demand| replicas.awaited(demand));
            each.max().unwrap_or(0)
        };
        let limit = orders.iter().map(|order| order.demand.limit()).max();
        let mut exchange = Exchange {
            wait_connection: self,
            conn,
            deadline,
            calls: VecDeque::new(),
        };
        let now = self.connection.timers().now();
        let at = conn.server.replication.view().map_or(now, |(_, at)| at);
        let strict = demands.iter().any(|one| one.policy > ReplicaAck::Any);
        let looks = replicas.is_ok() && (strict || now.since(at) >= REPLICA_COUNT_TTL);
        let asked = replicas.as_ref().map_or(0, needed);
        let mut requests = Vec::with_capacity(orders.len() + 2);
        requests.extend(looks.then(question));
        requests.extend(orders.iter().map(|order| order.request(by)));
        requests.extend((asked > 0).then(|| wait(asked, limit)));
        exchange.send(&requests).await;

        let mut unread = false;
        if looks {
            let answer = exchange.answer().await;
            unread = conn.server.replication.note(&answer, now).is_none();
        }
        let (mut unknown, mut tallies) = (Vec::new(), Vec::new());
        for order in orders {
            match exchange.answer().await {
                Err(RequestError::Server(no))
                    if no.is_no_script() && by == ScriptReference::Hash =>
                {
                    unknown.push(order);
                }
                answer => tallies.push((order.demand.policy, order.answer(answer))),
            }
        }
        let acknowledged = match (replicas, conn.server.replication.view()) {
            (Err(why), _) => AckResult::Forbidden(Arc::clone(why)),
            (Ok(_), Some((ReplicaView::Replicas(replicas), _))) => {
                let needed = needed(&replicas);
                exchange.tally(replicas, asked, needed, limit).await
            }
            (Ok(_), _) => AckResult::Nothing,
        };
        report(tallies, &acknowledged, unread);
        unknown
    }
}

/// Refuses the scripts whose policy requires replicas if we may not ask them.
fn turn_away(group: Vec<AckRequest>, replicas: &ReplicaCount) -> Vec<AckRequest> {
    let Err(why) = replicas else {
        return group;
    };
    let stay = |order: AckRequest| match give_up_if_strict(order.demand.policy, why) {
        Ok(()) => Some(order),
        Err(error) => {
            order.refuse(&error);
            None
        }
    };
    group.into_iter().filter_map(stay).collect()
}

/// Sends the report to each caller. `unread`: the server did not say which replicas it has now. There may be more than
/// it had at the last report, so `Majority` and `All` are not met.
fn report(
    tallies: Vec<(ReplicaAck, oneshot::Sender<AckResult>)>,
    acknowledged: &AckResult,
    unread: bool,
) {
    for (policy, tally) in tallies {
        let own = if unread && policy > ReplicaAck::Any {
            AckResult::Nothing
        } else {
            acknowledged.clone()
        };
        // An error means that the script was refused, or that its caller has left.
        let _ = tally.send(own);
    }
}

fn wait(replicas: u32, limit: Option<Duration>) -> Request {
    let millis = limit.unwrap_or_default().as_millis().max(1); // zero means no timeout
    Request::new("WAIT").arg(replicas).arg(millis.to_string())
}

type Asking<'a> = Pin<Box<dyn Future<Output = Result<Reply, RequestError>> + Send + 'a>>;

/// Pipelined requests. The replies come in the order of the requests.
struct Exchange<'a> {
    wait_connection: &'a WaitConnection,
    conn: &'a Arc<LiveConnection>,
    deadline: BootInstant,
    calls: VecDeque<MaybeDone<Asking<'a>>>,
}

impl<'a> Exchange<'a> {
    async fn send(&mut self, requests: &[Request]) {
        for request in requests {
            let (conn, request) = (Arc::clone(self.conn), request.clone());
            let call: Asking<'a> = Box::pin(async move { conn.ask(&request).await });
            self.calls.push_back(maybe_done(call));
        }
        for call in &mut self.calls {
            // The first poll queues the request. We poll all before we await one, so that they go out together.
            let _ = poll!(Pin::new(call));
        }
    }

    /// The next reply. If it shows that the connection or the server is unusable, we retire the connection.
    async fn answer(&mut self) -> Result<Reply, RequestError> {
        let connection = &self.wait_connection.connection;
        let Some(mut call) = self.calls.pop_front() else {
            return Err(RequestError::Broken("nothing was asked".to_owned()));
        };
        let done = async {
            Pin::new(&mut call).await;
            Pin::new(&mut call).take_output()
        };
        let answer = match connection.timers().until(self.deadline, done).await {
            Some(Some(answer)) => answer,
            _ => Err(RequestError::Broken(format!(
                "no answer within {:?}",
                connection.limit()
            ))),
        };
        match &answer {
            Err(RequestError::Broken(_)) => connection.retire(self.conn),
            Err(RequestError::Server(server_error)) if server_error.ends_session() => {
                connection.retire(self.conn);
            }
            Err(RequestError::Server(server_error)) if server_error.is_replica() => {
                connection.replaced(self.conn);
            }
            Ok(reply) if reply.says_replica() => connection.replaced(self.conn),
            _ => {}
        }
        answer
    }

    /// Reads the count of the first `WAIT`, which was for `asked` replicas. If the server has more replicas by now and
    /// the count is too low, sends a second `WAIT`.
    async fn tally(
        &mut self,
        replicas: Replicas,
        asked: u32,
        needed: u32,
        limit: Option<Duration>,
    ) -> AckResult {
        let mut reached = 0;
        if asked > 0 {
            match self.answer().await {
                Ok(Reply::Int(count)) => reached = u32::try_from(count).unwrap_or(0),
                _ => return AckResult::Nothing,
            }
        }
        if needed > asked && reached < needed {
            // More replicas have connected than we knew of.
            self.send(&[wait(needed, limit)]).await;
            match self.answer().await {
                Ok(Reply::Int(count)) => reached = u32::try_from(count).unwrap_or(0),
                _ => return AckResult::Nothing,
            }
        }
        if reached < needed {
            // A primary without enough replicas may have been replaced. We stop using this connection, so that the
            // next one leads to the new primary.
            self.wait_connection.connection.demoted(self.conn);
        }
        AckResult::Count { replicas, reached }
    }
}

impl AckRequest {
    fn request(&self, by: ScriptReference) -> Request {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let (how, what) = match by {
            ScriptReference::Hash => ("EVALSHA", self.script.sha()),
            ScriptReference::Text => ("EVAL", self.script.source),
        };
        let call = ScriptCall {
            how,
            what,
            keys: &keys,
            args: &args,
            asking: self.asking,
        };
        call.to_request()
    }

    fn refuse(self, error: &Error) {
        let copy = Error::new(error.kind()).because(error.detail().unwrap_or_default());
        // An error means that the caller has left.
        let _ = self.answer.send(Err(copy));
    }

    /// Returns the script's reply to its caller. The replica count follows on the returned sender.
    fn answer(self, answer: Result<Reply, RequestError>) -> oneshot::Sender<AckResult> {
        // An error means that the caller has left.
        let _ = self.answer.send(answer.map_err(|failure| failure.error()));
        self.tally
    }
}

#[cfg(test)]
mod tests;
