//! Real Redisson, in Java processes that execute commands from stdin.
//!
//! A [`JavaPeer`] is one JVM with one Redisson client. Redisson's locks belong to Java threads, so a [`JavaLock`] names
//! the thread ("worker") that acts. All calls block. Async tests call them through `spawn_blocking`, or take a
//! [`Pending`] from a `begin_` method and wait for it later.

mod build;
mod counting_semaphore;
mod curator;
mod latch;
mod lock;
mod permits;
mod soak;
mod turns;
mod wire;
mod word_file;
mod worker;

pub use counting_semaphore::JavaCountingSemaphore;
pub(crate) use curator::curator_bench;
pub use curator::curator_peer;
pub use latch::JavaLatch;
pub use lock::{HammerPlan, HammerReport, JavaLock};
pub use permits::{JavaPermits, PermitsReport};
pub use soak::{SoakPlan, SoakReport};
pub use turns::{TurnsPlan, TurnsReport};
pub use wire::{Answer, JavaError, Pending};
pub use word_file::WordFile;
pub use worker::{WorkerPlan, redisson_worker};

pub(crate) use build::{modified, newest};

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};

/// The Redisson version of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedissonVersion {
    /// The newest release of Redisson 4.
    Newest,
    /// The last minor version of Redisson 3.
    V3_52_0,
    /// The first version that detects reliably whether a cluster supports sharded messages.
    V3_29_0,
    /// Has the unlock latch and sharded messages; a waiter of its fair locks can wait without end.
    V3_27_2,
    /// The first version with sharded messages.
    V3_22_0,
    /// The generation that most articles describe: no unlock latch, no fenced lock.
    V3_15_6,
    /// The oldest version that we test: no spin lock either.
    V3_12_5,
}

impl RedissonVersion {
    /// The versions that we test on every change. `cargo xtask full` tests the others too.
    pub const ALL: [Self; 2] = [Self::Newest, Self::V3_15_6];

    /// The version number on Maven Central.
    pub fn number(self) -> &'static str {
        match self {
            Self::Newest => "4.7.0",
            Self::V3_52_0 => "3.52.0",
            Self::V3_29_0 => "3.29.0",
            Self::V3_27_2 => "3.27.2",
            Self::V3_22_0 => "3.22.0",
            Self::V3_15_6 => "3.15.6",
            Self::V3_12_5 => "3.12.5",
        }
    }

    /// Whether this version has `getFencedLock`: since 3.19.
    pub fn has_fenced_lock(self) -> bool {
        !matches!(self, Self::V3_15_6 | Self::V3_12_5)
    }

    /// Whether this version has `getSpinLock`: since 3.15.
    pub fn has_spin_lock(self) -> bool {
        self != Self::V3_12_5
    }

    /// Whether a permit of this version is 16 bytes, as its id says: since 3.17. Before, it is the text of the id.
    pub fn has_short_permits(self) -> bool {
        !matches!(self, Self::V3_15_6 | Self::V3_12_5)
    }

    /// Whether `addPermits` of a counting semaphore adds: since 3.13.5. Before, it takes permits away.
    pub fn adds_permits(self) -> bool {
        self != Self::V3_12_5
    }

    /// Whether this version writes a latch when it unlocks, and deletes it afterwards: since 3.24.
    pub fn has_unlock_latch(self) -> bool {
        !matches!(self, Self::V3_22_0 | Self::V3_15_6 | Self::V3_12_5)
    }
}

/// The options of a peer.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    version: RedissonVersion,
    url: String,
    watchdog: Duration,
    answer_within: Duration,
    quiet: bool,
}

impl PeerOptions {
    /// A peer of this version on this `redis://` URL, with Redisson's own defaults.
    pub fn new(version: RedissonVersion, url: impl Into<String>) -> Self {
        Self {
            version,
            url: url.into(),
            watchdog: Duration::from_secs(30),
            answer_within: Duration::from_secs(240),
            quiet: false,
        }
    }

    /// Redisson's `lockWatchdogTimeout`: the lease of a lock acquired without one. Redisson renews it every third of
    /// that time.
    #[must_use]
    pub fn watchdog(mut self, timeout: Duration) -> Self {
        self.watchdog = timeout;
        self
    }

    /// The timeout of a command. After it, the test gets an error that the peer is stuck.
    #[must_use]
    pub fn answer_within(mut self, limit: Duration) -> Self {
        self.answer_within = limit;
        self
    }

    /// Turns Redisson's log off. During an outage, Redisson logs without end.
    #[must_use]
    pub fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }
}

/// A running JVM with one Redisson client. Drop kills the process; its locks stay until their leases end.
#[derive(Debug)]
pub struct JavaPeer {
    version: RedissonVersion,
    child: Child,
    link: Arc<wire::Link>,
    client_id: String,
}

impl JavaPeer {
    /// Builds the peer if needed, starts it, and waits until it is connected.
    ///
    /// # Errors
    /// Fails when there is no JDK or Maven, when the build fails, or when Redis cannot be reached.
    pub fn start(version: RedissonVersion, url: impl Into<String>) -> anyhow::Result<Self> {
        Self::start_with(&PeerOptions::new(version, url))
    }

    /// As [`start`](Self::start), with options.
    ///
    /// # Errors
    /// The same as [`start`](Self::start).
    pub fn start_with(options: &PeerOptions) -> anyhow::Result<Self> {
        let class_path = build::redisson(options.version)?;
        let mut child = jvm(&class_path, options).spawn().context(build::MISSING)?;
        let link = wire::Link::new(&mut child, options.answer_within);
        let (link, ready) = match link {
            Ok(made) => made,
            Err(error) => {
                end(&mut child);
                return Err(error);
            }
        };
        // We create the peer before the handshake, so that a failed handshake also ends the process.
        let mut peer = Self {
            version: options.version,
            child,
            link,
            client_id: String::new(),
        };
        peer.client_id = ready.wait().context("the Java peer did not start")?.value;
        Ok(peer)
    }

