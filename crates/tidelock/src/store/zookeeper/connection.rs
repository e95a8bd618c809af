//! A reconnecting session: opens a new one when the old one has ended.
//!
//! Callers and steward share it. A node lives as long as the session that created it, so only requests on that
//! session can renew a lock. A session executes requests in the order in which they were sent: a withdrawal that is
//! sent after an acquire arrives after it. The driver's task runs on the steward's thread, where no caller can block
//! it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use zookeeper_client as zk;

use crate::Credentials;
use crate::engine::runtime::event::Event;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::store::credentials::given_by;
use crate::store::errors::unsent;
use crate::store::zookeeper::address::Address;
use crate::store::zookeeper::watch_list::WatchList;
use crate::store::zookeeper::{errors, unreachable};
use crate::store::{Bond, BootInstant, Env, Timers};

/// The longest session timeout that can be requested: a signed 32-bit number of milliseconds. The driver would send a longer
/// one as another number, and the servers would grant their shortest session.
const MAX_SESSION_TIMEOUT: Duration = Duration::from_millis(0x7fff_ffff);

/// The connection to the servers.
pub(crate) struct Connection {
    env: Env,
    address: Address,
    /// The longest lease that this session serves, as far as the server grants its timeout.
    lease: Duration,
    slot: Arc<ConnectionSlot>,
}

#[derive(Default)]
struct ConnectionSlot {
    state: Mutex<ConnectionState>,
    /// Notified when a connect attempt has ended.
    ended: Event,
}

#[derive(Default)]
struct ConnectionState {
    session: Option<Arc<ZooKeeperSession>>,
    /// The state of the last session that was closed, so that concurrent `close` calls wait for the same end.
    closing: Option<zk::StateWatcher>,
    connecting: bool,
    /// How many connect attempts have ended.
    tries: u64,
    /// The error of the last attempt, if it failed.
    last_error: Option<(ErrorKind, String)>,
}

/// One session with the servers. Its nodes live as long as it does.
pub(crate) struct ZooKeeperSession {
    pub(crate) client: zk::Client,
    /// The send time of the latest request that is known to have reached the leader.
    last_confirmed: Arc<AtomicU64>,
    /// When the last keep-alive was sent.
    asked: AtomicU64,
    /// Each watch of this session has an entry.
    pub(crate) watches: WatchList,
    /// The condition that every hold in this session depends on.
    bond: Bond,
    /// Set when we close the session.
    closed: Arc<AtomicBool>,
}

impl ZooKeeperSession {
    fn new(client: zk::Client) -> Self {
        let last_confirmed = Arc::<AtomicU64>::default();
        let (confirmed, states) = (Arc::clone(&last_confirmed), client.state_watcher());
        let bond = Bond::suspendable(
            span(&client),
            move || BootInstant(confirmed.load(Ordering::SeqCst)),
            move || states.peek_state() == zk::SessionState::SyncConnected,
        );
        Self {
            client,
            last_confirmed,
            asked: AtomicU64::new(0),
            watches: WatchList::default(),
            bond,
            closed: Arc::default(),
        }
    }

    /// Waits for the end of the session, and severs its bond unless we have closed it. A server that does not know the
    /// session any more says so when the client connects to it, which may be long before the bond ends by the clock.
    fn severed_at_its_end(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (mut states, bond) = (self.client.state_watcher(), self.bond.clone());
        let closed = Arc::clone(&self.closed);
        async move {
            while !states.peek_state().is_terminated() {
                states.changed().await;
            }
            if !closed.load(Ordering::SeqCst) {
                bond.sever();
            }
        }
    }

    /// Records that the leader has answered a request sent at this time. A read does not count, because another
    /// server may have answered it: cut off from the leader, that server still answers for a while, and the leader
    /// expires the session.
    pub(crate) fn confirmed(&self, sent: BootInstant) {
        self.last_confirmed.fetch_max(sent.0, Ordering::SeqCst);
    }

    /// The condition that every hold in this session depends on.
    pub(crate) fn bond(&self) -> Bond {
        self.bond.clone()
    }

    /// When the leader must hear from this session again, so that a node lives until `ends`. `FAR`: no keep-alive is
    /// needed.
    pub(crate) fn next_keep_alive(&self, ends: BootInstant) -> BootInstant {
        let last_confirmed = BootInstant(self.last_confirmed.load(Ordering::SeqCst));
        let span = span(&self.client);
        if ends <= last_confirmed + span {
            return BootInstant::FAR;
        }
        let asked = BootInstant(self.asked.load(Ordering::SeqCst));
        // If a keep-alive gets no answer, we send the next one before the session can expire, but not at once.
        (last_confirmed + span / 2).max(asked + span / 8)
    }

