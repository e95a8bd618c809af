//! A server on loopback that answers as a test says, stores and connections at it, and how a store is opened.

mod broken_connections;

use std::io;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::Credentials;
pub(crate) use crate::store::tests::scripted::{HANG_UP, LIMIT, SILENCE, in_time, simulated, skip};
use crate::store::tests::scripted::{Protocol, Scripted};
use crate::store::{Timers, TlsFiles};
use crate::types::OwnerMint;

/// The lease of the stores and of their attempts.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// To requests that the test has not named it replies as a server that has no item and takes every one.
pub(crate) type ScriptedServer = Scripted<MetaProtocol>;

/// The protocol of memcached.
pub(crate) struct MetaProtocol;

impl Protocol for MetaProtocol {
    async fn request(peer: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
        let mut line = String::new();
        if peer.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end_matches("\r\n");
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let size = match words[0].as_str() {
            "ms" => words.get(2),
            "set" => words.last(),
            _ => None,
        };
        if let Some(size) = size {
            let size: usize = size.parse().unwrap();
            let mut value = vec![0; size + 2];
            peer.read_exact(&mut value).await?;
            value.truncate(size);
            words.push(String::from_utf8_lossy(&value).into_owned());
        }
        Ok(words)
    }

    fn usual(_port: u16, words: &[&str]) -> String {
        let reply = match words {
            ["version"] => "VERSION 1.6.18",
            ["mn"] => "MN",
            ["mg", ..] => "EN",
            ["ms", .., "c", _] => "HD c1",
            ["ms" | "md", ..] => "HD",
            ["set", ..] => "STORED",
            ["stats" | "lru_crawler", ..] => "END",
            _ => "ERROR",
        };
        format!("{reply}\r\n")
    }
}

impl ScriptedServer {
    /// The store at this server.
    pub(crate) async fn store(&self) -> Store {
        let url = format!("memcached://127.0.0.1:{}", self.port);
        connect(&url, &env()).await.unwrap()
    }

    /// A connection to this server, on tokio's clock.
    pub(crate) fn connection(&self) -> Connection {
        self.connection_as("", None)
    }

    /// As [`connection`](Self::connection), with a login before the host of the URL, such as `me:secret@`.
    pub(crate) fn connection_as(&self, login: &str, given: Option<Credentials>) -> Connection {
        let (background, timers) = simulated();
        let mut endpoint = endpoint(&format!("{login}127.0.0.1:{}", self.port), timers);
        if let Some(given) = given {
            endpoint.credentials = Some(Arc::new(move || given.clone()));
        }
        Connection::new(Arc::new(endpoint), &background)
    }

    /// The commands about items so far, each with its key.
    pub(crate) fn commands(&self) -> Vec<String> {
        let requests = self.requests().into_iter();
        let about_items = requests.filter(|words| ["mg", "ms", "md"].contains(&&*words[0]));
        about_items.map(|words| words[..2].join(" ")).collect()
    }
}

/// The server at this host and port, which may have a login before them.
pub(crate) fn endpoint(place: &str, timers: Timers) -> Endpoint {
    Endpoint {
        address: Address::parse(&format!("memcached://{place}")).unwrap(),
        timers,
        limit: LIMIT,
        credentials: None,
    }
}

fn env() -> Env {
    let (background, timers) = simulated();
    Env {
        lease: LEASE,
        ..Env::of_limits(timers, background, LIMIT)
    }
}

/// A ticket for the name `stock`, of a client of its own.
pub(crate) fn ticket() -> Ticket {
    Ticket {
        kind: LockKind::Mutex,
        name: Name::new("stock").unwrap(),
        owner: OwnerMint::new().fresh(),
    }
}

/// The reply with an item of this value, whose CAS number is 7. `left`: the seconds until it expires.
pub(crate) fn item(value: &str, left: u64) -> String {
    format!("VA {} c7 t{left}\r\n{value}\r\n", value.len())
}