    /// The Redisson version.
    pub fn version(&self) -> RedissonVersion {
        self.version
    }

    /// The process id, for signals.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The id of its Redisson client: the part of an owner before the colon.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// `getLock(name)` for this worker.
    pub fn lock(&self, worker: &str, name: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "plain", name)
    }

    /// `getFencedLock(name)` for this worker. Since 3.19.
    pub fn fenced_lock(&self, worker: &str, name: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "fenced", name)
    }

    /// `getReadWriteLock(name).readLock()` for this worker.
    pub fn read_lock(&self, worker: &str, name: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "read", name)
    }

    /// `getReadWriteLock(name).writeLock()` for this worker.
    pub fn write_lock(&self, worker: &str, name: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "write", name)
    }

    /// Both sides of `getReadWriteLock(name)`: only for [`JavaLock::hammer`], otherwise the write side.
    pub fn sides(&self, worker: &str, name: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "sides", name)
    }

    /// `getFairLock(name)` for this worker.
    pub fn fair_lock(&self, worker: &str, name: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "fair", name)
    }

    /// `getSpinLock(name)` for this worker. Since 3.15.
    pub fn spin_lock(&self, worker: &str, name: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "spin", name)
    }

    /// `getNonReentrantLock(name)` for this worker. Since 4.4.
    pub fn non_reentrant_lock(&self, worker: &str, name: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "non_reentrant", name)
    }

    /// `getPermitExpirableSemaphore(name)` for this worker.
    pub fn permits(&self, worker: &str, name: &str) -> JavaPermits {
        let link = Arc::clone(&self.link);
        JavaPermits::new(JavaLock::new(link, worker, "permits", name))
    }

    /// `getSemaphore(name)` for this worker.
    pub fn counting_semaphore(&self, worker: &str, name: &str) -> JavaCountingSemaphore {
        let link = Arc::clone(&self.link);
        JavaCountingSemaphore::new(JavaLock::new(link, worker, "semaphore", name))
    }

    /// `getCountDownLatch(name)` for this worker.
    pub fn latch(&self, worker: &str, name: &str) -> JavaLatch {
        let link = Arc::clone(&self.link);
        JavaLatch::new(JavaLock::new(link, worker, "latch", name))
    }

    /// `RedissonMultiLock` over these locks, for this worker; a `+` separates the names.
    pub fn multi_lock(&self, worker: &str, names: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "multi", names)
    }

    /// `RedissonRedLock` over the lock of that name on each server of the peer's URL, for this worker.
    pub fn majority_lock(&self, worker: &str, name: &str) -> JavaLock {
        JavaLock::new(Arc::clone(&self.link), worker, "majority", name)
    }

    /// The Java thread id of this worker: the part of an owner after the colon.
    ///
    /// # Errors
    /// Fails when the peer has ended.
    pub fn thread_id(&self, worker: &str) -> Result<u64, JavaError> {
        self.link
            .begin(worker, "thread_id", serde_json::Map::new())?
            .value()
    }

    /// From now on this JVM writes the record of its process, as `tidelock.ProcessRecord` does, under that program. Waits of
    /// `lock` that begin later are told.
    ///
    /// # Errors
    /// Fails when the peer has ended.
    pub fn tell(&self, program: &str) -> Result<(), JavaError> {
        let mut request = serde_json::Map::new();
        request.insert("program".to_owned(), program.into());
        self.link.begin("tell", "tell", request)?.value()
    }

    /// The owner that this worker writes into a lock's hash.
    ///
    /// # Errors
    /// Fails when the peer has ended.
    pub fn owner(&self, worker: &str) -> Result<String, JavaError> {
        Ok(format!("{}:{}", self.client_id, self.thread_id(worker)?))
    }
}

impl Drop for JavaPeer {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // We ignore a failure: it means that the process has already exited.
    let _ = child.kill();
    let _ = child.wait();
}

/// The command that starts the newest Redisson for the benchmark, with the JVM's defaults.
pub(crate) fn redisson_bench(url: &str) -> anyhow::Result<Command> {
    let class_path = build::redisson(RedissonVersion::Newest)?;
    let mut command = Command::new("java");
    command
        .arg("-cp")
        .arg(format!("{0}/peer.jar:{0}/lib/*", class_path.display()))
        .args(["tidelock.peer.Bench", url]);
    Ok(command)
}

/// A small JVM with the classes of a peer. `quiet`: Redisson logs nothing.
fn java(mut program: Command, class_path: &Path, quiet: bool) -> Command {
    if quiet {
        program.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=off");
    }
    program
        .args([
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-cp",
        ])
        .arg(format!("{0}/peer.jar:{0}/lib/*", class_path.display()));
    program
}

fn jvm(class_path: &Path, options: &PeerOptions) -> Command {
    let mut command = java(Command::new("java"), class_path, options.quiet);
    command
        .args([
            "tidelock.peer.Peer",
            &options.url,
            &options.watchdog.as_millis().to_string(),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command
}

/// The current time of `CLOCK_MONOTONIC` in nanoseconds. It is comparable with the times in an [`Answer`], so tests use
/// it to measure wake-up latencies between Rust and Java.
pub fn monotonic_now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts near zero at boot, so neither part is negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
