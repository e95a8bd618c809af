//! The model of etcd behind etcd's protocol, on loopback: gRPC over HTTP/2. All of it runs on the runtime of the test.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::{pending, ready};
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tonic::body::Body;
use tonic::codec::{Codec, EncodeBody, SingleMessageCompressionOverride};
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::engine::runtime::event::Event;
use crate::engine::runtime::sync::Mutex;
use crate::store::etcd::api::{
    LeaseGrantRequest, LeaseRequest, LeaseResponse, Nothing, WatchCreateRequest, WatchRequest,
    WatchResponse, Watching,
};
use crate::store::etcd::live_connection::GrpcMessage;
use crate::store::etcd::tests::model::{ModelEtcd, is_inside};
use crate::store::etcd::tests::settings::Settings;
use crate::store::tls::handshake::peer::in_time;

/// How one request is served.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Turn {
    /// It is executed and answered.
    Usual,
    /// As usual, after something that another client does.
    Meanwhile(fn(&mut ModelEtcd)),
    /// It is executed, and the answer is lost.
    Lost,
    /// It is not executed, and this is the error.
    Fails(Code, &'static str),
    /// It is neither executed nor answered.
    Silent,
}

/// A server. It ends when this is dropped.
pub(crate) struct ModelServer {
    pub(crate) port: u16,
    state: Arc<ServerState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
pub(crate) struct ServerState {
    pub(crate) etcd: Mutex<ModelEtcd>,
    pub(crate) settings: Mutex<Settings>,
    /// By the name of the method. Requests that come later are served as usual.
    turns: Mutex<HashMap<String, VecDeque<Turn>>>,
    heard: Mutex<Vec<HeardRequest>>,
    /// Notified at each request.
    news: Event,
    watches: Mutex<Vec<ModelWatch>>,
    connections: Mutex<Vec<AbortHandle>>,
}

/// The call that a request belongs to: a stream has several requests.
#[derive(Clone)]
struct HeardCall {
    connection: usize,
    method: String,
    token: Option<String>,
    wants_leader: bool,
}

struct HeardRequest {
    call: HeardCall,
    message: Vec<u8>,
}

struct ModelWatch {
    connection: usize,
    create: WatchCreateRequest,
    say: UnboundedSender<Result<WatchResponse, Status>>,
}

/// The answer is lost.
#[derive(Debug)]
struct LostReply;

impl fmt::Display for LostReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is lost")
    }
}

impl std::error::Error for LostReply {}

