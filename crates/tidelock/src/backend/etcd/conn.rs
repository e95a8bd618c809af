//! One connection to a member: HTTP/2, and gRPC over it. The only file that names the driver.
//!
//! The driver frames and matches. It retries nothing, connects to nothing by itself and has no time limit.

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

/// Everything a message must be able to do. One word for a list of bounds.
pub(super) trait Message: prost::Message + Default + 'static {}
impl<M: prost::Message + Default + 'static> Message for M {}

/// A connection that stands.
pub(super) struct Conn {
    grpc: Grpc<Pipe>,
    token: Option<AsciiMetadataValue>,
    place: Place,
    over: Arc<AtomicBool>,
    /// Ends the driver's task, and with it the connection.
    stop: AbortHandle,
}

/// Marks the end however the driver's task ends, also when its runtime goes.
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
    /// Logs in on a stream that stands. To be called where the connection is to live. The caller bounds the time.
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
            // How it ended is told to those who wait for an answer.
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

    /// One question, one answer.
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

    /// Questions and answers as they come.
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

    fn dressed<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        let words = request.metadata_mut();
        // A member that is cut off from the others says so at once, also to who is listening only.
        words.insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            words.insert("token", token.clone());
        }
        request
    }
}

/// What comes next; `None` at the end.
pub(super) async fn next<A: Message>(answers: &mut Streaming<A>) -> Result<Option<A>, Trouble> {
    Ok(answers.message().await?)
}

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
    // What no URI can name was connected to all the same; the member does not care how it is called.
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

/// The HTTP/2 connection, as gRPC wants it.
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

fn cut(error: &hyper::Error, unsent: bool) -> Cut {
    let deeper = std::error::Error::source(error).map_or_else(String::new, |e| format!(": {e}"));
    Cut {
        unsent,
        why: format!("the connection broke: {error}{deeper}"),
    }
}

/// Runs the driver's tasks where the connection lives.
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
            // Called from the connection's own task only, which has a runtime.
            tracing::error!(%error, "a task of a connection could not be started");
        }
    }
}
