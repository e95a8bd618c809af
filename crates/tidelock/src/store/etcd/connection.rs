//! A reconnecting connection: connects on first use, and reconnects after a failure, perhaps to another member.
//!
//! We try the members in turn and start with the one that worked last. The first one that accepts us is used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::Credentials;
use crate::error::Result;
use crate::store::connect_once::{ConnectOnce, ConnectionRuntime, MayEnd};
use crate::store::credentials::given_by;
use crate::store::etcd::address::MemberAddress;
use crate::store::etcd::errors::{RequestError, unsent};
use crate::store::etcd::live_connection::{GrpcMessage, LiveConnection};
use crate::store::etcd::stream;
use crate::store::{Background, BootInstant, Env, Timers, TlsFiles};

/// Endpoint: the addresses of the members, the login, TLS and timeouts.
pub(crate) struct Endpoint {
    pub(crate) places: Vec<MemberAddress>,
    /// The user and the password of the URL.
    pub(crate) login: Credentials,
    /// If set, called at each connect, and replaces `login`: passwords may be rotated while the client runs. A password
    /// without a user is for the user of `login`.
    pub(crate) credentials: Option<Arc<dyn Fn() -> Credentials + Send + Sync>>,
    pub(crate) tls: TlsFiles,
    pub(crate) timers: Timers,
    pub(crate) background: Background,
    /// Bounds a request, including a reconnect that it needs.
    pub(crate) limit: Duration,
    /// The member to try first; modulo the number of members.
    pub(crate) next_member: AtomicUsize,
}

impl Endpoint {
    pub(crate) fn new(places: Vec<MemberAddress>, login: Credentials, env: &Env) -> Self {
        Self {
            places,
            login,
            credentials: env.credentials.clone(),
            tls: env.tls.clone(),
            timers: env.timers.clone(),
            background: env.background.clone(),
            limit: env.response_timeout,
            next_member: AtomicUsize::new(0),
        }
    }

    /// Connects to the first member that accepts us. Starts with the member that `next_member` selects.
    async fn enter(
        &self,
        home: &ConnectionRuntime,
        deadline: BootInstant,
    ) -> Result<LiveConnection> {
        let login = match &self.credentials {
            Some(source) => given_by(source, self.login.user.as_deref()).await?,
            None => self.login.clone(),
        };
        let login = login.user.zip(login.password);
        let count = self.places.len();
        let first = self.next_member.load(Ordering::Relaxed);
        let mut last_error = None;
        for step in 0..count {
            let address = &self.places[(first + step) % count];
            // Divide the remaining time among the remaining members. Otherwise one silent member could use all of it.
            let left = deadline.since(self.timers.now());
            let share = left / u32::try_from(count - step).unwrap_or(1);
            let end = self.timers.now() + share;
            let late = || unsent(format_args!("{address}: no answer in time"));
            let dialled = self
                .timers
                .until(end, stream::dial(address, &self.tls, &self.timers))
                .await;
            let stream = match dialled.unwrap_or_else(|| Err(late())) {
                Ok(stream) => stream,
                // Try the next member, even after a TLS error: its certificate may be valid.
                Err(error) => {
                    last_error = Some(error);
                    continue;
                }
            };
            let opening = LiveConnection::open(address, stream, login.as_ref(), home);
            match self.timers.until(end, opening).await {
                Some(Ok(conn)) => {
                    self.next_member.store(first + step, Ordering::Relaxed);
                    return Ok(conn);
                }
                // A permanent error, such as a refused login, is the same at every member. So we stop here.
                Some(Err(error)) if !error.is_retryable() => return Err(error),
                Some(Err(error)) => last_error = Some(error),
                None => last_error = Some(late()),
            }
        }
        let last_error = last_error
            .unwrap_or_else(|| unsent(format_args!("{self}: no member could be reached")));
        // A login changes no lock, so an unknown outcome is not reported as one.
        Err(last_error.without_effect())
    }

