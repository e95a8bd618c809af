//! An endpoint: opens authenticated connections to one server, which is either a fixed address or the primary that
//! sentinels name.

mod connections;
mod node_check;
mod refusal;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join3;
use tokio::sync::watch;

use crate::Credentials;
use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::error::{Error, ErrorKind, Result};
use crate::store::credentials::given_by;
use crate::store::redis::address::HostAddress;
use crate::store::redis::topology::attachments::Attachments;
use crate::store::redis::topology::endpoint::connections::EndpointConnections;
use crate::store::redis::topology::known_nodes::KnownNodes;
use crate::store::redis::topology::live_connection::LiveConnection;
use crate::store::redis::wire::driver::PushHandler;
use crate::store::redis::wire::errors::unsent;
use crate::store::redis::wire::handshake::HandshakeLogin;
use crate::store::redis::wire::reply::{Reply, RequestError};
use crate::store::redis::wire::request::Request;
use crate::store::redis::wire::stream;
use crate::store::{BootInstant, BoxFuture, Timers, TlsFiles, tls};

/// The pauses between two queries to the sentinels while one connect lasts.
const SENTINEL_PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(25), Duration::from_millis(200));

/// The address of a server, and the login for it.
pub(crate) struct Endpoint {
    finder: ServerFinder,
    entry: EndpointLogin,
    pub(crate) timers: Timers,
    pub(crate) limit: Duration,
    commands: EndpointConnections,
    subscriptions: EndpointConnections,
    /// The server behind the address was a replica, and the subscriptions may still be there.
    replaced: AtomicBool,
    /// Counts the connections for commands that were opened. After each, the server may be another one, or may have
    /// restarted.
    connects: AtomicU64,
    /// What higher files know of the server.
    pub(crate) attachments: Attachments,
}

/// The source of the server's address.
pub(crate) enum ServerFinder {
    Fixed(HostAddress),
    Primary(Arc<dyn PrimaryFinder>),
}

/// Something that knows which server is the primary now. The endpoint knows the sentinels only by this trait: the
/// connection to a sentinel has an endpoint too.
pub(crate) trait PrimaryFinder: fmt::Display + Send + Sync {
    /// Asks for the address of the primary.
    fn find(&self) -> BoxFuture<'_, Result<HostAddress>>;

    /// Stores the address of the primary. `true`: it differs from the previous one.
    fn note(&self, address: &HostAddress) -> bool;

    /// Whether this is the last known address of the primary.
    fn is_at(&self, address: &HostAddress) -> bool;

    /// The server at this address rejects writes: asks again at once.
    fn doubt(&self);

    fn close(&self);
}

/// The login and the TLS files for a connection.
#[derive(Clone, Default)]
pub(crate) struct EndpointLogin {
    pub(crate) db: i64,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// Called at each connect. Its answer is used instead of `user` and `password`; a password without a user is for `user`.
    /// `None`: those two are used.
    pub(crate) credentials: Option<Arc<dyn Fn() -> Credentials + Send + Sync>>,
    pub(crate) tls: TlsFiles,
    /// The servers are nodes of a cluster.
    pub(crate) in_cluster: bool,
    /// Its nodes, as far as they are known.
    pub(crate) known_nodes: Arc<KnownNodes>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.finder {
            ServerFinder::Fixed(address) => address.fmt(f),
            ServerFinder::Primary(primary) => primary.fmt(f),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}/{}", self.entry.db)
    }
}

impl Endpoint {
    pub(crate) fn new(
        finder: ServerFinder,
        entry: EndpointLogin,
        timers: Timers,
        limit: Duration,
    ) -> Self {
        Self {
            finder,
            entry,
            timers,
            limit,
            commands: EndpointConnections::default(),
            subscriptions: EndpointConnections::default(),
            replaced: AtomicBool::new(false),
            connects: AtomicU64::new(0),
            attachments: Attachments::default(),
        }
    }

    /// The address of the server, if it is fixed.
    pub(crate) fn address(&self) -> Option<&HostAddress> {
        match &self.finder {
            ServerFinder::Fixed(address) => Some(address),
            ServerFinder::Primary(_) => None,
        }
    }

