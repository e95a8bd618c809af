//! Servers that restart: which of them are asked for their run again, and what counts if one does not tell it, or tells a
//! wrong uptime.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::store::{Backend, BoxFuture, Env, Incarnation, ServerRuns, ready};
use tidelock::test_util::Plug;
use tidelock::testing::{Twist, Twisted};
use tidelock::{Client, Error, ErrorKind, Lock, LostReason, RedLock, Result};
use tokio::time::{sleep, timeout};

const LEASE: Duration = Duration::from_secs(30);

/// Longer than any request takes, and much shorter than a lease.
const MOMENT: Duration = Duration::from_secs(5);

/// What comes of the question for a run.
#[derive(Debug, Clone, Copy)]
enum Silence {
    /// No answer ever.
    Hangs,
    /// An error at once, as of a connection that was cut.
    Fails,
}

const SILENCES: [Silence; 2] = [Silence::Hangs, Silence::Fails];

/// A server that claims to have been up for long, also when it has just restarted.
#[derive(Debug, Clone)]
struct Server {
    name: &'static str,
    restarts: Arc<AtomicU64>,
}

impl Server {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            restarts: Arc::default(),
        }
    }

    fn restart(&self) {
        self.restarts.fetch_add(1, Ordering::SeqCst);
    }
}

/// The way of one client to a server.
#[derive(Debug, Clone)]
struct Way {
    server: Server,
    /// `None`: the server tells its run.
    silence: Arc<Mutex<Option<Silence>>>,
    asked: Arc<AtomicUsize>,
}

impl Way {
    fn to(server: &Server) -> Self {
        Self {
            server: server.clone(),
            silence: Arc::default(),
            asked: Arc::default(),
        }
    }

    fn set(&self, silence: Option<Silence>) {
        *self.silence.lock().unwrap() = silence;
    }

    /// How often the server was asked for its run.
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl ServerRuns for Way {
    fn server_run(&self) -> BoxFuture<'_, Result<Option<Incarnation>>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let silence = *self.silence.lock().unwrap();
        match silence {
            Some(Silence::Hangs) => Box::pin(std::future::pending()),
            Some(Silence::Fails) => ready(Err(Error::new(ErrorKind::Unavailable))),
            None => {
                let restarts = self.server.restarts.load(Ordering::SeqCst);
                let id = format!("{}:{restarts}", self.server.name).into();
                let up = LEASE * 100;
                ready(Ok(Some(Incarnation { id, up })))
            }
        }
    }
}

impl Twist for Way {
    fn server_runs<'a>(&'a self, _inner: &'a dyn Backend) -> Option<&'a dyn ServerRuns> {
        Some(self)
    }
}

/// A client for each way, and what cuts it off. The servers of a test are its own.
async fn clients(test: &str, ways: &[Way]) -> (Vec<Client>, Vec<Plug>) {
    let (mut clients, mut plugs) = (Vec::new(), Vec::new());
    for way in ways {
        let (plug, twist) = (Plug::new(), way.clone());
        let url = format!("memory:{test} {}", way.server.name);
        let settings = Client::builder()
            .simulated_time()
            .publish_process_info(false)
            .lease(LEASE)
            .response_timeout(Duration::from_secs(1))
            .plug(&plug);
        let client = settings.connect_to(async move |env: &Env| {
            let store = tidelock::testing::open(&url, env).await?;
            Ok(Twisted::wrap(store, twist))
        });
        clients.push(client.await.unwrap());
        plugs.push(plug);
    }
    (clients, plugs)
}

/// From then on the run of each server is known.
async fn hold_once(lock: &Lock) {
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// Two of three clients connect to one server. It restarts, and tells its new run to one of them only. What it has told to the
/// other one before is no proof of a second server: it keeps no lock alone when the third client's server forgets it.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_tell_its_run_again_is_no_second_one() {
    for silence in SILENCES {
        let (double, single) = (Server::new("double"), Server::new("single"));
        let ways = [Way::to(&double), Way::to(&double), Way::to(&single)];
        let (clients, _plugs) = clients(&format!("no second one {silence:?}"), &ways).await;
        let lock = RedLock::new(clients.clone()).unwrap().lock("x");
        hold_once(&lock).await;
        double.restart();
        sleep(LEASE).await; // before that the restart guard does not believe its uptime
        ways[0].set(Some(silence));
        let guard = lock.acquire().await.unwrap();
        assert!(clients[2].lock("x").force_release().await.unwrap());
        let told = timeout(LEASE, guard.lost()).await;
        let told = told.unwrap_or_else(|_| panic!("{silence:?}: one server keeps the lock"));
        assert_eq!(told, LostReason::Expired, "{silence:?}");
    }
}

