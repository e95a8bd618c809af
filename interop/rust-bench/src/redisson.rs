//! The Rust crate `redisson` as a side of the bench.

use anyhow::{Context, Result};
use load::{Contender, Side, serve};
use redisson::{AsyncRLock, AsyncRedissonClient, RedissonConfig};

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let place = std::env::args().nth(1).context("HOST:PORT")?;
    // A task that waits keeps a connection of the pool, which by default has ten: the eleventh fails.
    let config = RedissonConfig::single_server(&format!("redis://{place}")).with_pool_size(512);
    serve(Client(AsyncRedissonClient::new(config).await?)).await
}

struct Client(AsyncRedissonClient);

struct Task(AsyncRLock);

impl Side for Client {
    type Contender = Task;

    fn contender(&self, name: &str) -> Result<Task> {
        Ok(Task(self.0.get_lock(name)))
    }
}

impl Contender for Task {
    type Held = ();

    async fn acquire(&mut self) -> Result<()> {
        Ok(self.0.lock().await?)
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        // It answers false when the lock has been given back, and so cannot say that it was lost.
        self.0.unlock().await?;
        Ok(())
    }
}
