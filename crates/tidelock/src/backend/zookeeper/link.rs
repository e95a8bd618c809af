//! A session of the client, made anew when it has ended.
//!
//! Both faces of the store share it. A node lives as long as the session that made it, so only requests on that session
//! can renew a lock, and its requests take effect in the order in which they were sent: a withdrawal that is sent after
//! an acquire arrives after it. The driver's task runs on the steward's thread, where no caller can block it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use zookeeper_client as zk;

use super::place::Place;
use super::trouble;
use crate::backend::{Bond, Env, Moment};
use crate::error::{Error, ErrorKind, Result};

/// The way to the servers.
pub(super) struct Link {
    env: Env,
    place: Place,
    /// The leases of this session are of this length or shorter, as far as the server allows.
    lease: Duration,
    slot: Arc<Slot>,
}

#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    /// Rung whenever a try to connect has ended.
    bell: Notify,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// The end of the last one that was closed.
    closing: Option<zk::StateWatcher>,
    connecting: bool,
    /// How many tries have ended.
    tries: u64,
    /// How the last of them failed.
    trouble: Option<(ErrorKind, String)>,
}

/// One life of the client's nodes.
pub(super) struct Session {
    pub(super) client: zk::Client,
    /// When the last request was sent that is known to have reached the leader.
    heard: Arc<AtomicU64>,
    /// When it was last asked for nothing else than an answer.
    asked: AtomicU64,
}

impl Session {
    fn new(client: zk::Client) -> Self {
        Self {
            client,
            heard: Arc::default(),
            asked: AtomicU64::new(0),
        }
    }

    /// The leader has answered what was sent then. An answer of another server that only reads does not count: cut off
    /// from the leader it goes on to answer for a while, and the leader ends the session.
    pub(super) fn heard(&self, sent: Moment) {
        self.heard.fetch_max(sent.0, Ordering::SeqCst);
    }

    /// How long nodes stand at least after the session was heard from.
    ///
    /// A leader learns from other servers every half tick of whom they heard, and may lose such a server before it says so.
    /// No session is shorter than two ticks.
    fn span(&self) -> Duration {
        self.client.session_timeout() * 3 / 4
    }

    /// What a hold in this session depends on.
    pub(super) fn bond(&self) -> Bond {
        let (heard, states) = (Arc::clone(&self.heard), self.client.state_watcher());
        Bond::suspendable(
            self.span(),
            move || Moment(heard.load(Ordering::SeqCst)),
            move || states.peek_state() == zk::SessionState::SyncConnected,
        )
    }

    /// When the server is to hear from this session again, for a node that is to stand until then. `FAR`: in no hurry.
    pub(super) fn next_sign(&self, ends: Moment) -> Moment {
        let heard = Moment(self.heard.load(Ordering::SeqCst));
        if ends <= heard + self.span() {
            return Moment::FAR;
        }
        let asked = Moment(self.asked.load(Ordering::SeqCst));
        // Without an answer again before it is too late, and not at once.
        (heard + self.span() / 2).max(asked + self.span() / 8)
    }

    pub(super) fn asked(&self, now: Moment) {
        self.asked.store(now.0, Ordering::SeqCst);
    }

    pub(super) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    fn has_ended(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// Requests would arrive now.
    fn is_connected(&self) -> bool {
        self.client.state() == zk::SessionState::SyncConnected
    }

    /// Resolves when it is connected or has ended.
    async fn settled(&self) {
        let mut states = self.client.state_watcher();
        while !self.is_connected() && !self.has_ended() {
            states.changed().await;
        }
    }
}

impl Link {
    pub(super) fn new(env: &Env, place: Place, lease: Duration) -> Self {
        Self {
            env: env.clone(),
            place,
            lease,
            slot: Arc::default(),
        }
    }

