//! Hand-off: a lock passes between the tasks of one client without a round trip.

mod late;
mod leaving;
mod passing;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::testing::{Chaos, Faults, Plug};
use tidelock::{Client, ClientBuilder, Lock};
use tokio::task::JoinSet;
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);

fn store() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("memory:hand-off-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn builder() -> ClientBuilder {
    Client::builder()
        .simulated_time()
        .publish_process_info(false)
}

/// A client whose requests are counted and can be blocked.
async fn counted(builder: ClientBuilder, store: &str) -> (Client, Plug) {
    let plug = Plug::default();
    let hand = plug.clone();
    let client = builder
        .connect_to(async |env| {
            let store = tidelock::testing::open(store, env).await?;
            Ok(Chaos::wrap(store, env, Faults::none(), hand))
        })
        .await
        .unwrap();
    (client, plug)
}

async fn client(store: &str) -> Client {
    counted(builder(), store).await.0
}

/// Starts this many tasks, which wait in this order and record their numbers while they hold the lock.
async fn crowd(lock: &Lock, tasks: usize, hold: Duration) -> (JoinSet<()>, Arc<Mutex<Vec<usize>>>) {
    let order = Arc::<Mutex<Vec<usize>>>::default();
    let mut all = JoinSet::new();
    for number in 0..tasks {
        let (lock, order) = (lock.clone(), Arc::clone(&order));
        all.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push(number);
            sleep(hold).await;
            guard.release().await.unwrap();
        });
        settled().await;
    }
    (all, order)
}

/// Waits until all tasks have gone as far as they can.
async fn settled() {
    sleep(Duration::from_nanos(1)).await;
}