impl ModelServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<ServerState>::default();
        let own = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut peers = JoinSet::new();
            for connection in 0.. {
                let Ok((peer, _)) = listener.accept().await else {
                    return;
                };
                let peer = peers.spawn(converse(Arc::clone(&own), connection, peer));
                own.connections.lock().push(peer);
            }
        });
        Self { port, state, task }
    }

    /// Looks at the keys and leases, or changes them. Watchers are told what was changed.
    pub(crate) fn etcd<T>(&self, act: impl FnOnce(&mut ModelEtcd) -> T) -> T {
        let result = act(&mut self.state.etcd.lock());
        self.state.tell();
        result
    }

    /// Changes how it serves.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.state.settings.lock());
    }

    /// The next requests of this method are served so, one after the other.
    pub(crate) fn in_turn(&self, method: &str, turns: &[Turn]) {
        let turns = turns.iter().copied().collect();
        self.state.turns.lock().insert(method.to_owned(), turns);
    }

    /// The requests of this method so far.
    pub(crate) fn heard<Q: GrpcMessage>(&self, method: &str) -> Vec<Q> {
        let heard = self.state.heard.lock();
        let heard = heard.iter().filter(|one| one.call.method == method);
        heard.map(|one| Q::decode(&*one.message).unwrap()).collect()
    }

    pub(crate) fn forget_heard(&self) {
        self.state.heard.lock().clear();
    }

    /// Waits until it has heard so many requests of this method.
    pub(crate) async fn hears(&self, method: &str, count: usize) {
        let state = &self.state;
        let heard = || state.calls(method, |_| ()).len() >= count;
        in_time(state.news.until(heard)).await;
    }

    /// The numbers of the connections on which requests of this method came.
    pub(crate) fn connections(&self, method: &str) -> Vec<usize> {
        self.state.calls(method, |call| call.connection)
    }

    /// The tokens with which requests of this method came, each with whether it wants a member that has a leader.
    pub(crate) fn tokens(&self, method: &str) -> Vec<(Option<String>, bool)> {
        let each = |call: &HeardCall| (call.token.clone(), call.wants_leader);
        self.state.calls(method, each)
    }

    /// Closes all connections.
    pub(crate) fn hang_up(&self) {
        self.state.hang_up();
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn converse(state: Arc<ServerState>, connection: usize, peer: TcpStream) {
    let service = service_fn(move |request: Request<Incoming>| {
        Arc::clone(&state).serve(HeardCall::of(connection, &request), request)
    });
    let server = http2::Builder::new(TokioExecutor::new());
    // An error: the client has closed the connection.
    let _ = server.serve_connection(TokioIo::new(peer), service).await;
}

impl HeardCall {
    fn of(connection: usize, request: &Request<Incoming>) -> Self {
        let text = |name: &str| {
            let value = request.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let path = request.uri().path();
        Self {
            connection,
            method: path.rsplit('/').next().unwrap_or_default().to_owned(),
            token: text("token"),
            wants_leader: text("hasleader").is_some_and(|wants| wants == "true"),
        }
    }
}

impl ServerState {
    async fn serve(
        self: Arc<Self>,
        call: HeardCall,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, LostReply> {
        let path = request.uri().path().to_owned();
        match &*path {
            "/etcdserverpb.KV/Txn" => self.once(call, request, Self::txn).await,
            "/etcdserverpb.KV/Range" => self.once(call, request, Self::range).await,
            "/etcdserverpb.KV/Put" => self.once(call, request, Self::put).await,
            "/etcdserverpb.Lease/LeaseGrant" => {
                let grant = |state: &Self, asked: &LeaseGrantRequest| Ok(state.grant(asked));
                self.once(call, request, grant).await
            }
            "/etcdserverpb.Lease/LeaseRevoke" => self.once(call, request, Self::revoke).await,
            "/etcdserverpb.Lease/LeaseTimeToLive" => {
                let left = |state: &Self, lease: &LeaseRequest| Ok(state.left(lease));
                self.once(call, request, left).await
            }
            "/etcdserverpb.Lease/LeaseKeepAlive" => Ok(self.keeps_alive(call, request)),
            "/etcdserverpb.Watch/Watch" => Ok(self.watches(call, request)),
            "/etcdserverpb.Auth/Authenticate" => self.once(call, request, Self::log_in).await,
            "/etcdserverpb.Maintenance/Status" => {
                let status = |state: &Self, _: &Nothing| Ok(state.status());
                self.once(call, request, status).await
            }
            "/etcdserverpb.Cluster/MemberList" => self.once(call, request, Self::members).await,
            _ => {
                let unknown = Status::new(Code::Unimplemented, "no such method");
                Ok(answers::<Nothing>(stream::once(ready(Err(unknown)))))
            }
        }
    }

    /// Serves a call with one request and one answer.
    async fn once<Q: GrpcMessage, A: GrpcMessage>(
        &self,
        call: HeardCall,
        request: Request<Incoming>,
        execute: fn(&Self, &Q) -> Result<A, Status>,
    ) -> Result<Response<Body>, LostReply> {
        let question = questions::<Q>(request).message().await;
        let question = question.map_err(|_| LostReply)?.ok_or(LostReply)?;
        let turn = self.hear(&call, &question);
        let answer = match turn {
            Turn::Usual | Turn::Lost => execute(self, &question),
            Turn::Meanwhile(act) => {
                act(&mut self.etcd.lock());
                execute(self, &question)
            }
            Turn::Fails(code, text) => Err(Status::new(code, text)),
            Turn::Silent => return pending().await,
        };
        self.tell();
        if matches!(turn, Turn::Lost) {
            return Err(LostReply);
        }
        Ok(answers(stream::once(ready(answer))))
    }

    fn keeps_alive(self: Arc<Self>, call: HeardCall, request: Request<Incoming>) -> Response<Body> {
        let kept = questions::<LeaseRequest>(request).then(move |question| {
            let (state, call) = (Arc::clone(&self), call.clone());
            async move { state.kept_alive(&call, &question?).await }
        });
        answers(kept)
    }

    async fn kept_alive(
        &self,
        call: &HeardCall,
        question: &LeaseRequest,
    ) -> Result<LeaseResponse, Status> {
        match self.hear(call, question) {
            Turn::Usual => {}
            Turn::Meanwhile(act) => act(&mut self.etcd.lock()),
            Turn::Fails(code, text) => return Err(Status::new(code, text)),
            Turn::Lost => {
                self.hang_up();
                return pending().await;
            }
            Turn::Silent => return pending().await,
        }
        self.check_lease(question.id)?;
        let (id, ttl) = (question.id, self.etcd.lock().ttl(question.id));
        Ok(LeaseResponse { id, ttl })
    }

    fn watches(self: Arc<Self>, call: HeardCall, request: Request<Incoming>) -> Response<Body> {
        let (say, said) = unbounded_channel();
        let mut questions = questions::<WatchRequest>(request);
        tokio::spawn(async move {
            while let Ok(Some(question)) = questions.message().await {
                self.hear_of_watch(&call, &question, &say);
            }
        });
        answers(stream::unfold(said, |mut said| async move {
            let one = said.recv().await?;
            Some((one, said))
        }))
    }

    fn hear_of_watch(
        &self,
        call: &HeardCall,
        question: &WatchRequest,
        say: &UnboundedSender<Result<WatchResponse, Status>>,
    ) {
        let is_usual = match self.hear(call, question) {
            Turn::Usual => true,
            Turn::Meanwhile(act) => {
                act(&mut self.etcd.lock());
                true
            }
            Turn::Fails(code, text) => {
                let _ = say.send(Err(Status::new(code, text)));
                false
            }
            Turn::Lost => {
                self.hang_up();
                false
            }
            Turn::Silent => false,
        };
        let Some(watching) = question.watching.as_ref().filter(|_| is_usual) else {
            return;
        };
        let (watch_id, created) = match watching {
            Watching::Create(create) => {
                self.watches.lock().push(ModelWatch {
                    connection: call.connection,
                    create: create.clone(),
                    say: say.clone(),
                });
                (create.watch_id, true)
            }
            Watching::Cancel(cancel) => {
                let is_other = |watch: &ModelWatch| {
                    (watch.connection, watch.create.watch_id) != (call.connection, cancel.id)
                };
                self.watches.lock().retain(is_other);
                (cancel.id, false)
            }
        };
        // An error: the client has left.
        let _ = say.send(Ok(WatchResponse {
            header: Some(self.etcd.lock().header()),
            watch_id,
            created,
            canceled: !created,
            ..WatchResponse::default()
        }));
    }

    /// Tells the watchers what has changed.
    fn tell(&self) {
        let (changes, header) = {
            let mut etcd = self.etcd.lock();
            (std::mem::take(&mut etcd.changes), etcd.header())
        };
        for (key, is_deleted) in changes {
            for watch in &*self.watches.lock() {
                let create = &watch.create;
                let wants = is_deleted || create.filters.is_empty();
                if wants && is_inside(&key, &create.key, &create.range_end) {
                    let _ = watch.say.send(Ok(WatchResponse {
                        header: Some(header.clone()),
                        watch_id: create.watch_id,
                        events: vec![Nothing {}],
                        ..WatchResponse::default()
                    }));
                }
            }
        }
    }

    /// Records a request, and decides how it is served.
    fn hear(&self, call: &HeardCall, question: &impl GrpcMessage) -> Turn {
        self.heard.lock().push(HeardRequest {
            call: call.clone(),
            message: question.encode_to_vec(),
        });
        let mut turns = self.turns.lock();
        let turn = turns.get_mut(&call.method).and_then(VecDeque::pop_front);
        drop(turns);
        self.news.notify();
        turn.unwrap_or(Turn::Usual)
    }

    fn calls<T>(&self, method: &str, each: impl Fn(&HeardCall) -> T) -> Vec<T> {
        let heard = self.heard.lock();
        let heard = heard.iter().filter(|one| one.call.method == method);
        heard.map(|one| each(&one.call)).collect()
    }

    fn hang_up(&self) {
        for connection in self.connections.lock().drain(..) {
            connection.abort();
        }
    }
}

fn questions<Q: GrpcMessage>(request: Request<Incoming>) -> Streaming<Q> {
    let decoder = ProstCodec::<Nothing, Q>::default().decoder();
    Streaming::new_request(decoder, request.into_body(), None, None)
}

fn answers<A: GrpcMessage>(
    said: impl Stream<Item = Result<A, Status>> + Send + 'static,
) -> Response<Body> {
    let encoder = ProstCodec::<A, Nothing>::default().encoder();
    let uncompressed = SingleMessageCompressionOverride::default();
    let body = EncodeBody::new_server(encoder, said, None, uncompressed, None);
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, grpc);
    response
}