    pub(crate) fn asked(&self, now: BootInstant) {
        self.asked.store(now.0, Ordering::SeqCst);
    }

    pub(crate) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.client.state().is_terminated()
    }

    /// The session is connected, so a request reaches a server now.
    fn is_connected(&self) -> bool {
        self.client.state() == zk::SessionState::SyncConnected
    }

    /// Resolves when the session is connected or has ended.
    async fn settled(&self) {
        let mut states = self.client.state_watcher();
        while !self.is_connected() && !self.has_ended() {
            states.changed().await;
        }
    }
}

/// How long nodes live at least after the session was last heard from.
///
/// A leader learns every half tick which sessions the other servers have heard from, and may lose such a server
/// before it reports. No session is shorter than two ticks, so half a tick is at most a quarter of its timeout.
///
/// The driver tells the timeout of the first connection, and not what a server has granted at a reconnect. The page of the
/// store says what follows from that.
fn span(client: &zk::Client) -> Duration {
    client.session_timeout() * 3 / 4
}

impl Connection {
    pub(crate) fn new(env: &Env, address: Address, lease: Duration) -> Self {
        Self {
            env: env.clone(),
            address,
            lease,
            slot: Arc::default(),
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        self.env.timers.now() + self.env.response_timeout
    }

    /// The live session, even while it is disconnected. `None`: there is no live session, so no nodes either.
    pub(crate) fn current(&self) -> Option<Arc<ZooKeeperSession>> {
        let session = self.slot.lock().session.clone();
        session.filter(|session| !session.has_ended())
    }

    /// The session, once it is connected. On a disconnected session the driver would keep a request until the server
    /// returns. Fails with `Unavailable` at the deadline.
    pub(crate) async fn session(&self, deadline: BootInstant) -> Result<Arc<ZooKeeperSession>> {
        let connected = self.env.timers.until(deadline, self.connected()).await;
        connected.unwrap_or_else(|| Err(errors::no_session(&self.address.servers)))
    }

    async fn connected(&self) -> Result<Arc<ZooKeeperSession>> {
        let mut seen = None;
        loop {
            let read = || self.read(&mut seen).transpose();
            let session = self.slot.ended.until_some(read).await?;
            session.settled().await;
            if !session.has_ended() {
                return Ok(session);
            }
        }
    }

    /// The live session. Without one, starts a connect attempt unless one is in flight. `seen`: how many attempts had
    /// ended when this caller arrived, so that it does not get the error of an earlier attempt.
    fn read(&self, seen: &mut Option<u64>) -> Result<Option<Arc<ZooKeeperSession>>> {
        let mut state = self.slot.lock();
        if let Some(session) = state
            .session
            .as_ref()
            .filter(|session| !session.has_ended())
        {
            return Ok(Some(Arc::clone(session)));
        }
        if *seen.get_or_insert(state.tries) < state.tries
            && let Some((kind, why)) = &state.last_error
        {
            return Err(Error::new(*kind).because(why.clone()));
        }
        if !state.connecting {
            state.connecting = true;
            let old = state.session.as_ref();
            let old = old.map(|session| session.client.session().clone());
            drop(state); // without a background thread the attempt ends right here, and takes the lock
            self.connect(old);
        }
        Ok(None)
    }

    /// Starts a connect attempt, whose task then watches over the session. `old`: the session before.
    fn connect(&self, old: Option<zk::SessionInfo>) {
        let attempt = ConnectAttempt {
            address: self.address.clone(),
            credentials: self.env.credentials.clone(),
            timeout: self.session_timeout(),
            patience: self.env.response_timeout,
            timers: self.env.timers.clone(),
            old,
        };
        let pending = PendingConnect {
            slot: Arc::clone(&self.slot),
            outcome: None,
        };
        self.env.background.spawn(async move {
            let client = attempt.establish().await;
            drop(attempt);
            let session = client.map(ZooKeeperSession::new).map(Arc::new);
            let opened = session.as_ref().ok();
            let end = opened.map(|session| session.severed_at_its_end());
            pending.settle(session);
            if let Some(end) = end {
                end.await;
            }
        });
    }

    /// The session timeout that we request; the server may grant less or more.
    pub(crate) fn session_timeout(&self) -> Duration {
        let of_lease = self.lease.min(MAX_SESSION_TIMEOUT) * 4 / 3;
        self.address
            .session_timeout
            .unwrap_or(of_lease)
            .min(MAX_SESSION_TIMEOUT)
    }

    /// The user name that we log in with.
    pub(crate) async fn user(&self) -> Result<Option<String>> {
        match &self.env.credentials {
            Some(ask) => Ok(given_by(ask, self.address.user.as_deref()).await?.user),
            None => Ok(self.address.user.clone()),
        }
    }

    /// The access rights of every node that we create.
    pub(crate) fn rights(&self) -> zk::Acls<'static> {
        if self.env.credentials.is_some() || self.address.user.is_some() {
            zk::Acls::creator_all()
        } else {
            zk::Acls::anyone_all()
        }
    }

