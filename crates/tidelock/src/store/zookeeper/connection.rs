//! A reconnecting session: opens a new one when the old one has ended.
//!
//! Callers and steward share it. A node lives as long as the session that created it, so only requests on that
//! session can renew a lock. A session executes requests in the order in which they were sent: a withdrawal that is
//! sent after an acquire arrives after it. The driver's task runs on the steward's thread, where no caller can block
//! it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zookeeper_client as zk;

use crate::Credentials;
use crate::engine::runtime::background;
use crate::engine::runtime::event::Event;
use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::store::errors::unsent;
use crate::store::zookeeper::address::Address;
use crate::store::zookeeper::watch_list::WatchList;
use crate::store::zookeeper::{errors, unreachable};
use crate::store::{Bond, BootInstant, Env, Timers};

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
}

impl ZooKeeperSession {
    fn new(client: zk::Client) -> Self {
        Self {
            client,
            last_confirmed: Arc::default(),
            asked: AtomicU64::new(0),
            watches: WatchList::default(),
        }
    }

    /// Records that the leader has answered a request sent at this time. A read does not count, because another
    /// server may have answered it: cut off from the leader, that server still answers for a while, and the leader
    /// expires the session.
    pub(crate) fn confirmed(&self, sent: BootInstant) {
        self.last_confirmed.fetch_max(sent.0, Ordering::SeqCst);
    }

    /// How long nodes live at least after the session was last heard from.
    ///
    /// A leader learns every half tick which sessions the other servers have heard from, and may lose such a server
    /// before it reports. No session is shorter than two ticks, so half a tick is at most a quarter of its timeout.
    fn span(&self) -> Duration {
        self.client.session_timeout() * 3 / 4
    }

    /// The condition that every hold in this session depends on.
    pub(crate) fn bond(&self) -> Bond {
        let (last_confirmed, states) = (
            Arc::clone(&self.last_confirmed),
            self.client.state_watcher(),
        );
        Bond::suspendable(
            self.span(),
            move || BootInstant(last_confirmed.load(Ordering::SeqCst)),
            move || states.peek_state() == zk::SessionState::SyncConnected,
        )
    }

    /// When the leader must hear from this session again, so that a node lives until `ends`. `FAR`: no keep-alive is
    /// needed.
    pub(crate) fn next_keep_alive(&self, ends: BootInstant) -> BootInstant {
        let last_confirmed = BootInstant(self.last_confirmed.load(Ordering::SeqCst));
        if ends <= last_confirmed + self.span() {
            return BootInstant::FAR;
        }
        let asked = BootInstant(self.asked.load(Ordering::SeqCst));
        // If a keep-alive gets no answer, we send the next one before the session can expire, but not at once.
        (last_confirmed + self.span() / 2).max(asked + self.span() / 8)
    }

    pub(crate) fn asked(&self, now: BootInstant) {
        self.asked.store(now.0, Ordering::SeqCst);
    }

    pub(crate) fn id(&self) -> i64 {
        self.client.session_id().0
    }

    fn has_ended(&self) -> bool {
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
            let connect = ConnectAttempt {
                address: self.address.clone(),
                credentials: self.env.credentials.clone(),
                timeout: self.session_timeout(),
                patience: self.env.response_timeout,
                timers: self.env.timers.clone(),
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

    /// The session timeout that we request; the server may grant less or more.
    pub(crate) fn session_timeout(&self) -> Duration {
        self.address
            .session_timeout
            .unwrap_or_else(|| self.lease * 4 / 3)
    }

    /// The user name that we log in with.
    pub(crate) async fn user(&self) -> Result<Option<String>> {
        let Some(ask) = self.env.credentials.clone() else {
            let login = self.address.login.as_ref();
            return Ok(login.map(|(user, _)| user.clone()));
        };
        let given = self.env.background.run(given_by(ask)).await;
        let given = given.unwrap_or_else(|| Err(Error::new(ErrorKind::Closed)))?;
        Ok(given.user)
    }

    /// The access rights of every node that we create.
    pub(crate) fn rights(&self) -> zk::Acls<'static> {
        if self.env.credentials.is_some() || self.address.login.is_some() {
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

    fn settle(&self, outcome: Result<zk::Client>) {
        let mut state = self.lock();
        state.connecting = false;
        state.tries += 1;
        match outcome {
            Ok(client) => {
                state.session = Some(Arc::new(ZooKeeperSession::new(client)));
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
        match self.connector().await?.connect(&self.address.servers).await {
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
        let connector = zk::Client::connector()
            .with_session_timeout(self.timeout)
            // After this much silence the driver switches to another server.
            .with_connection_timeout(self.patience.min(self.timeout / 2))
            .with_fail_eagerly()
            .with_server_version(3, 5, 0);
        Ok(match self.login().await? {
            Some((user, password)) => {
                connector.with_auth("digest", format!("{user}:{password}").as_bytes())
            }
            None => connector,
        })
    }

    async fn login(&self) -> Result<Option<(String, String)>> {
        let Some(ask) = self.credentials.clone() else {
            return Ok(self.address.login.clone());
        };
        let given = given_by(ask).await?;
        let user = given.user.ok_or_else(|| {
            Error::new(ErrorKind::InvalidOptions)
                .because("ZooKeeper has no default user; set a user with the password")
        })?;
        Ok(Some((user, given.password.unwrap_or_default())))
    }
}

/// Calls the credentials source on another thread, because it may block, and this is the steward's thread. A panic there
/// is an error here. Otherwise it would end the connect attempt, and no later one would begin.
async fn given_by(source: Arc<dyn Fn() -> Credentials + Send + Sync>) -> Result<Credentials> {
    let given = background::blocking(move || source()).await;
    given.ok_or_else(|| unsent("the function given to credentials_from panicked"))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use super::*;
    use crate::store::{Background, Clock};

    /// A slow credentials callback must not delay renewals and deadlines, and one that panics must not end the reconnects.
    #[tokio::test]
    async fn the_source_of_the_credentials_has_a_thread_of_its_own_and_may_panic() {
        const LIMIT: Duration = Duration::from_secs(10);
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        let timers = Timers::new(Clock::Boot);
        background.spawn(timers.clone().drive());
        let steward = background.run(async { std::thread::current().id() }).await;
        let mut env = Env::of_limits(timers, background, LIMIT);
        let asked: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
        let seen = Arc::clone(&asked);
        env.credentials = Some(Arc::new(move || -> Credentials {
            seen.lock().push(std::thread::current().id());
            panic!("no credentials today")
        }));
        let address = Address::parse("zookeeper://127.0.0.1:1").unwrap();
        let connection = Connection::new(&env, address, LIMIT);
        for tries in 1..3 {
            let session = connection.session(connection.deadline()).await;
            let error = session.err().expect("there is no server");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("panicked"), "{error}");
            let asked = asked.lock().clone();
            assert_eq!(asked.len(), tries);
            assert!(!asked.contains(&steward.unwrap()));
        }
    }
}
