//! One live connection to a member: gRPC over HTTP/2. No other file uses the drivers `hyper` and `tonic` for a
//! connection.
//!
//! The driver only frames messages and matches responses to requests. It never retries, never reconnects and has no
//! timeout; the callers add those.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::future::{AbortHandle, Abortable};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::http::{Request, Response, Uri, uri::PathAndQuery};
use hyper_util::rt::TokioIo;
use tonic::Streaming;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::metadata::AsciiMetadataValue;
use tonic_prost::ProstCodec;

use crate::engine::runtime::event::Flag;
use crate::error::Result;
use crate::store::connect_once::ConnectionRuntime;
use crate::store::etcd::address::MemberAddress;
use crate::store::etcd::api::{AuthenticateRequest, AuthenticateResponse, Nothing};
use crate::store::etcd::errors::{RequestError, TransportFailure};
use crate::store::etcd::stream;

/// Alias for the bounds that every message needs.
pub(crate) trait GrpcMessage: prost::Message + Default + 'static {}
impl<M: prost::Message + Default + 'static> GrpcMessage for M {}

/// The largest answer that is read. The default of 4 MiB would be too little for a queue of some thousand keys with long
/// names: then nobody could read that queue any more.
const LARGEST_ANSWER: usize = 64 << 20;

/// A live connection.
pub(crate) struct LiveConnection {
    grpc: Grpc<GrpcChannel>,
    /// The login's token, sent with every request. `None`: no login, or authentication is off.
    token: Option<AsciiMetadataValue>,
    address: MemberAddress,
    /// The driver's task has ended, so the connection is dead.
    over: Arc<AtomicBool>,
    /// Aborts the driver's task, which closes the connection.
    stop: AbortHandle,
    /// Set when requests no longer use the connection.
    given_up: Flag,
    /// A check is in progress.
    is_checked: AtomicBool,
}

/// Marks the connection dead when it is dropped. So the mark is set however the driver's task ends, even if its runtime
/// shuts down.
struct EndFlag(Arc<AtomicBool>);