    /// What finds the primary, if the address is not fixed.
    fn primary(&self) -> Option<&dyn PrimaryFinder> {
        match &self.finder {
            ServerFinder::Fixed(_) => None,
            ServerFinder::Primary(primary) => Some(&**primary),
        }
    }

    /// The endpoint now has another server, or none. We end every connection that is open or connecting, including
    /// requests that wait for a reply: a primary that is cut off may never reply.
    pub(crate) fn leave(&self) {
        self.commands.leave();
        self.subscriptions.leave();
    }

    fn connections(&self, for_commands: bool) -> &EndpointConnections {
        if for_commands {
            &self.commands
        } else {
            &self.subscriptions
        }
    }

    /// How many connections for commands were opened so far.
    pub(crate) fn connects(&self) -> u64 {
        self.connects.load(Ordering::SeqCst)
    }

    #[cfg(test)]
    pub(crate) fn times_left(&self) -> u64 {
        self.commands.times_left()
    }

    /// A server has reported that it rejects writes. The sentinels are queried at once.
    pub(crate) fn doubt(&self) {
        if let Some(primary) = self.primary() {
            primary.doubt();
        }
    }

    /// The server has reported that it is a replica. Behind a fixed address, as that of a proxy, there may be another
    /// one now. A subscription would stay with the old one, which refuses nothing of it, and would miss messages.
    pub(crate) fn replaced(&self) {
        // In a cluster the slot map names the new primary, and the address stays that of the old one.
        if self.address().is_some() && !self.entry.in_cluster {
            self.replaced.store(true, Ordering::SeqCst);
        }
        self.doubt();
    }

    /// A connection for commands was opened. If it leads to a primary, the subscriptions follow it.
    ///
    /// We do not end them at the refusal. As long as the address leads to the old server, they would be there again, and
    /// each reconnect would wake waiters, whose attempts would be refused. Other connections for commands stay: the old
    /// server refuses what they ask, and behind an address that leads to a primary or to a replica by chance they would
    /// end each other again and again.
    fn opened(&self, conn: &LiveConnection) {
        if !conn.server.replication.is_replica() && self.replaced.swap(false, Ordering::SeqCst) {
            self.subscriptions.leave();
        }
    }

    /// Stops the background command that follows the sentinels.
    pub(crate) fn close(&self) {
        if let Some(primary) = self.primary() {
            primary.close();
        }
    }

    /// The end of an attempt to connect, or of a request, that starts now.
    pub(crate) fn deadline(&self) -> BootInstant {
        self.timers.now() + self.limit
    }

    /// Connects before the deadline, on the current runtime. With `pushes`, the connection is for subscriptions.
    pub(crate) async fn enter(
        &self,
        pushes: Option<PushHandler>,
        end: BootInstant,
    ) -> Result<LiveConnection> {
        let address = match &self.finder {
            ServerFinder::Fixed(address) => address,
            ServerFinder::Primary(primary) => {
                return self.enter_primary(&**primary, pushes, end).await;
            }
        };
        let for_commands = pushes.is_none();
        let moves = self.connections(for_commands).moves();
        if let Some(result) = self
            .timers
            .until(end, self.knock(address, pushes, moves))
            .await
        {
            if for_commands && let Ok(conn) = &result {
                self.opened(conn);
            }
            return result;
        }
        // A plain-text server reads the start of the TLS handshake as a command, and waits for the rest.
        let hint = if address.is_tls() {
            "; if the port speaks plain text, write redis:// instead of rediss://"
        } else {
            ""
        };
        Err(unsent(format_args!(
            "{address}: no connection within {:?}{hint}",
            self.limit
        )))
    }

    /// Queries the sentinels again as long as the primary they name cannot be reached: a failover takes a while.
    async fn enter_primary(
        &self,
        primary: &dyn PrimaryFinder,
        pushes: Option<PushHandler>,
        end: BootInstant,
    ) -> Result<LiveConnection> {
        let mut last_error = None;
        for retries in 0.. {
            let once = self.knock_at_primary(primary, pushes.clone());
            match self.timers.until(end, once).await {
                Some(Err(error)) if error.is_retryable() => last_error = Some(error),
                Some(result) => return result,
                None => break,
            }
            if self
                .timers
                .until(end, self.timers.after(SENTINEL_PAUSES.pause(retries)))
                .await
                .is_none()
            {
                break;
            }
        }
        Err(last_error.unwrap_or_else(|| {
            unsent(format_args!(
                "{primary}: no connection to a primary within {:?}",
                self.limit
            ))
        }))
    }