    /// Starts the next connect with the next member, unless `next_member` has already moved on from this one.
    fn doubt(&self, address: &MemberAddress) {
        let next_member = self.next_member.load(Ordering::Relaxed);
        if self.places[next_member % self.places.len()] == *address {
            self.next_member.store(next_member + 1, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self.places.iter().map(ToString::to_string).collect();
        f.write_str(&places.join(", "))
    }
}

/// A connection that is opened on demand, and replaced when it dies.
pub(crate) struct Connection {
    pub(crate) endpoint: Arc<Endpoint>,
    home: ConnectionRuntime,
    once: ConnectOnce<LiveConnection>,
}

impl MayEnd for LiveConnection {
    fn has_ended(&self) -> bool {
        !self.alive() || self.is_given_up()
    }
}

impl Connection {
    pub(crate) fn new(endpoint: Arc<Endpoint>, home: ConnectionRuntime) -> Self {
        Self {
            endpoint,
            home,
            once: ConnectOnce::new(),
        }
    }

    /// The deadline of a request that starts now.
    pub(crate) fn deadline(&self) -> BootInstant {
        self.endpoint.timers.now() + self.endpoint.limit
    }

    /// The live connection; connects before the deadline if there is none.
    pub(crate) async fn get(&self, deadline: BootInstant) -> Result<Arc<LiveConnection>> {
        match self.once.live() {
            Some(conn) => Ok(conn),
            None => Box::pin(self.connect(deadline)).await,
        }
    }

    async fn connect(&self, deadline: BootInstant) -> Result<Arc<LiveConnection>> {
        let Self {
            endpoint,
            home,
            once,
        } = self;
        let enter = || {
            let (endpoint, home) = (Arc::clone(endpoint), home.clone());
            async move {
                let end = endpoint.timers.now() + endpoint.limit;
                endpoint.enter(&home, end).await
            }
        };
        once.connect(&endpoint.timers, deadline, home, endpoint, enter)
            .await
    }

    /// Stops using a broken connection; requests in flight keep it until they end. The next request reconnects,
    /// starting with the next member.
    pub(crate) fn retire(&self, conn: &Arc<LiveConnection>) {
        if self.once.retire(conn) {
            self.endpoint.doubt(conn.address());
        }
        // Last, so that the watch stream reconnects to another member too.
        conn.give_up();
    }

    pub(crate) fn close(&self) {
        self.once.close();
    }

    /// Sends one request and waits for its answer until the deadline. Sends it a second time only if the server asks
    /// for a new login: the first one then had no effect.
    pub(crate) async fn ask<Q: GrpcMessage + Clone, A: GrpcMessage>(
        &self,
        path: &'static str,
        question: Q,
        deadline: BootInstant,
    ) -> Result<A, RequestError> {
        self.with(deadline, |conn| {
            let question = question.clone();
            async move { conn.ask(path, question).await }
        })
        .await
    }

    /// Runs `talk` on the connection until the deadline. Runs it a second time, on a new connection, if the server asks
    /// for a new login: such a request had no effect.
    pub(crate) async fn with<T, F>(
        &self,
        deadline: BootInstant,
        talk: impl Fn(Arc<LiveConnection>) -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, RequestError>>,
    {
        let mut logged_in = false;
        loop {
            let conn = self.get(deadline).await.map_err(RequestError::Classified)?;
            let talking = std::pin::pin!(talk(Arc::clone(&conn)));
            let mut caller = CheckOnDrop {
                endpoint: &self.endpoint,
                conn: &conn,
                is_done: false,
            };
            let answer = self.endpoint.timers.until(deadline, talking).await;
            caller.is_done = true;
            let answer = answer.unwrap_or_else(|| {
                let why = format!("{}: no answer in time", conn.address());
                Err(RequestError::Broken(why))
            });
            match answer {
                Err(failure) if failure.wants_login() && !logged_in => {
                    logged_in = true;
                    // The next request reconnects to the same member. The watch stream must follow: it has the token of
                    // this connection.
                    self.once.retire(&conn);
                    conn.give_up();
                }
                Err(failure) => {
                    if failure.ends_connection() {
                        // The connection may be half-open, and TCP would take minutes to notice.
                        self.retire(&conn);
                    }
                    return Err(failure);
                }
                answer => return answer,
            }
        }
    }
}

/// A caller that waits for its answer. If it leaves before, the connection is checked: it may be half-open, and nobody else
/// might wait long enough to notice.
struct CheckOnDrop<'a> {
    endpoint: &'a Arc<Endpoint>,
    conn: &'a Arc<LiveConnection>,
    /// It has an answer, or its deadline has passed.
    is_done: bool,
}

impl Drop for CheckOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_done || self.conn.has_ended() || !self.conn.begin_check() {
            return;
        }
        let (endpoint, conn) = (Arc::clone(self.endpoint), Arc::clone(self.conn));
        self.endpoint.background.spawn(async move {
            let checked = endpoint.timers.limit(endpoint.limit, conn.check()).await;
            let is_dead = checked.is_none_or(|answer| answer.is_err_and(|e| e.ends_connection()));
            // A caller that stayed may have given it up before: the member that comes next is not the one to doubt.
            if is_dead && !conn.is_given_up() {
                endpoint.doubt(conn.address());
                conn.give_up();
            }
            conn.end_check();
        });
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.endpoint.to_string())
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::tests::clock::simulated;
    use crate::store::tls::handshake::peer::{TlsServer, hung_up, in_time};