/// The same for a vote. The restart guard takes such a server for one that has just started, so this is without it.
#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_tell_its_run_again_has_no_second_vote() {
    for silence in SILENCES {
        let (double, single) = (Server::new("double"), Server::new("single"));
        let ways = [Way::to(&double), Way::to(&double), Way::to(&single)];
        let (clients, plugs) = clients(&format!("no second vote {silence:?}"), &ways).await;
        let settings = RedLock::builder(clients.clone()).restart_guard(false);
        let lock = settings.build().unwrap().lock("x");
        hold_once(&lock).await;
        double.restart();
        ways[0].set(Some(silence));
        plugs[2].pull();
        let error = lock.try_acquire().await.unwrap_err();
        assert!(error.is_retryable(), "{silence:?}: {error}");
        // What it has granted is given back long before the lease ends.
        let given_back = async {
            while clients[1].lock("x").inspect().await.unwrap().is_locked() {
                sleep(MOMENT / 100).await;
            }
        };
        let given_back = timeout(MOMENT, given_back).await;
        assert!(given_back.is_ok(), "{silence:?}: it holds a lock");
        ways[0].set(None);
        plugs[2].put_back();
        hold_once(&lock).await;
    }
}

/// One of three servers restarts, and another one does not tell its run again. The lock is kept by the other two. The silent
/// one is asked with each renewal, and counts again as soon as it answers.
#[tokio::test(start_paused = true)]
async fn a_lock_outlasts_a_server_that_does_not_tell_its_run_again() {
    for silence in SILENCES {
        let servers = ["one", "two", "three"].map(Server::new);
        let ways = servers.each_ref().map(Way::to);
        let (clients, _plugs) = clients(&format!("it outlasts {silence:?}"), &ways).await;
        let lock = RedLock::new(clients.clone()).unwrap().lock("x");
        hold_once(&lock).await;
        servers[1].restart();
        sleep(LEASE).await; // before that the restart guard does not believe its uptime
        ways[0].set(Some(silence));
        let guard = lock.acquire().await.unwrap();
        let before = ways[0].asked();
        sleep(LEASE * 3).await;
        assert!(guard.is_held(), "{silence:?}");
        // Nine renewals.
        let asked = ways[0].asked() - before;
        assert!((6..=12).contains(&asked), "{silence:?}: {asked} questions");
        ways[0].set(None);
        sleep(LEASE).await;
        assert!(clients[2].lock("x").force_release().await.unwrap());
        sleep(LEASE * 2).await;
        assert!(guard.is_held(), "{silence:?}: two of three have it");
        guard.release().await.unwrap();
    }
}

/// Two of three servers restart and forget a lock. Their wall clocks were behind at the start and are set ahead, so they claim an
/// uptime of many leases. They vote when a lease has passed since the last answer of the run before.
#[tokio::test(start_paused = true)]
async fn a_server_does_not_vote_by_a_clock_that_was_set_ahead_after_its_restart() {
    let servers = ["one", "two", "three"].map(Server::new);
    let ways = servers.each_ref().map(Way::to);
    let (clients, _plugs) = clients("set ahead", &ways).await;
    let lock = RedLock::new(clients.clone()).unwrap().lock("x");
    let guard = lock.acquire().await.unwrap();
    for (server, client) in servers.iter().zip(&clients).skip(1) {
        assert!(client.lock("x").force_release().await.unwrap());
        server.restart();
    }
    let second = lock.try_acquire().await;
    assert!(guard.is_held());
    let error = second.expect_err("a second holder");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = error.to_string();
    assert!(text.contains("votes only after"), "{text}");
    drop(guard);
    sleep(LEASE).await;
    hold_once(&lock).await;
}