    async fn knock_at_primary(
        &self,
        primary: &dyn PrimaryFinder,
        pushes: Option<PushHandler>,
    ) -> Result<LiveConnection> {
        let address = primary.find().await?;
        if primary.note(&address) {
            self.leave();
        }
        let moves = self.connections(pushes.is_none()).moves();
        let conn = self.knock(&address, pushes, moves).await?;
        let role = conn.ask(&Request::new("ROLE")).await;
        // We check this last. The sentinels may have named another primary while we connected, and the `leave` for
        // the old one did not see this connection. From here on, `leave` ends it too.
        if !primary.is_at(&address) {
            return Err(unsent(format_args!(
                "{address}: another server has replaced it"
            )));
        }
        match role {
            Ok(reply) if is_primary(&reply) => Ok(conn),
            Ok(_) => Err(unsent(format_args!(
                "{primary}: the sentinels report {address}, which is a replica: there is no primary at the moment"
            ))),
            // The user is not allowed to run ROLE, so we trust the sentinels.
            Err(RequestError::Server(server_error))
                if server_error.error().kind() == ErrorKind::Refused =>
            {
                Ok(conn)
            }
            Err(failure) => Err(unsent(format_args!(
                "{address}: {}",
                failure.error().detail().unwrap_or_default()
            ))),
        }
    }

    async fn knock(
        &self,
        address: &HostAddress,
        pushes: Option<PushHandler>,
        mut moves: watch::Receiver<u64>,
    ) -> Result<LiveConnection> {
        let opening = async {
            let stream = stream::dial(address, &self.entry.tls, &self.timers).await?;
            let for_commands = pushes.is_none();
            let conn = LiveConnection::open(stream, &self.login().await?, pushes)
                .await
                .map_err(|closed| refusal::of(address, self.entry.db, closed))?;
            if for_commands {
                self.connects.fetch_add(1, Ordering::SeqCst);
            }
            self.connections(for_commands).note(&conn);
            let looks = async {
                if for_commands {
                    conn.read_replication(&self.timers).await;
                }
            };
            // We send all before we wait for any: one round trip.
            let is_node = async {
                if self.entry.in_cluster {
                    node_check::of(address, &conn, &self.entry.known_nodes).await?;
                }
                Ok(())
            };
            let (is_node, greeted, ()) = join3(is_node, self.greet(address, &conn), looks).await;
            is_node.and(greeted).map(|()| conn)
        };
        tokio::select! {
            // First: a change also cuts the connection, and that error would not tell why.
            biased;
            _ = moves.changed() => Err(unsent(format_args!("{address}: another server has replaced it"))),
            result = opening => result,
        }
    }

    async fn login(&self) -> Result<HandshakeLogin> {
        let (user, password) = match &self.entry.credentials {
            Some(source) => {
                let given = given_by(source, self.entry.user.as_deref()).await?;
                (given.user, given.password)
            }
            None => (self.entry.user.clone(), self.entry.password.clone()),
        };
        Ok(HandshakeLogin {
            db: self.entry.db,
            user,
            password,
            in_cluster: self.entry.in_cluster,
        })
    }

    /// Sends PING, because a server that needs a password, or is still loading, reports it only in the reply to a
    /// command.
    async fn greet(&self, address: &HostAddress, conn: &LiveConnection) -> Result<()> {
        match conn.ask(&Request::new("PING")).await {
            Ok(_) => Ok(()),
            Err(RequestError::Server(server_error)) => {
                let error = server_error.error();
                // We are logged in, but are not allowed to run PING.
                if error.kind() == ErrorKind::Refused && !server_error.ends_session() {
                    return Ok(());
                }
                Err(refusal::at(address, &error))
            }
            Err(RequestError::Broken(why)) => {
                Err(Error::new(tls::kind(&why)).because(format!("{address}: {why}")))
            }
        }
    }
}

/// The first element of the reply to `ROLE` is the role.
pub(crate) fn is_primary(reply: &Reply) -> bool {
    let role = reply.list().and_then(|args| args.first()?.text());
    role == Some("master")
}

#[cfg(test)]
mod tests;
