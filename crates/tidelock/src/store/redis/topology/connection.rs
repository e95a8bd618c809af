//! A reconnecting connection: it connects at the first request, and again after it has broken. The requests of all tasks
//! are multiplexed over it: each is sent at once, without a wait for the replies to earlier ones.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
pub(crate) use crate::store::connect_once::ConnectionRuntime;
use crate::store::connect_once::{ConnectOnce, MayEnd};
use crate::store::redis::topology::attachments::Attachments;
use crate::store::redis::topology::endpoint::Endpoint;
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::reply::{CommandResult, Reply, RequestError};
use crate::store::redis::wire::request::{Encode, Request};
use crate::store::{BootInstant, Timers};

/// A connection that connects at the first request, and reconnects after it has broken.
#[derive(Clone)]
pub(crate) struct Connection(Arc<ConnectionInner>);

struct ConnectionInner {
    endpoint: Arc<Endpoint>,
    home: ConnectionRuntime,
    once: ConnectOnce<LiveConnection>,
    /// What higher files attach. Dropped with the last clone, or when the connection is closed.
    attachments: Attachments,
}

impl MayEnd for LiveConnection {
    fn has_ended(&self) -> bool {
        !self.alive()
    }
}

impl Connection {
    pub(crate) fn new(endpoint: Arc<Endpoint>, home: ConnectionRuntime) -> Self {
        Self(Arc::new(ConnectionInner {
            endpoint,
            home,
            once: ConnectOnce::new(),
            attachments: Attachments::default(),
        }))
    }

    /// The open connection, or a new one if it can be opened before the deadline.
    pub(crate) async fn get(&self, deadline: BootInstant) -> Result<Arc<LiveConnection>> {
        match self.0.once.live() {
            Some(conn) if !self.retires_overdue(&conn).await => Ok(conn),
            _ => Box::pin(self.connect(deadline)).await,
        }
    }

    /// The connection may be half-open, and every caller so far has left before its deadline, as a probe does that waits for
    /// a second only. We retire it here; otherwise it would be used until TCP gives it up, which takes minutes.
    async fn retires_overdue(&self, conn: &Arc<LiveConnection>) -> bool {
        let is_overdue = || conn.pipeline.is_overdue(|| self.timers().now());
        if !is_overdue() {
            return false;
        }
        // The reply may lie there unread, if nobody has driven the runtime meanwhile: its I/O task runs first.
        tokio::task::yield_now().await;
        let is_overdue = is_overdue();
        if is_overdue {
            self.retire(conn);
        }
        is_overdue
    }

    async fn connect(&self, deadline: BootInstant) -> Result<Arc<LiveConnection>> {
        let ConnectionInner {
            endpoint,
            home,
            once,
            ..
        } = &*self.0;
        let enter = || {
            let endpoint = Arc::clone(endpoint);
            // Counted from here, and not from when the attempt begins to run: on a busy machine it would end after the first
            // connect of a client, which waits a little longer, and which would not learn why there is no connection.
            let end = endpoint.deadline();
            async move {
                // It has not run while its caller waited, as on a runtime that nobody drove. Those who ask now have time.
                let is_late = endpoint.timers.now() >= end;
                let end = if is_late { endpoint.deadline() } else { end };
                endpoint.enter(None, end).await
            }
        };
        once.connect(&endpoint.timers, deadline, home, endpoint, enter)
            .await
    }

    /// The next request reconnects. Requests in flight keep this connection until they are done.
    pub(crate) fn retire(&self, conn: &Arc<LiveConnection>) {
        self.0.once.retire(conn);
    }

    /// The server is a replica: another one is the primary.
    pub(crate) fn replaced(&self, conn: &Arc<LiveConnection>) {
        if self.0.once.retire(conn) {
            self.0.endpoint.replaced();
        } else {
            // A late reply says nothing about the server to which the next connection leads.
            self.0.endpoint.doubt();
        }
    }

    /// The server has too few replicas left: another one is or becomes the primary.
    pub(crate) fn demoted(&self, conn: &Arc<LiveConnection>) {
        self.retire(conn);
        self.0.endpoint.doubt();
    }

    pub(crate) fn close(&self) {
        self.0.attachments.clear();
        self.0.once.close();
    }

    pub(crate) fn attachments(&self) -> &Attachments {
        &self.0.attachments
    }

    /// A second connection to the same endpoint.
    pub(crate) fn sibling(&self) -> Self {
        self.sibling_on(self.0.home.clone())
    }

    /// As [`sibling`](Self::sibling), but on that runtime.
    pub(crate) fn sibling_on(&self, home: ConnectionRuntime) -> Self {
        Self::new(Arc::clone(&self.0.endpoint), home)
    }

    pub(crate) fn timers(&self) -> &Timers {
        &self.0.endpoint.timers
    }

    pub(crate) fn limit(&self) -> Duration {
        self.0.endpoint.limit
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        self.0.endpoint.deadline()
    }

    /// Sends one request and returns the reply, or an error at the deadline.
    pub(crate) async fn ask(&self, request: &Request, deadline: BootInstant) -> Result<Reply> {
        let conn = self.get(deadline).await?;
        self.settle(&conn, request, deadline)
            .await
            .map_err(|e| e.error())
    }

    pub(crate) async fn settle(
        &self,
        conn: &Arc<LiveConnection>,
        request: &impl Encode,
        deadline: BootInstant,
    ) -> Result<Reply, RequestError> {
        let timers = &self.0.endpoint.timers;
        // Pinned here: passed by value, it would take its space in the caller's future twice, and be copied with it.
        let asking = std::pin::pin!(conn.ask_until(deadline, request));
        let result = timers.until(deadline, asking).await;
        let result = result.unwrap_or_else(|| Err(self.mute()));
        self.judge(conn, &result);
        result
    }

    /// Sends several requests as one pipeline, and returns the replies before the deadline.
    pub(crate) async fn settle_all(
        &self,
        conn: &Arc<LiveConnection>,
        requests: &[Request],
        deadline: BootInstant,
    ) -> Result<Vec<CommandResult>, RequestError> {
        let asking = conn.ask_all_until(deadline, requests);
        let answers = self.0.endpoint.timers.until(deadline, asking).await;
        let answers = answers.unwrap_or_else(|| Err(self.mute()));
        match answers {
            Err(failure) => {
                let result = Err(failure);
                self.judge(conn, &result);
                result.map(|_: Reply| Vec::new())
            }
            Ok(outcomes) => {
                for server_error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
                    let failure = RequestError::Server(server_error.clone());
                    self.judge(conn, &Err(failure));
                }
                Ok(outcomes)
            }
        }
    }

    fn mute(&self) -> RequestError {
        RequestError::Broken(format!("no answer within {:?}", self.0.endpoint.limit))
    }

    /// Retires the connection if the reply shows that it is broken, logged out, or connected to a replica.
    fn judge(&self, conn: &Arc<LiveConnection>, result: &Result<Reply, RequestError>) {
        match result {
            // The connection may be half-open, and TCP would need minutes to notice.
            Err(RequestError::Broken(_)) => self.retire(conn),
            Err(RequestError::Server(server_error)) if server_error.ends_session() => {
                self.retire(conn);
            }
            Err(RequestError::Server(server_error)) if server_error.is_replica() => {
                self.replaced(conn);
            }
            Ok(reply) if reply.says_replica() => self.replaced(conn),
            _ => {}
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.endpoint.fmt(f)
    }
}

#[cfg(test)]
mod tests;
