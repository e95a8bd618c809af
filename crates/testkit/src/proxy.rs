//! A TCP proxy between a client and a server that can delay, hold, lose and cut, and counts the commands it carries.
//!
//! It has a thread and a runtime of its own, so it works for blocking tests, and for asynchronous ones whose clock is
//! paused or whose threads are all busy. It understands Redis' protocol well enough to tell requests, replies and pushes
//! apart; a connection that starts with anything else (TLS, say) is carried as plain bytes, to which no rule applies.

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

/// One of the two ways through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What happens to bytes on one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They go on.
    Pass,
    /// They go on this much later.
    Delay(Duration),
    /// They wait until the mode changes, then go on in order.
    Hold,
    /// They are lost, and so is the end of the connection: a half-open one.
    Drop,
}

/// One command as it came from a client.
#[derive(Debug, Clone)]
pub struct Logged {
    /// The connection, counted from 1.
    pub connection: u64,
    /// Its name in capitals.
    pub name: String,
    /// What follows the name; each argument is cut after 256 bytes.
    pub args: Vec<Vec<u8>>,
    /// When it came.
    pub at: Instant,
}

/// The proxy. It goes, with all its connections, when dropped.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy in front of `upstream`, on a free loopback port.
    ///
    /// # Errors
    /// When there is no port or thread for it.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        Self::serve(Shared::new(upstream, true))
    }

    /// As `start`, and carries plain bytes whatever they look like: what a replica gets is no protocol of messages.
    ///
    /// # Errors
    /// As `start`.
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

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }

    /// `redis://…` of the proxy.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Sends connections made from now on to another server.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.shared.lock().upstream = upstream;
    }

    /// Sets one way of every connection, those to come included.
    pub fn set(&self, way: Way, mode: Mode) {
        self.shared.set_mode(way, mode);
    }

    /// Sets both ways of every connection, those to come included.
    pub fn set_both(&self, mode: Mode) {
        self.set(Way::ToServer, mode);
        self.set(Way::ToClient, mode);
    }

    /// Sets one way of one connection.
    ///
    /// # Errors
    /// When that connection has ended.
    pub fn set_connection(&self, connection: u64, way: Way, mode: Mode) -> Result<()> {
        let state = self.shared.lock();
        let link = state
            .links
            .get(&connection)
            .context("that connection has ended")?;
        link.modes[way as usize].send_replace(mode);
        Ok(())
    }

    /// Cuts every connection; new ones are welcome. Returns how many were cut.
    pub fn cut(&self) -> usize {
        self.shared.cut(|_| true)
    }

    /// Cuts one connection. Returns whether it was there.
    pub fn cut_connection(&self, connection: u64) -> bool {
        self.shared.cut(|id| id == connection) > 0
    }

    /// While `true`, closes every new connection at once. Those that stand go on.
    pub fn refuse(&self, yes: bool) {
        self.shared.lock().refuse = yes;
    }

    /// What shall happen the next time.
    #[must_use = "the handle tells when the rule has acted, and releases what it holds"]
    pub fn on(&self, when: When, then: Then) -> Rule {
        self.shared.add_rule(when, then, true)
    }

    /// What shall happen every time, until the rule is removed.
    #[must_use = "the handle tells when the rule has acted, and releases what it holds"]
    pub fn on_each(&self, when: When, then: Then) -> Rule {
        self.shared.add_rule(when, then, false)
    }

    /// Commands of this name (in capitals) since the last reset, refused or lost ones included.
    pub fn count(&self, name: &str) -> u64 {
        self.shared.lock().counts.get(name).copied().unwrap_or(0)
    }

    /// Commands by name since the last reset.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.lock().counts.clone()
    }

    /// All commands since the last reset.
    pub fn total(&self) -> u64 {
        self.shared.lock().counts.values().sum()
    }

    /// The last 10,000 commands since the last reset, oldest first.
    pub fn log(&self) -> Vec<Logged> {
        self.shared.lock().log.iter().cloned().collect()
    }

    /// Forgets counts and log.
    pub fn reset_counts(&self) {
        let mut state = self.shared.lock();
        state.counts.clear();
        state.log.clear();
    }

    /// The newest standing connection on which a command of this name came.
    pub fn connection_of(&self, name: &str) -> Option<u64> {
        let state = self.shared.lock();
        let mut newest = state.log.iter().rev().filter(|entry| entry.name == name);
        newest
            .find(|entry| state.links.contains_key(&entry.connection))
            .map(|entry| entry.connection)
    }

    /// Connections that stand now.
    pub fn connections(&self) -> usize {
        self.shared.lock().links.len()
    }

    /// Connections accepted so far, refused ones included.
    pub fn accepted(&self) -> u64 {
        self.shared.lock().accepted
    }

    /// Blocks until `reached` holds of the proxy; it is asked again after each command and each connection that comes or goes.
    ///
    /// # Errors
    /// When it does not within `timeout`; with the commands so far.
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

    /// As `wait_until`, asynchronously and without a bound.
    pub async fn until(&self, reached: impl Fn(&Self) -> bool) {
        self.shared.changed.until(|_| reached(self)).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the proxy's thread has been printed already.
            let _ = thread.join();
        }
    }
}
