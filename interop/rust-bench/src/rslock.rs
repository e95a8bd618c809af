//! rslock as a side of the bench.

use std::time::Duration;

use anyhow::{Context, Result};
use load::{Contender, Side, serve};
use rslock::{Lock, LockManager};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<()> {
    let place = std::env::args().nth(1).context("HOST:PORT")?;
    serve(Manager(LockManager::new(vec![format!("redis://{place}/")]))).await
}

struct Manager(LockManager);

struct Task {
    manager: LockManager,
    name: String,
}

impl Side for Manager {
    type Contender = Task;

    fn contender(&self, name: &str) -> Result<Task> {
        Ok(Task {
            manager: self.0.clone(),
            name: name.to_owned(),
        })
    }
}

impl Contender for Task {
    type Held = Lock;

    async fn acquire(&mut self) -> Result<Lock> {
        Ok(self.manager.acquire_no_guard(&*self.name, LEASE).await?)
    }

    async fn release(&mut self, lock: Lock) -> Result<()> {
        self.manager.unlock(&lock).await;
        Ok(())
    }
}