    const LIMIT: Duration = Duration::from_secs(10);

    /// A connection on tokio's clock, which a test may pause.
    fn connection_to(server: &TlsServer) -> Connection {
        let (background, timers) = simulated();
        let env = Env {
            tls: server.files(),
            ..Env::of_limits(timers, background, LIMIT)
        };
        let member = MemberAddress {
            host: "127.0.0.1".to_owned(),
            port: server.port(),
            tls: true,
        };
        let endpoint = Endpoint::new(vec![member], Credentials::default(), &env);
        Connection::new(Arc::new(endpoint), ConnectionRuntime::Caller)
    }

    #[tokio::test]
    async fn a_tls_member_that_is_frozen_is_given_up_in_time_and_connected_to_later() {
        let server = TlsServer::start().await;
        let connection = connection_to(&server);
        let timers = connection.endpoint.timers.clone();
        let begun = timers.now();
        // The caller waits for longer than an attempt may take: the error of the attempt says more than its own.
        let (refusal, peer) = tokio::join!(connection.get(begun + LIMIT * 2), server.freezes());
        let waited = timers.now().since(begun);
        tokio::time::resume();
        assert!((LIMIT..LIMIT * 2).contains(&waited), "{waited:?}");
        let error = refusal.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let told = format!("etcds://127.0.0.1:{}: no answer in time", server.port());
        assert_eq!(error.detail(), Some(&*told));
        hung_up(peer).await;
        let again = connection.get(connection.deadline());
        let (again, _peer) = in_time(async { tokio::join!(again, server.serves()) }).await;
        assert!(again.unwrap().alive());
    }

    #[tokio::test]
    async fn a_connection_that_is_dropped_in_a_tls_handshake_hangs_up_and_leaves_no_task() {
        let server = TlsServer::start().await;
        let connection = connection_to(&server);
        let tasks = || Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        let peer = tokio::select! {
            result = connection.get(connection.deadline()) => panic!("no answer: {result:?}"),
            peer = in_time(server.hears_a_hello()) => peer,
        };
        // The next caller would use its connection.
        assert_eq!(tasks(), before + 1, "the attempt goes on");
        drop(connection);
        hung_up(peer).await;
        assert_eq!(tasks(), before);
    }
}
