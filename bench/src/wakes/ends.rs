//! The two ends of a wake-up: one side holds and gives back, the other waits. Each is a client of Rust or a JVM.

use anyhow::Result;
use testkit::java::{
    JavaCountingSemaphore, JavaLatch, JavaLock, JavaPeer, JavaPermits, Pending, monotonic_now_ns,
};
use tidelock::{Client, CountingSemaphore, Guard, Latch, Lock, Permits};
use tokio::task::{JoinHandle, block_in_place};

/// The kind that the waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Fair,
    Spin,
    /// A reader waits for a writer.
    Reader,
    /// A writer waits for a reader.
    Writer,
    /// One permit, with a holder.
    Permit,
    /// One permit, without a holder.
    Counted,
    Latch,
}

impl Kind {
    /// What a row of the table says after the languages.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Fair => ", fair",
            Self::Spin => ", spin lock",
            Self::Reader => ", a reader behind a writer",
            Self::Writer => ", a writer behind a reader",
            Self::Permit => ", `Semaphore`",
            Self::Counted => ", `CountingSemaphore`",
            Self::Latch => ", latch",
        }
    }

    /// The kind that keeps the waiter out.
    fn held(self) -> Self {
        match self {
            Self::Reader => Self::Writer,
            Self::Writer => Self::Reader,
            other => other,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum End<'a> {
    Rust(&'a Client),
    Java(&'a JavaPeer),
}

/// What [`End::hold`] took.
#[derive(Debug)]
pub(super) enum Held {
    Guard(Guard),
    Permits(Permits),
    Counted(CountingSemaphore),
    Latch(Latch),
    JavaLock(JavaLock),
    JavaPermit(JavaPermits, String),
    JavaCounted(JavaCountingSemaphore),
    JavaLatch(JavaLatch),
}

/// A waiter, and then the time at which it had what it waited for.
#[derive(Debug)]
pub(super) enum Waiting {
    Rust(JoinHandle<Result<u64>>),
    Java(Pending<()>),
}

impl End<'_> {
    /// Takes what the waiter will wait for.
    pub(super) async fn hold(self, kind: Kind, name: &str) -> Result<Held> {
        match self {
            Self::Rust(client) => hold_in_rust(client, kind, name).await,
            Self::Java(peer) => block_in_place(|| hold_in_java(peer, kind, name)),
        }
    }

    /// The waiter gives back what it got, so that the next round can begin.
    pub(super) fn begin_wait(self, kind: Kind, name: &str) -> Result<Waiting> {
        match self {
            Self::Rust(client) => Ok(Waiting::Rust(wait_in_rust(client, kind, name))),
            Self::Java(peer) => Ok(Waiting::Java(wait_in_java(peer, kind, name)?)),
        }
    }
}

async fn hold_in_rust(client: &Client, kind: Kind, name: &str) -> Result<Held> {
    Ok(match kind {
        Kind::Permit => {
            let semaphore = client.semaphore(name);
            semaphore.set_permits_if_new(1).await?;
            Held::Permits(semaphore.acquire().await?)
        }
        Kind::Counted => {
            let semaphore = client.counting_semaphore(name);
            semaphore.set_permits_if_new(0).await?;
            Held::Counted(semaphore)
        }
        Kind::Latch => {
            let latch = client.latch(name);
            latch.set_count_if_new(1).await?;
            Held::Latch(latch)
        }
        _ => Held::Guard(lock(client, kind.held(), name).acquire().await?),
    })
}

fn hold_in_java(peer: &JavaPeer, kind: Kind, name: &str) -> Result<Held> {
    Ok(match kind {
        Kind::Permit => {
            let permits = peer.permits("holder", name);
            permits.set_if_new(1)?;
            let id = permits.acquire()?.value;
            Held::JavaPermit(permits, id)
        }
        Kind::Counted => {
            let semaphore = peer.counting_semaphore("holder", name);
            semaphore.set_if_new(0)?;
            Held::JavaCounted(semaphore)
        }
        Kind::Latch => {
            let latch = peer.latch("holder", name);
            latch.set_if_new(1)?;
            Held::JavaLatch(latch)
        }
        _ => {
            let lock = java_lock(peer, kind.held(), "holder", name);
            lock.lock()?;
            Held::JavaLock(lock)
        }
    })
}

fn lock(client: &Client, kind: Kind, name: &str) -> Lock {
    match kind {
        Kind::Fair => client.fair_lock(name),
        Kind::Spin => client.spin_lock(name),
        Kind::Reader => client.read_write_lock(name).read(),
        Kind::Writer => client.read_write_lock(name).write(),
        _ => client.lock(name),
    }
}

fn java_lock(peer: &JavaPeer, kind: Kind, worker: &str, name: &str) -> JavaLock {
    match kind {
        Kind::Fair => peer.fair_lock(worker, name),
        Kind::Spin => peer.spin_lock(worker, name),
        Kind::Reader => peer.read_lock(worker, name),
        Kind::Writer => peer.write_lock(worker, name),
        _ => peer.lock(worker, name),
    }
}

/// When the waiter was done, on the monotonic clock that Java reads too.
fn wait_in_rust(client: &Client, kind: Kind, name: &str) -> JoinHandle<Result<u64>> {
    let client = client.clone();
    let name = name.to_owned();
    tokio::spawn(async move {
        match kind {
            Kind::Permit => {
                let permit = client.semaphore(&name).acquire().await?;
                let had = monotonic_now_ns();
                permit.release().await?;
                Ok(had)
            }
            Kind::Counted => {
                client.counting_semaphore(&name).acquire(1).await?;
                Ok(monotonic_now_ns())
            }
            Kind::Latch => {
                client.latch(&name).wait().await?;
                Ok(monotonic_now_ns())
            }
            _ => {
                let guard = lock(&client, kind, &name).acquire().await?;
                let had = monotonic_now_ns();
                guard.release().await?;
                Ok(had)
            }
        }
    })
}

fn wait_in_java(peer: &JavaPeer, kind: Kind, name: &str) -> Result<Pending<()>> {
    Ok(match kind {
        Kind::Permit => peer.permits("waiter", name).begin_acquire_when_free()?,
        Kind::Counted => peer.counting_semaphore("waiter", name).begin_acquire(1)?,
        Kind::Latch => peer.latch("waiter", name).begin_wait()?,
        _ => java_lock(peer, kind, "waiter", name).begin_lock_when_free()?,
    })
}

impl Held {
    /// Gives it back, and says when the call began.
    pub(super) async fn free(self) -> Result<u64> {
        let start = monotonic_now_ns();
        match self {
            Self::Guard(guard) => drop(guard.release().await?),
            Self::Permits(permits) => drop(permits.release().await?),
            Self::Counted(semaphore) => drop(semaphore.release(1).await?),
            Self::Latch(latch) => drop(latch.count_down().await?),
            java => return block_in_place(|| java.free_in_java()),
        }
        Ok(start)
    }

    fn free_in_java(self) -> Result<u64> {
        Ok(match self {
            Self::JavaLock(lock) => lock.unlock()?.started_at_ns,
            Self::JavaPermit(permits, id) => permits.release(&id)?.started_at_ns,
            Self::JavaCounted(semaphore) => semaphore.release(1)?.started_at_ns,
            Self::JavaLatch(latch) => latch.count_down()?.started_at_ns,
            _ => anyhow::bail!("held by Rust"),
        })
    }
}

impl Waiting {
    pub(super) async fn done(self) -> Result<u64> {
        match self {
            Self::Rust(task) => task.await?,
            Self::Java(pending) => Ok(block_in_place(|| pending.wait())?.done_at_ns),
        }
    }
}
