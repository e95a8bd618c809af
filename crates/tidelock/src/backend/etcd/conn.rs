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

use super::api::{AuthenticateRequest, AuthenticateResponse};
use super::errors::{Cut, Trouble};
use super::link::Home;
use super::url::Place;
use super::wire;
use crate::error::Result;

/// Alias for the bounds that every message needs.
pub(super) trait Message: prost::Message + Default + 'static {}
impl<M: prost::Message + Default + 'static> Message for M {}

/// A live connection.
pub(super) struct Conn {
    grpc: Grpc<Pipe>,
    /// The login's token, sent with every request. `None`: no login, or authentication is off.
    token: Option<AsciiMetadataValue>,
    place: Place,
    /// The driver's task has ended, so the connection is dead.
    over: Arc<AtomicBool>,
    /// Aborts the driver's task, which closes the connection.
    stop: AbortHandle,
}

/// Marks the connection dead when it is dropped. So the mark is set however the driver's task ends, even if its runtime
/// shuts down.
struct Obituary(Arc<AtomicBool>);

impl Drop for Obituary {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl Conn {
    /// Performs the HTTP/2 handshake and the login on an open stream. The driver's task runs on `home`. There is no
    /// timeout: the caller sets one.
    pub(super) async fn open(
        place: &Place,
        stream: Pin<Box<dyn wire::Stream>>,
        login: Option<&(String, String)>,
        home: &Home,
    ) -> Result<Self> {
        let broken = |e: hyper::Error| Trouble::Unsent(format!("{place}: {e}")).error();
        let (send, driver) = http2::handshake(Exec(home.clone()), TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let (stop, stopped) = AbortHandle::new_pair();
        let over = Arc::new(AtomicBool::new(false));
        let obituary = Obituary(Arc::clone(&over));
        home.spawn(async move {
            let _obituary = obituary;
            // The requests in flight receive the error, so we can ignore it here.
            let _ = Abortable::new(driver, stopped).await;
        })?;
        let mut conn = Self {
            grpc: Grpc::with_origin(Pipe(send), origin(place)),
            token: None,
            place: place.clone(),
            over,
            stop,
        };
        if let Some((name, password)) = login {
            conn.token = conn.log_in(name, password).await.map_err(Trouble::error)?;
        }
        Ok(conn)
    }

    async fn log_in(
        &self,
        name: &str,
        password: &str,
    ) -> Result<Option<AsciiMetadataValue>, Trouble> {
        let request = AuthenticateRequest {
            name: name.to_owned(),
            password: password.to_owned(),
        };
        let path = "/etcdserverpb.Auth/Authenticate";
        let answer: Result<AuthenticateResponse, _> = self.ask(path, request).await;
        match answer {
            Ok(answer) => AsciiMetadataValue::try_from(answer.token)
                .map(Some)
                .map_err(|_| Trouble::Broken("a token that cannot be sent".to_owned())),
            Err(trouble) if trouble.is_open_house() => {
                tracing::debug!("a user is given, and the server asks for none");
                Ok(None)
            }
            Err(trouble) => Err(trouble),
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn alive(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
    }

    /// Sends one request and waits for its response.
    pub(super) async fn ask<Q: Message, A: Message>(
        &self,
        path: &'static str,
        question: Q,
    ) -> Result<A, Trouble> {
        let mut grpc = self.grpc.clone();
        ready(&mut grpc).await?;
        let codec = ProstCodec::<Q, A>::default();
        let path = PathAndQuery::from_static(path);
        let answer = grpc.unary(self.dressed(question), path, codec).await?;
        Ok(answer.into_inner())
    }

    /// Opens a stream in both directions.
    pub(super) async fn talk<Q: Message, A: Message>(
        &self,
        path: &'static str,
        questions: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Trouble> {
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
pub(super) async fn next<A: Message>(answers: &mut Streaming<A>) -> Result<Option<A>, Trouble> {
    Ok(answers.message().await?)
}

/// Waits until the connection takes a request. An error here is certain: nothing was sent.
async fn ready(grpc: &mut Grpc<Pipe>) -> Result<(), Trouble> {
    grpc.ready().await.map_err(|cut| Trouble::Unsent(cut.why))
}

fn origin(place: &Place) -> Uri {
    let scheme = if place.tls { "https" } else { "http" };
    let host = if place.host.contains(':') {
        format!("[{}]", place.host)
    } else {
        place.host.clone()
    };
    // A host that fits in no URI still has a working connection, and etcd ignores the name. So we use a placeholder.
    Uri::builder()
        .scheme(scheme)
        .authority(format!("{host}:{}", place.port))
        .path_and_query("/")
        .build()
        .unwrap_or_else(|_| Uri::from_static("http://etcd/"))
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.place, f)
    }
}

/// Adapts the HTTP/2 connection to the gRPC client.
#[derive(Clone)]
struct Pipe(SendRequest<Body>);

impl GrpcService<Body> for Pipe {
    type ResponseBody = Incoming;
    type Error = Cut;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Cut>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        self.0.poll_ready(cx).map_err(|e| cut(&e, true))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.send_request(request);
        Box::pin(async move { answer.await.map_err(|e| cut(&e, e.is_canceled())) })
    }
}

/// Includes the source of the error: hyper's own text omits it.
fn cut(error: &hyper::Error, unsent: bool) -> Cut {
    let deeper = std::error::Error::source(error).map_or_else(String::new, |e| format!(": {e}"));
    Cut {
        unsent,
        why: format!("the connection broke: {error}{deeper}"),
    }
}

/// Spawns the driver's tasks on the runtime of the connection.
#[derive(Clone)]
struct Exec(Home);

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
            tracing::error!(%error, "a task of a connection could not be started");
        }
    }
}
