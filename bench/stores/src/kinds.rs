//! Kinds of tidelock: the lock, permits with and without a holder, and both sides of the read-write lock.

use std::sync::Arc;

use anyhow::Result;
use load::{Contender, Side, reads};
use tidelock::{Client, CountingSemaphore, Guard, Lock, ReadWriteLock, Semaphore};
use tokio::sync::OnceCell;

/// The lock.
pub(crate) struct Locks(pub(crate) Client);

impl Side for Locks {
    type Contender = LockTask;

    fn contender(&self, name: &str) -> Result<LockTask> {
        Ok(LockTask(self.0.lock(name)))
    }
}

pub(crate) struct LockTask(Lock);

impl Contender for LockTask {
    type Held = Guard;

    async fn acquire(&mut self) -> Result<Guard> {
        Ok(self.0.acquire().await?)
    }

    async fn release(&mut self, guard: Guard) -> Result<()> {
        Ok(guard.release().await?)
    }
}

/// The permits of one name, and whether this process has set how many there are. All runs of a process use one name.
#[derive(Clone)]
struct Total {
    permits: u32,
    set: Arc<OnceCell<()>>,
}

impl Total {
    fn new(permits: u32) -> Self {
        Self {
            permits,
            set: Arc::default(),
        }
    }

    async fn set(&self, set_if_new: impl AsyncFnOnce(u32) -> tidelock::Result<bool>) -> Result<()> {
        let set = async || set_if_new(self.permits).await.map(drop);
        self.set.get_or_try_init(set).await?;
        Ok(())
    }
}

/// The semaphore, a permit for each hold.
pub(crate) struct Permits(Client, Total);

impl Permits {
    pub(crate) fn new(client: Client, permits: u32) -> Self {
        Self(client, Total::new(permits))
    }
}

pub(crate) struct PermitTask(Semaphore, Total);

impl Side for Permits {
    type Contender = PermitTask;

    fn contender(&self, name: &str) -> Result<PermitTask> {
        Ok(PermitTask(self.0.semaphore(name), self.1.clone()))
    }
}

impl Contender for PermitTask {
    type Held = tidelock::Permits;

    async fn acquire(&mut self) -> Result<Self::Held> {
        let set = async |permits| self.0.set_permits_if_new(permits).await;
        self.1.set(set).await?;
        Ok(self.0.acquire().await?)
    }

    async fn release(&mut self, permits: Self::Held) -> Result<()> {
        Ok(permits.release().await?)
    }
}

/// The counting semaphore, one permit for each hold.
pub(crate) struct Counting(Client, Total);

impl Counting {
    pub(crate) fn new(client: Client, permits: u32) -> Self {
        Self(client, Total::new(permits))
    }
}

pub(crate) struct CountingTask(CountingSemaphore, Total);

impl Side for Counting {
    type Contender = CountingTask;

    fn contender(&self, name: &str) -> Result<CountingTask> {
        Ok(CountingTask(
            self.0.counting_semaphore(name),
            self.1.clone(),
        ))
    }
}

impl Contender for CountingTask {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        let set = async |permits| self.0.set_permits_if_new(permits).await;
        self.1.set(set).await?;
        Ok(self.0.acquire(1).await?)
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        self.0.release(1).await?;
        Ok(())
    }
}

/// Both sides of the read-write lock.
pub(crate) struct Sides {
    client: Client,
    /// How many of a hundred holds read.
    percent: usize,
}

impl Sides {
    pub(crate) fn new(client: Client, percent: u32) -> Result<Self> {
        let percent = percent.try_into()?;
        Ok(Self { client, percent })
    }
}

pub(crate) struct SideTask {
    lock: ReadWriteLock,
    percent: usize,
    task: usize,
    nth: usize,
}

impl Side for Sides {
    type Contender = SideTask;

    fn contender(&self, name: &str) -> Result<SideTask> {
        Ok(SideTask {
            lock: self.client.read_write_lock(name),
            percent: self.percent,
            task: 0,
            nth: 0,
        })
    }
}

impl Contender for SideTask {
    type Held = Guard;

    fn number(&mut self, task: usize) {
        self.task = task;
    }

    async fn acquire(&mut self) -> Result<Guard> {
        let side = if reads(self.task, self.nth, self.percent) {
            self.lock.read()
        } else {
            self.lock.write()
        };
        self.nth += 1;
        Ok(side.acquire().await?)
    }

    async fn release(&mut self, guard: Guard) -> Result<()> {
        Ok(guard.release().await?)
    }
}