/// The reply with the item by which this ticket holds its lock.
pub(crate) fn held_by(ticket: &Ticket, left: u64) -> String {
    item(&format!("{}\n{}", ticket.owner, ticket.name.as_str()), left)
}

/// A port at which nobody listens.
pub(crate) async fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

/// Whether the URL and these settings are refused before anything is sent.
fn is_refused(url: &str, env: &Env) -> bool {
    match target(url, env) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
            true
        }
    }
}

#[tokio::test]
async fn certificates_are_not_silently_left_unused() {
    let file = || Some("some.pem".into());
    for tls in [
        TlsFiles {
            ca: file(),
            ..TlsFiles::default()
        },
        TlsFiles {
            cert: file(),
            ..TlsFiles::default()
        },
        TlsFiles {
            key: file(),
            ..TlsFiles::default()
        },
    ] {
        let env = Env { tls, ..env() };
        assert!(is_refused("memcached://h", &env), "{:?}", env.tls);
    }
    assert!(!is_refused("memcached://h", &env()));
}

#[tokio::test]
async fn a_user_without_a_password_is_refused_unless_the_credentials_may_have_it() {
    let from_a_file = Env {
        credentials: Some(Arc::new(|| Credentials::password("secret"))),
        ..env()
    };
    assert!(is_refused("memcached://me@h", &env()));
    assert!(!is_refused("memcached://me:secret@h", &env()));
    assert!(!is_refused("memcached://me@h", &from_a_file));
}

/// A long answer to a caller would otherwise delay the renewals.
#[tokio::test]
async fn callers_and_the_steward_share_no_connection() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    for side in [&store.front, &store.back] {
        let released = side.release(&ticket()).await.unwrap();
        assert_eq!(released, Released::NotHeld);
    }
    assert_eq!(server.connections("mg stock"), [0, 1]);
}

#[tokio::test]
async fn a_first_connect_that_fails_tells_the_address_and_the_cause() {
    let url = format!("memcached://127.0.0.1:{}", closed_port().await);
    let error = connect(&url, &env()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let told = error.detail().unwrap_or_default();
    assert!(told.starts_with(&format!("{url}: ")), "{told}");

    let server = ScriptedServer::start().await;
    server.answers("version", &[SILENCE]);
    let url = format!("memcached://127.0.0.1:{}", server.port);
    let env = env();
    let passing = async {
        server.hears("version", 1).await;
        skip(LIMIT).await;
    };
    let (opened, ()) = tokio::join!(connect(&url, &env), passing);
    let told = format!("{url}: no connection within 10s");
    assert_eq!(opened.unwrap_err().detail(), Some(&*told));
}

#[tokio::test]
async fn a_store_that_is_closed_leaves_no_connection_behind() {
    let server = ScriptedServer::start().await;
    let store = server.store().await;
    store.back.release(&ticket()).await.unwrap();
    assert_eq!(server.open_connections(), 2, "one for each side");
    for side in [&store.front, &store.back] {
        side.close().await;
    }
    let closed = async {
        while server.open_connections() > 0 {
            tokio::task::yield_now().await;
        }
    };
    in_time(closed).await;
}

#[tokio::test]
async fn a_store_is_shown_by_its_address() {
    let server = ScriptedServer::start().await;
    let shown = format!("{:?}", server.store().await.front);
    let place = format!("memcached://127.0.0.1:{}", server.port);
    assert_eq!(shown, format!("Memcached({place})"));
}

/// A set of stores asks for it, to notice a restart.
#[tokio::test]
async fn a_store_tells_the_run_of_its_server() {
    let server = ScriptedServer::start().await;
    server.answers("stats", &["STAT uptime 100\r\nEND\r\n"]);
    server.answers("mg tidelock:server-run", &[&item("the-run", 0)]);
    let store = server.store().await;
    let runs = store.front.extensions().server_runs.unwrap();
    let run = runs.server_run().await.unwrap().unwrap();
    assert_eq!((&*run.id, run.up), ("the-run", Duration::from_secs(97)));
}