impl Drop for EndFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Drop for LiveConnection {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl LiveConnection {
    /// Performs the HTTP/2 handshake and the login on an open stream. The driver's task runs on `home`. There is no
    /// timeout: the caller sets one.
    pub(crate) async fn open(
        address: &MemberAddress,
        stream: Pin<Box<dyn stream::ByteStream>>,
        login: Option<&(String, String)>,
        home: &ConnectionRuntime,
    ) -> Result<Self> {
        let broken = |e: hyper::Error| RequestError::Unsent(format!("{address}: {e}")).error();
        let (send, driver) = http2::handshake(Exec(home.clone()), TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let (stop, stopped) = AbortHandle::new_pair();
        let over = Arc::new(AtomicBool::new(false));
        let obituary = EndFlag(Arc::clone(&over));
        home.spawn(async move {
            let _obituary = obituary;
            // The requests in flight receive the error, so we can ignore it here.
            let _ = Abortable::new(driver, stopped).await;
        })?;
        let mut conn = Self {
            grpc: Grpc::with_origin(GrpcChannel(send), origin(address))
                .max_decoding_message_size(LARGEST_ANSWER),
            token: None,
            address: address.clone(),
            over,
            stop,
            given_up: Flag::default(),
            is_checked: AtomicBool::new(false),
        };
        if let Some((name, password)) = login {
            conn.token = conn
                .log_in(name, password)
                .await
                .map_err(RequestError::error)?;
        }
        Ok(conn)
    }

    async fn log_in(
        &self,
        name: &str,
        password: &str,
    ) -> Result<Option<AsciiMetadataValue>, RequestError> {
        let request = AuthenticateRequest {
            name: name.to_owned(),
            password: password.to_owned(),
        };
        let path = "/etcdserverpb.Auth/Authenticate";
        let answer: Result<AuthenticateResponse, _> = self.ask(path, request).await;
        match answer {
            Ok(answer) => AsciiMetadataValue::try_from(answer.token)
                .map(Some)
                .map_err(|_| RequestError::Broken("a token that cannot be sent".to_owned())),
            Err(failure) if failure.is_open_house() => {
                tracing::debug!(
                    "credentials are set, but the server does not require authentication"
                );
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    pub(crate) fn address(&self) -> &MemberAddress {
        &self.address
    }

    pub(crate) fn alive(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
    }

    /// Ends the streams of the connection. Requests in flight go on.
    pub(crate) fn give_up(&self) {
        self.given_up.set();
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.is_set()
    }

    /// False: a check is in progress, and another one would tell no more.
    pub(crate) fn begin_check(&self) -> bool {
        !self.is_checked.swap(true, Ordering::SeqCst)
    }

    pub(crate) fn end_check(&self) {
        self.is_checked.store(false, Ordering::SeqCst);
    }

    /// Asks for something that every member answers, if only with a refusal. The caller sets the timeout.
    pub(crate) async fn check(&self) -> Result<Nothing, RequestError> {
        self.ask("/etcdserverpb.Maintenance/Status", Nothing {})
            .await
    }

    /// Resolves when requests no longer use the connection.
    pub(crate) async fn given_up(&self) {
        self.given_up.happened().await;
    }

    /// Sends one request and waits for its response.
    pub(crate) async fn ask<Q: GrpcMessage, A: GrpcMessage>(
        &self,
        path: &'static str,
        question: Q,
    ) -> Result<A, RequestError> {
        let mut grpc = self.grpc.clone();
        ready(&mut grpc).await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(self.dressed(question), path, codec).await?;
        Ok(answer.into_inner())
    }

    /// Opens a stream in both directions.
    pub(crate) async fn talk<Q: GrpcMessage, A: GrpcMessage>(
        &self,
        path: &'static str,
        questions: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, RequestError> {
        let mut grpc = self.grpc.clone();
        ready(&mut grpc).await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let answers = grpc.streaming(self.dressed(questions), path, codec).await?;
        Ok(answers.into_inner())
    }

    /// Adds the metadata that every request carries.
    fn dressed<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        let words = request.metadata_mut();
        // This makes a member without a leader fail requests and watches at once. Otherwise a watch on an isolated
        // member would stay silent.
        words.insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            words.insert("token", token.clone());
        }
        request
    }
}

/// The next message of a stream; `None` at its end.
pub(crate) async fn next<A: GrpcMessage>(
    answers: &mut Streaming<A>,
) -> Result<Option<A>, RequestError> {
    Ok(answers.message().await?)
}

/// Waits until the connection takes a request. An error here is certain: nothing was sent.
async fn ready(grpc: &mut Grpc<GrpcChannel>) -> Result<(), RequestError> {
    grpc.ready()
        .await
        .map_err(|cut| RequestError::Unsent(cut.why))
}

fn origin(address: &MemberAddress) -> Uri {
    let scheme = if address.tls { "https" } else { "http" };
    let host = if address.host.contains(':') {
        format!("[{}]", address.host)
    } else {
        address.host.clone()
    };
    // A host that fits in no URI still has a working connection, and etcd ignores the name. So we use a placeholder.
    Uri::builder()
        .scheme(scheme)
        .authority(format!("{host}:{}", address.port))
        .path_and_query("/")
        .build()
        .unwrap_or_else(|_| Uri::from_static("http://etcd/"))
}

impl fmt::Debug for LiveConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.address, f)
    }
}

/// Adapts the HTTP/2 connection to the gRPC client.
#[derive(Clone)]
struct GrpcChannel(SendRequest<Body>);

impl GrpcService<Body> for GrpcChannel {
    type ResponseBody = Incoming;
    type Error = TransportFailure;
    type Future =
        Pin<Box<dyn Future<Output = Result<Response<Incoming>, TransportFailure>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportFailure>> {
        self.0.poll_ready(cx).map_err(|e| cut(&e, true))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.send_request(request);
        Box::pin(async move { answer.await.map_err(|e| cut(&e, e.is_canceled())) })
    }
}

/// Includes the source of the error: hyper's own text omits it.
fn cut(error: &hyper::Error, unsent: bool) -> TransportFailure {
    let deeper = std::error::Error::source(error).map_or_else(String::new, |e| format!(": {e}"));
    TransportFailure {
        unsent,
        why: format!("the connection broke: {error}{deeper}"),
    }
}

/// Spawns the driver's tasks on the runtime of the connection.
#[derive(Clone)]
struct Exec(ConnectionRuntime);

impl<F> hyper::rt::Executor<F> for Exec
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let spawned = self.0.spawn(async move {
            future.await;
        });
        if let Err(error) = spawned {
            // Not expected: hyper calls this only from the connection's own task, which runs on a runtime.
            tracing::error!(%error, "cannot start a task of the connection");
        }
    }
}