    pub(super) fn lease(&self) -> Duration {
        self.lease
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn deadline(&self) -> Moment {
        self.env.timers.now() + self.env.response_timeout
    }

    /// The session as it is, also when it is cut off for the moment. `None`: there is none that could have nodes.
    pub(super) fn current(&self) -> Option<Arc<Session>> {
        let session = self.slot.lock().session.clone();
        session.filter(|session| !session.has_ended())
    }

    /// The session, connected: nothing is sent to a server that cannot answer, where it would lie until it can.
    pub(super) async fn session(&self, deadline: Moment) -> Result<Arc<Session>> {
        let connected = self.env.timers.until(deadline, self.connected()).await;
        connected.unwrap_or_else(|| Err(trouble::late(ErrorKind::Unavailable)))
    }

    async fn connected(&self) -> Result<Arc<Session>> {
        let mut seen = None;
        loop {
            let mut bell = std::pin::pin!(self.slot.bell.notified());
            bell.as_mut().enable(); // before the state is read, else the end of the try might come in between
            let Some(session) = self.look(&mut seen)? else {
                bell.await;
                continue;
            };
            session.settled().await;
            if !session.has_ended() {
                return Ok(session);
            }
        }
    }

    /// The session there is; else a try to make one is begun, unless one is under way. `seen`: how many tries had ended
    /// when this caller came; what failed before is not its affair.
    fn look(&self, seen: &mut Option<u64>) -> Result<Option<Arc<Session>>> {
        let mut state = self.slot.lock();
        if let Some(session) = state
            .session
            .as_ref()
            .filter(|session| !session.has_ended())
        {
            return Ok(Some(Arc::clone(session)));
        }
        if *seen.get_or_insert(state.tries) < state.tries
            && let Some((kind, why)) = &state.trouble
        {
            return Err(Error::new(*kind).because(why.clone()));
        }
        if !state.connecting {
            state.connecting = true;
            let old = state.session.as_ref();
            let old = old.map(|session| session.client.session().clone());
            let connect = Connect {
                place: self.place.clone(),
                credentials: self.env.credentials.clone(),
                timeout: self.session_timeout(),
                patience: self.env.response_timeout,
                old,
            };
            let slot = Arc::clone(&self.slot);
            self.env.background.spawn(async move {
                let outcome = connect.establish().await;
                slot.settle(outcome);
            });
        }
        Ok(None)
    }

    /// What is asked for; the server may give less or more.
    pub(super) fn session_timeout(&self) -> Duration {
        self.place
            .session_timeout
            .unwrap_or_else(|| self.lease * 4 / 3)
    }

    /// Who logs in.
    pub(super) fn user(&self) -> Option<String> {
        match &self.env.credentials {
            Some(ask) => ask().user,
            None => self.place.login.as_ref().map(|(user, _)| user.clone()),
        }
    }

    /// Every node is made with these rights.
    pub(super) fn rights(&self) -> zk::Acls<'static> {
        if self.env.credentials.is_some() || self.place.login.is_some() {
            zk::Acls::creator_all()
        } else {
            zk::Acls::anyone_all()
        }
    }

    /// Ends the session, and with it every node it made. Whoever else asks for that waits for the same end.
    pub(super) async fn close(&self) {
        let states = {
            let mut state = self.slot.lock();
            if let Some(session) = state.session.take() {
                state.closing = Some(session.client.state_watcher());
            }
            state.closing.clone()
        };
        let Some(mut states) = states else { return };
        let closed = async {
            while !states.peek_state().is_terminated() {
                states.changed().await;
            }
        };
        // Without an answer the server ends it in its own time.
        self.env
            .timers
            .limit(self.env.response_timeout, closed)
            .await;
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, outcome: Result<zk::Client>) {
        let mut state = self.lock();
        state.connecting = false;
        state.tries += 1;
        match outcome {
            Ok(client) => {
                state.session = Some(Arc::new(Session::new(client)));
                state.trouble = None;
            }
            Err(error) => {
                let why = error.detail().unwrap_or_default().to_owned();
                state.trouble = Some((error.kind(), why));
            }
        }
        drop(state);
        self.bell.notify_waiters();
    }
}

/// One try to connect.
struct Connect {
    place: Place,
    credentials: Option<Arc<dyn Fn() -> crate::Credentials + Send + Sync>>,
    timeout: Duration,
    patience: Duration,
    old: Option<zk::SessionInfo>,
}

impl Connect {
    /// Makes a session, and before it makes sure that the old one has ended. This process may have given it up before the
    /// server has: its nodes would stand, and what was sent in it could still arrive.
    async fn establish(&self) -> Result<zk::Client> {
        if let Some(old) = &self.old {
            let resumed = self.connector()?.with_session(old.clone());
            match resumed.connect(&self.place.servers).await {
                Ok(resumed) => {
                    let mut states = resumed.state_watcher();
                    drop(resumed); // which closes it
                    while !states.peek_state().is_terminated() {
                        states.changed().await;
                    }
                }
                Err(zk::Error::SessionExpired) => {}
                Err(error) => return Err(trouble::unread(error)),
            }
        }
        let fresh = self.connector()?.connect(&self.place.servers).await;
        fresh.map_err(trouble::unread)
    }

    fn connector(&self) -> Result<zk::Connector> {
        let connector = zk::Client::connector()
            .with_session_timeout(self.timeout)
            // A server that is silent for this long is given up for another one.
            .with_connection_timeout(self.patience.min(self.timeout / 2))
            .with_fail_eagerly()
            .with_server_version(3, 5, 0);
        Ok(match self.login()? {
            Some((user, password)) => {
                connector.with_auth("digest", format!("{user}:{password}").as_bytes())
            }
            None => connector,
        })
    }

    fn login(&self) -> Result<Option<(String, String)>> {
        let Some(ask) = &self.credentials else {
            return Ok(self.place.login.clone());
        };
        let given = ask();
        let user = given.user.ok_or_else(|| {
            Error::new(ErrorKind::InvalidOptions)
                .because("ZooKeeper has no default user: give a user with the password")
        })?;
        Ok(Some((user, given.password.unwrap_or_default())))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}
