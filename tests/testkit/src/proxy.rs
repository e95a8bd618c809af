//! A TCP proxy between a client and a server that can delay, hold, drop and cut. It also counts the commands.
//!
//! It has its own thread and runtime, so it works for blocking tests and for async tests whose clock is paused or whose
//! threads are all busy. It parses enough of Redis's protocol to distinguish requests, replies and pushes. A connection
//! that starts with anything else (such as TLS) passes as plain bytes, and only rules of [`When::bytes`] apply to it.

mod pump;
mod resp;
mod rule;
mod signal;
mod state;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use rule::{Rule, Then, When};
use state::Shared;

/// A direction through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// The treatment of the bytes in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The bytes pass.
    Pass,
    /// The bytes pass after this delay.
    Delay(Duration),
    /// The bytes wait until the mode changes, then pass in order.
    Hold,
    /// The proxy drops the bytes and the end of the connection: a half-open connection.
    Drop,
}

/// A command from a client.
#[derive(Debug, Clone)]
pub struct Logged {
    /// The connection number, from 1.
    pub connection: u64,
    /// The command's name in capitals.
    pub name: String,
    /// The arguments, each truncated to 256 bytes.
    pub args: Vec<Vec<u8>>,
    /// The time of arrival.
    pub at: Instant,
}

/// The proxy. Drop ends it with all its connections.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of `upstream`, on a free loopback port.
    ///
    /// # Errors
    /// Fails when there is no port or thread for it.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        Self::serve(Shared::new(upstream, true))
    }

    /// As `start`, but treats everything as plain bytes: the replication stream is not a sequence of messages.
    ///
    /// # Errors
    /// The same as `start`.
    pub fn start_opaque(upstream: SocketAddr) -> Result<Self> {
        Self::serve(Shared::new(upstream, false))
    }

    fn serve(shared: Shared) -> Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::new(shared);
        let (stop, stopped) = oneshot::channel();
        let serving = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("proxy".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let Ok(listener) = TcpListener::from_std(listener) else {
                        return;
                    };
                    tokio::select! {
                        () = pump::serve(listener, serving) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Self {
            shared,
            addr,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The proxy's address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The proxy's port.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// The proxy's `redis://…` URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Sends new connections to another server. Open connections stay.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.shared.lock().upstream = upstream;
    }

    /// Sets the mode of one direction, for all open and future connections.
    pub fn set(&self, way: Way, mode: Mode) {
        self.shared.set_mode(way, mode);
    }

    /// Sets the mode of both directions, for all open and future connections.
    pub fn set_both(&self, mode: Mode) {
        self.set(Way::ToServer, mode);
        self.set(Way::ToClient, mode);
    }

    /// Sets the mode of one direction of one connection.
    ///
    /// # Errors
    /// Fails when that connection has ended.
    pub fn set_connection(&self, connection: u64, way: Way, mode: Mode) -> Result<()> {
        let state = self.shared.lock();
        let link = state
            .links
            .get(&connection)
            .context("that connection has ended")?;
        link.modes[way as usize].send_replace(mode);
        Ok(())
    }

    /// Cuts every connection. The proxy still accepts new ones. Returns how many it cut.
    pub fn cut(&self) -> usize {
        self.shared.cut(|_| true)
    }

    /// Cuts one connection. Returns whether it was open.
    pub fn cut_connection(&self, connection: u64) -> bool {
        self.shared.cut(|id| id == connection) > 0
    }

    /// While `true`, closes every new connection at once. Open connections stay.
    pub fn refuse(&self, yes: bool) {
        self.shared.lock().refuse = yes;
    }

    /// Adds a rule that acts once.
    #[must_use = "the handle tells when the rule has acted, and releases what it holds"]
    pub fn on(&self, when: When, then: Then) -> Rule {
        self.shared.add_rule(when, then, true)
    }

    /// Adds a rule that acts every time, until it is removed.
    #[must_use = "the handle tells when the rule has acted, and releases what it holds"]
    pub fn on_each(&self, when: When, then: Then) -> Rule {
        self.shared.add_rule(when, then, false)
    }

    /// Number of commands with this name (in capitals) since the last reset, including refused and dropped ones.
    pub fn count(&self, name: &str) -> u64 {
        self.shared.lock().counts.get(name).copied().unwrap_or(0)
    }

    /// Number of commands since the last reset, by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.lock().counts.clone()
    }

    /// Number of all commands since the last reset.
    pub fn total(&self) -> u64 {
        self.shared.lock().counts.values().sum()
    }

    /// The last 10,000 commands since the last reset, oldest first.
    pub fn log(&self) -> Vec<Logged> {
        self.shared.lock().log.iter().cloned().collect()
    }

    /// Resets the counts and the log.
    pub fn reset_counts(&self) {
        let mut state = self.shared.lock();
        state.counts.clear();
        state.log.clear();
    }

    /// The newest open connection that sent a command of this name.
    pub fn connection_of(&self, name: &str) -> Option<u64> {
        let state = self.shared.lock();
        let mut newest = state.log.iter().rev().filter(|entry| entry.name == name);
        newest
            .find(|entry| state.links.contains_key(&entry.connection))
            .map(|entry| entry.connection)
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.lock().links.len()
    }

    /// Number of connections accepted so far, including refused ones.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }

    /// Blocks until `reached` returns true. The proxy checks it after each command and after each connection that opens
    /// or closes.
    ///
    /// # Errors
    /// Fails when that takes longer than `timeout`; the error lists the commands so far.
    pub fn wait_until(&self, timeout: Duration, reached: impl Fn(&Self) -> bool) -> Result<()> {
        let done = self.shared.changed.wait_while(timeout, |_| !reached(self));
        done.with_context(|| {
            format!(
                "the proxy saw only {:?}, {} connections",
                self.counts(),
                self.connections()
            )
        })
    }

    /// As `wait_until`, but async and without a timeout.
    pub async fn until(&self, reached: impl Fn(&Self) -> bool) {
        self.shared.changed.until(|_| reached(self)).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the proxy's thread has already been printed, so we ignore it.
            let _ = thread.join();
        }
    }
}
