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
            Some(conn) => Ok(conn),
            None => Box::pin(self.connect(deadline)).await,
        }
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
        let asking = std::pin::pin!(conn.ask(request));
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
        let asking = conn.ask_all(requests);
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
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::runtime::Handle;

    use super::*;
    use crate::error::ErrorKind;
    use crate::store::redis::address::HostAddress;
    use crate::store::redis::topology::endpoint::{EndpointLogin, ServerFinder};
    use crate::store::redis::wire::live_connection::peer::{GREETED, HANDSHAKE, request_of};
    use crate::store::tls::handshake::peer::{TlsServer, hung_up, in_time};
    use crate::store::{Background, Clock};

    const LIMIT: Duration = Duration::from_secs(10);

    /// A connection on tokio's clock, which a test may pause.
    fn connection_to(server: &TlsServer) -> Connection {
        let (background, _) = Background::start(Clock::Simulated).unwrap();
        let timers = Timers::new(Clock::Simulated);
        background.spawn(timers.clone().drive());
        let address = HostAddress::Tcp {
            host: "127.0.0.1".to_owned(),
            port: server.port(),
            tls: true,
        };
        let entry = EndpointLogin {
            tls: server.files(),
            ..EndpointLogin::default()
        };
        let endpoint = Endpoint::new(ServerFinder::Fixed(address), entry, timers, LIMIT);
        Connection::new(Arc::new(endpoint), ConnectionRuntime::Caller)
    }

    /// The server reads the requests of a new connection, and answers them.
    async fn welcomes(server: &TlsServer) -> impl Sized {
        let mut peer = server.serves().await;
        let looks = "+PONG\r\n-ERR unknown\r\n";
        for (requests, answers) in [
            (&HANDSHAKE[..], GREETED),
            (&["PING", "INFO replication"][..], looks),
        ] {
            let mut expected = Vec::new();
            for request in requests {
                request_of(request).write(&mut expected);
            }
            let mut heard = vec![0; expected.len()];
            peer.read_exact(&mut heard).await.unwrap();
            assert_eq!(String::from_utf8(heard), String::from_utf8(expected));
            peer.write_all(answers.as_bytes()).await.unwrap();
            peer.flush().await.unwrap();
        }
        peer
    }

    #[tokio::test]
    async fn a_tls_server_that_is_frozen_is_given_up_in_time_and_connected_to_later() {
        let server = TlsServer::start().await;
        let connection = connection_to(&server);
        let begun = connection.timers().now();
        // The caller waits for longer than an attempt may take: the error of the attempt says more than its own.
        let (refusal, peer) = tokio::join!(connection.get(begun + LIMIT * 2), server.freezes());
        let waited = connection.timers().now().since(begun);
        tokio::time::resume();
        assert!((LIMIT..LIMIT * 2).contains(&waited), "{waited:?}");
        let error = refusal.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let told = format!(
            "rediss://127.0.0.1:{}: no connection within 10s; if the port speaks plain text, write redis:// instead of rediss://",
            server.port()
        );
        assert_eq!(error.detail(), Some(&*told));
        hung_up(peer).await;
        let again = connection.get(connection.deadline());
        let (again, _peer) = in_time(async { tokio::join!(again, welcomes(&server)) }).await;
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

    /// The attempt runs on the runtime of its caller, which is busy when it should begin. The server accepts and stays silent.
    #[tokio::test]
    async fn an_attempt_that_begins_late_still_tells_its_caller_why_it_failed() {
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let timers = Timers::new(Clock::Boot);
        background.spawn(timers.clone().drive());
        let address = HostAddress::Tcp {
            host: "127.0.0.1".to_owned(),
            port: mute.local_addr().unwrap().port(),
            tls: false,
        };
        let (finder, limit) = (ServerFinder::Fixed(address), Duration::from_secs(2));
        let endpoint = Endpoint::new(finder, EndpointLogin::default(), timers, limit);
        let connection = Connection::new(Arc::new(endpoint), ConnectionRuntime::Caller);
        let deadline = connection.deadline() + limit / 4;
        let mut get = std::pin::pin!(connection.get(deadline));
        assert!(get.as_mut().now_or_never().is_none());
        std::thread::sleep(limit / 2);
        let error = get.await.unwrap_err().to_string();
        assert!(error.contains("no connection within 2s"), "{error}");
    }

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
