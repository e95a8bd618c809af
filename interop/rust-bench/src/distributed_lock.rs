//! distributed-lock as a side of the bench.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::{RedisDistributedLock, RedisLockHandle, RedisLockProvider};
use load::{Contender, Side, serve};

/// As long as most of the others wait.
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let place = std::env::args().nth(1).context("HOST:PORT")?;
    let provider = RedisLockProvider::builder().url(format!("redis://{place}"));
    serve(Provider(Arc::new(provider.build().await?))).await
}

struct Provider(Arc<RedisLockProvider>);

struct Task(RedisDistributedLock);

impl Side for Provider {
    type Contender = Task;

    /// The id of an owner belongs to its value of a lock, so every task has one of its own.
    fn contender(&self, name: &str) -> Result<Task> {
        Ok(Task(self.0.create_lock(name)))
    }
}

impl Contender for Task {
    type Held = RedisLockHandle;

    async fn acquire(&mut self) -> Result<RedisLockHandle> {
        loop {
            match self.0.acquire(None).await {
                Ok(handle) => return Ok(handle),
                // On Redis it never waits, whatever time it is given: the error says that somebody else has it.
                Err(LockError::Timeout(_)) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn release(&mut self, handle: RedisLockHandle) -> Result<()> {
        Ok(handle.release().await?)
    }
}