    /// Closes the session, which deletes all of its nodes. Concurrent calls wait for the same end.
    pub(crate) async fn close(&self) {
        let states = {
            let mut state = self.slot.lock();
            if let Some(session) = state.session.take() {
                session.closed.store(true, Ordering::SeqCst);
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
        // Without an answer, the session expires on the server after its timeout.
        self.env
            .timers
            .limit(self.env.response_timeout, closed)
            .await;
    }
}

impl ConnectionSlot {
    fn lock(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock()
    }

    fn settle(&self, outcome: Result<Arc<ZooKeeperSession>>) {
        let mut state = self.lock();
        state.connecting = false;
        state.tries += 1;
        match outcome {
            Ok(session) => {
                state.session = Some(session);
                state.last_error = None;
            }
            Err(error) => {
                let why = error.detail().unwrap_or_default().to_owned();
                state.last_error = Some((error.kind(), why));
            }
        }
        drop(state);
        self.ended.notify();
    }
}

/// A connect attempt in flight. However its task ends, also by a panic, the next caller can start another one.
struct PendingConnect {
    slot: Arc<ConnectionSlot>,
    /// `None`: the task has ended without an outcome.
    outcome: Option<Result<Arc<ZooKeeperSession>>>,
}

impl PendingConnect {
    fn settle(mut self, outcome: Result<Arc<ZooKeeperSession>>) {
        self.outcome = Some(outcome);
    }
}

impl Drop for PendingConnect {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| Err(unsent("the connect attempt was given up")));
        self.slot.settle(outcome);
    }
}

/// One connect attempt.
struct ConnectAttempt {
    address: Address,
    credentials: Option<Arc<dyn Fn() -> Credentials + Send + Sync>>,
    timeout: Duration,
    patience: Duration,
    timers: Timers,
    old: Option<zk::SessionInfo>,
}

impl ConnectAttempt {
    /// Opens a session, but first makes sure that the old one has ended. This process may have given the old session
    /// up before the server has: then its nodes would still stand, and requests sent in it could still take effect.
    async fn establish(&self) -> Result<zk::Client> {
        if let Some(old) = &self.old {
            let resumed = self.connector().await?.with_session(old.clone());
            match resumed.connect(&self.address.servers).await {
                Ok(resumed) => {
                    let mut states = resumed.state_watcher();
                    drop(resumed); // dropping the client closes the session
                    while !states.peek_state().is_terminated() {
                        states.changed().await;
                    }
                }
                Err(zk::Error::SessionExpired) => {}
                Err(error) => return Err(self.unopened(error).await),
            }
        }
        let fresh = self.connector().await?;
        match fresh.connect(&self.address.servers).await {
            Ok(fresh) => Ok(fresh),
            Err(error) => Err(self.unopened(error).await),
        }
    }

    async fn unopened(&self, error: zk::Error) -> Error {
        let servers = &self.address.servers;
        if !errors::is_unreachable(&error) {
            return errors::unopened(servers, error);
        }
        // The caller waits for one response timeout, of which the driver has used a part.
        let reasons = unreachable::reasons(servers, &self.timers, self.patience / 2).await;
        errors::unreachable(servers, &reasons, error)
    }

    async fn connector(&self) -> Result<zk::Connector> {
        let login = self.login().await?;
        let connector = zk::Client::connector()
            .with_session_timeout(self.timeout)
            // After this much silence the driver switches to another server.
            .with_connection_timeout(self.patience.min(self.timeout / 2))
            .with_fail_eagerly()
            .with_server_version(3, 5, 0);
        Ok(match login {
            Some((user, password)) => {
                connector.with_auth("digest", format!("{user}:{password}").as_bytes())
            }
            None => connector,
        })
    }

    async fn login(&self) -> Result<Option<(String, String)>> {
        let Address { user, password, .. } = &self.address;
        let Some(ask) = &self.credentials else {
            return Ok(user.clone().zip(password.clone()));
        };
        let given = given_by(ask, user.as_deref()).await?;
        let user = given.user.ok_or_else(|| {
            Error::new(ErrorKind::InvalidOptions)
                .because("ZooKeeper has no default user; set a user with the password")
        })?;
        Ok(Some((user, given.password.unwrap_or_default())))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests;
