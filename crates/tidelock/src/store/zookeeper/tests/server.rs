//! A ZooKeeper server on loopback, on the runtime of the test. It has sessions and watches, keeps its nodes in memory, and does
//! what a test asks of it at a request.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::{JoinHandle, JoinSet};

use crate::engine::runtime::sync::Mutex;
use crate::store::zookeeper::tests::in_time;
use crate::store::zookeeper::tests::jute::{JuteReader, JuteWriter, cut_frame};
use crate::store::zookeeper::tests::request::{ReadKind, TestRequest};
use crate::store::zookeeper::tests::tree::{CHILDREN_CHANGED, DELETED, ModelTree, NO_NODE};

/// A treatment of one request, instead of a plain answer.
pub(super) enum ServerFault {
    /// It answers with this error, and does nothing.
    Refuses(i32),
    /// It does nothing, and never answers.
    Ignores,
    /// It does what is asked, and never answers.
    LosesReply,
    /// It does what is asked, and closes the connection. The session stays.
    HangsUp,
    /// Others change the nodes first. Then it answers as always.
    After(Box<dyn FnOnce(&mut ModelTree) + Send>),
}

/// It ends when this is dropped.
pub(super) struct TestServer {
    pub(super) port: u16,
    state: Arc<ServerState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct ServerState {
    inner: Mutex<ServerInner>,
    /// Notified at each request.
    news: Notify,
}

struct ServerInner {
    tree: ModelTree,
    /// The frames for the connection of each session. `None`: it is disconnected.
    sessions: BTreeMap<i64, Option<FrameSender>>,
    last_session: i64,
    watches: Vec<ServerWatch>,
    faults: Vec<PlannedFault>,
    requests: Vec<String>,
    /// Instead of the session timeout that a client asks for.
    granted: Option<i32>,
    /// Connections that get no answer.
    silent: Vec<FrameSender>,
}

type FrameSender = UnboundedSender<Vec<u8>>;

#[derive(PartialEq, Eq)]
struct ServerWatch {
    session: i64,
    of_children: bool,
    path: String,
}

struct PlannedFault {
    /// `None`: any.
    session: Option<i64>,
    /// How the request begins.
    request: String,
    fault: ServerFault,
}

/// The other end of a connection.
struct ServerPeer {
    session: i64,
    /// `None`: it has a session.
    out: Option<FrameSender>,
}

impl TestServer {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<ServerState>::default();
        let own = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut peers = JoinSet::new();
            while let Ok((peer, _)) = listener.accept().await {
                // Otherwise each second message waits 40 ms until the client acknowledges the first one.
                peer.set_nodelay(true).unwrap();
                let state = Arc::clone(&own);
                peers.spawn(async move {
                    // An error: the client has closed the connection.
                    let _ = state.serve(peer).await;
                });
            }
        });
        Self { port, state, task }
    }

    /// The next request that begins so is treated so.
    pub(super) fn on(&self, request: &str, fault: ServerFault) {
        self.plan(None, request, fault);
    }

    /// As [`on`](Self::on), of one session.
    pub(super) fn on_session(&self, session: i64, request: &str, fault: ServerFault) {
        self.plan(Some(session), request, fault);
    }

    fn plan(&self, session: Option<i64>, request: &str, fault: ServerFault) {
        self.state.inner.lock().faults.push(PlannedFault {
            session,
            request: request.to_owned(),
            fault,
        });
    }

    /// As [`on`](Self::on): others make this change before the request.
    pub(super) fn before(
        &self,
        request: &str,
        change: impl FnOnce(&mut ModelTree) + Send + 'static,
    ) {
        self.on(request, ServerFault::After(Box::new(change)));
    }

    /// The requests so far that begin so.
    pub(super) fn heard(&self, request: &str) -> Vec<String> {
        let inner = self.state.inner.lock();
        let fit = inner.requests.iter();
        let fit = fit.filter(|text| text.starts_with(request));
        fit.cloned().collect()
    }

    /// Waits until it has heard so many of these requests.
    pub(super) async fn hears(&self, request: &str, count: usize) {
        let heard = async {
            loop {
                let news = self.state.news.notified();
                if self.heard(request).len() >= count {
                    return;
                }
                news.await;
            }
        };
        in_time(heard).await;
    }

    /// Reads or changes the nodes, as another client. Watches hear of it.
    pub(super) fn tree<T>(&self, change: impl FnOnce(&mut ModelTree) -> T) -> T {
        let mut inner = self.state.inner.lock();
        let result = change(&mut inner.tree);
        inner.tell();
        result
    }

    /// The names of the children. Empty: there is no such node, or it has none.
    pub(super) fn children(&self, path: &str) -> Vec<String> {
        self.tree(|tree| tree.children(path)).unwrap_or_default()
    }

    /// The data of a node, as text.
    pub(super) fn data(&self, path: &str) -> Option<String> {
        let data = self.tree(|tree| tree.node(path).map(|node| node.data.clone()));
        data.map(|data| String::from_utf8(data).unwrap())
    }

    /// The sessions that have not ended.
    pub(super) fn sessions(&self) -> Vec<i64> {
        self.state.inner.lock().sessions.keys().copied().collect()
    }

    /// Ends all sessions, as if it had heard nothing of them for too long.
    pub(super) fn expires_sessions(&self) {
        let mut inner = self.state.inner.lock();
        let sessions = mem::take(&mut inner.sessions);
        for session in sessions.keys() {
            inner.tree.end_session(*session);
        }
        inner.tell();
    }

    /// From now on it grants this session timeout, in milliseconds.
    pub(super) fn grants(&self, timeout: i32) {
        self.state.inner.lock().granted = Some(timeout);
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ServerState {
    async fn serve(&self, mut peer: TcpStream) -> io::Result<()> {
        let (out, mut frames) = mpsc::unbounded_channel();
        let mut own = ServerPeer {
            session: 0,
            out: Some(out),
        };
        let mut read: Vec<u8> = Vec::new();
        loop {
            tokio::select! {
                biased;
                frame = frames.recv() => match frame {
                    Some(frame) => peer.write_all(&frame).await?,
                    None => return Ok(()),
                },
                count = peer.read_buf(&mut read) => {
                    if count? == 0 {
                        return Ok(());
                    }
                    while let Some(frame) = cut_frame(&mut read) {
                        self.inner.lock().hear(&mut own, &frame);
                        self.news.notify_waiters();
                    }
                }
            }
        }
    }
}

impl Default for ServerInner {
    fn default() -> Self {
        Self {
            tree: ModelTree::new(),
            sessions: BTreeMap::new(),
            last_session: 1000,
            watches: Vec::new(),
            faults: Vec::new(),
            requests: Vec::new(),
            granted: None,
            silent: Vec::new(),
        }
    }
}

impl ServerInner {
    fn hear(&mut self, own: &mut ServerPeer, frame: &[u8]) {
        let mut fields = JuteReader(frame);
        if let Some(out) = own.out.take() {
            own.session = self.connect(&mut fields, out);
            return;
        }
        let session = own.session;
        // After a hang-up nothing is read from the connection any more.
        if !matches!(self.sessions.get(&session), Some(Some(_))) {
            return;
        }
        let (number, operation) = (fields.int(), fields.int());
        let request = TestRequest::read(operation, &mut fields);
        let text = request.text();
        let fault = self.fault(session, &text);
        self.requests.push(text);
        let answer = match fault {
            Some(ServerFault::Ignores) => return,
            Some(ServerFault::Refuses(code)) => Err(code),
            Some(ServerFault::After(change)) => {
                change(&mut self.tree);
                self.tell();
                self.answer(session, &request)
            }
            Some(fault @ (ServerFault::LosesReply | ServerFault::HangsUp)) => {
                let _ = self.answer(session, &request);
                if matches!(fault, ServerFault::HangsUp) {
                    self.sessions.insert(session, None);
                }
                return self.tell();
            }
            None => self.answer(session, &request),
        };
        self.tell();
        let (code, answer) = match answer {
            Ok(answer) => (0, answer),
            Err(code) => (code, JuteWriter::default()),
        };
        let header = JuteWriter::default()
            .int(number)
            .long(self.tree.zxid)
            .int(code);
        self.send(session, answer.behind(header));
        if matches!(request, TestRequest::Close) {
            self.sessions.remove(&session);
        }
    }

    /// Answers a connect. Returns its session; 0: it has ended.
    fn connect(&mut self, fields: &mut JuteReader<'_>, out: FrameSender) -> i64 {
        let (_, _, timeout, asked) = (fields.int(), fields.long(), fields.int(), fields.long());
        let text = format!("connect {timeout} {asked}");
        let fault = self.fault(asked, &text);
        self.requests.push(text);
        match fault {
            Some(ServerFault::Ignores) => {
                self.silent.push(out);
                return 0;
            }
            Some(_) => return 0,
            None => {}
        }
        let session = if asked == 0 {
            self.last_session += 1;
            self.last_session
        } else {
            asked * i64::from(self.sessions.contains_key(&asked))
        };
        let reply = JuteWriter::default()
            .int(0)
            .int(self.granted.unwrap_or(timeout))
            .long(session)
            .bytes(&[1; 16])
            .flag(false);
        // An error: the client has closed the connection.
        let _ = out.send(reply.frame());
        if session != 0 {
            self.sessions.insert(session, Some(out));
        }
        session
    }

    /// The fault that is planned for this request.
    fn fault(&mut self, session: i64, text: &str) -> Option<ServerFault> {
        let at = self.faults.iter().position(|planned| {
            planned.session.is_none_or(|of| of == session) && text.starts_with(&planned.request)
        })?;
        Some(self.faults.remove(at).fault)
    }

    fn answer(&mut self, session: i64, request: &TestRequest) -> Result<JuteWriter, i32> {
        let empty = JuteWriter::default();
        Ok(match request {
            TestRequest::Read {
                kind,
                path,
                watches,
            } => {
                let found = self.tree.node(path).is_some();
                if *watches && (found || *kind == ReadKind::Exists) {
                    self.watch(session, *kind, path);
                }
                if !found {
                    return Err(NO_NODE);
                }
                self.tree.shown(*kind, path)
            }
            TestRequest::Change(change) => {
                let changes = std::slice::from_ref(change);
                let paths = self.tree.commit(session, changes);
                let paths = paths.map_err(|(_, code)| code)?;
                self.tree.changed(change, &paths[0], empty)
            }
            TestRequest::Multi(changes) => self.tree.multi(session, changes),
            TestRequest::Sync(path) => empty.text(path),
            TestRequest::Close => {
                self.tree.end_session(session);
                empty
            }
            TestRequest::Plain(_) => empty,
        })
    }

    fn watch(&mut self, session: i64, kind: ReadKind, path: &str) {
        let watch = ServerWatch {
            session,
            of_children: kind == ReadKind::List,
            path: path.to_owned(),
        };
        if !self.watches.contains(&watch) {
            self.watches.push(watch);
        }
    }

    /// Tells the watches of what has changed.
    fn tell(&mut self) {
        for (event, path) in self.tree.take_events() {
            let hears = |watch: &ServerWatch| {
                let is_end = event == DELETED;
                let fits = is_end || watch.of_children == (event == CHILDREN_CHANGED);
                fits && watch.path == path
            };
            let watches = mem::take(&mut self.watches).into_iter();
            let (told, rest): (Vec<_>, Vec<_>) = watches.partition(hears);
            self.watches = rest;
            for watch in told {
                let header = JuteWriter::default().int(-1).long(self.tree.zxid).int(0);
                // 3: the session is connected.
                let note = header.int(event).int(3).text(&path);
                self.send(watch.session, note);
            }
        }
    }

    fn send(&self, session: i64, reply: JuteWriter) {
        if let Some(Some(out)) = self.sessions.get(&session) {
            // An error: the client has closed the connection.
            let _ = out.send(reply.frame());
        }
    }
}
