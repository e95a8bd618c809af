//! Acquisitions of one owner that meet.

use std::time::Duration;

use tidelock::store::{AttemptReply, AttemptRequest, Backend, BoxFuture, LockKind};
use tidelock::testing::{Twist, Twisted};
use tidelock::{AcquireOptions, Client, ErrorKind, Owner};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// Replies to plain readers a second after it has decided.
#[derive(Debug)]
struct LateReader;

impl Twist for LateReader {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            let reply = inner.attempt(ask).await;
            if ask.ticket.kind == LockKind::Read {
                sleep(SECOND).await;
            }
            reply
        })
    }
}

async fn client() -> Client {
    let builder = Client::builder()
        .simulated_time()
        .publish_process_info(false);
    let client = builder.connect_to(async |env| {
        let store = tidelock::testing::open("memory:", env).await?;
        Ok(Twisted::wrap(store, LateReader))
    });
    client.await.unwrap()
}

/// The store has let the reader in, and the upgrade waits for it to leave. Its caller has not heard of it yet, so it can give
/// the lock back. Otherwise the owner would wait for itself.
#[tokio::test(start_paused = true)]
async fn a_reader_makes_way_for_an_upgrade_of_its_owner() {
    let client = client().await;
    let sides = client.read_write_lock("prices");
    let me = AcquireOptions::new().owner(&Owner::new());
    let shared = sides.upgradeable_read().acquire().await.unwrap();
    let upgraded = async || {
        let patient = me.clone().wait(SECOND * 10);
        sides.upgrade_with(&shared, patient).await.unwrap()
    };

    let reads = tokio::spawn(sides.read().acquire_with(me.clone()));
    sleep(SECOND / 2).await;
    let writer = upgraded().await;
    let reader = reads.await.unwrap().unwrap();
    assert_eq!(reader.owner_id(), writer.owner_id(), "the same hold");
    reader.release().await.unwrap();
    writer.release().await.unwrap();

    let (read, options) = (sides.read(), me.clone());
    let tries = tokio::spawn(async move { read.try_acquire_with(options).await });
    sleep(SECOND / 2).await;
    let writer = upgraded().await;
    assert!(tries.await.unwrap().unwrap().is_none());
    assert!(writer.is_held() && shared.is_held());
}

/// The store has answered the reader that has made way, so a wait that ends before the upgrade does blames no store.
#[tokio::test(start_paused = true)]
async fn a_reader_that_has_made_way_for_an_upgrade_and_leaves_blames_no_store() {
    let client = client().await;
    let sides = client.read_write_lock("prices");
    let me = AcquireOptions::new().owner(&Owner::new());
    let shared = sides.upgradeable_read().acquire().await.unwrap();
    let inside = sides.read().acquire().await.unwrap();
    let patient = me.clone().wait(SECOND * 10);
    let reads = tokio::spawn(sides.read().acquire_with(patient));
    sleep(SECOND / 2).await;
    let upgrade = tokio::spawn(sides.upgrade_with(&shared, me.clone()));
    let error = reads.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    inside.release().await.unwrap();
    let writer = upgrade.await.unwrap().unwrap();
    writer.release().await.unwrap();
}

/// The store lets no reader in while an upgrade waits. If the reader asked, it would wait there for its own owner.
#[tokio::test(start_paused = true)]
async fn a_reader_that_comes_after_an_upgrade_of_its_owner_enters_with_it() {
    let client = client().await;
    let sides = client.read_write_lock("prices");
    let me = AcquireOptions::new().owner(&Owner::new());
    let shared = sides.upgradeable_read().acquire().await.unwrap();
    let inside = sides.read().acquire().await.unwrap();
    let upgrade = tokio::spawn(sides.upgrade_with(&shared, me.clone()));
    sleep(SECOND).await;
    let reads = tokio::spawn(sides.read().acquire_with(me.clone()));
    sleep(SECOND * 2).await;
    assert!(!upgrade.is_finished() && !reads.is_finished());
    inside.release().await.unwrap();
    let writer = upgrade.await.unwrap().unwrap();
    let reads = timeout(SECOND * 10, reads).await;
    let reads = reads.expect("it waits for its own owner");
    let reader = reads.unwrap().unwrap();
    assert_eq!(reader.owner_id(), writer.owner_id(), "the same hold");
}

/// The second one re-enters what the first one gets.
#[tokio::test(start_paused = true)]
async fn upgrades_of_one_owner_take_turns() {
    let client = client().await;
    let sides = client.read_write_lock("prices");
    let me = AcquireOptions::new().owner(&Owner::new());
    let shared = sides.upgradeable_read().acquire().await.unwrap();
    let reader = sides.read().acquire().await.unwrap();
    let upgrades = [(); 2].map(|()| tokio::spawn(sides.upgrade_with(&shared, me.clone())));
    sleep(SECOND).await;
    assert!(upgrades.iter().all(|upgrade| !upgrade.is_finished()));
    reader.release().await.unwrap();
    let [first, second] = upgrades;
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.owner_id(), second.owner_id());
}

/// A writer of the same owner waits until the first upgrade has ended, and for the upgradeable reader after that. The next
/// upgrade does not wait for it.
#[tokio::test(start_paused = true)]
async fn an_upgrade_passes_a_writer_that_came_after_another_upgrade() {
    let client = client().await;
    let sides = client.read_write_lock("prices");
    let me = AcquireOptions::new().owner(&Owner::new());
    let shared = sides.upgradeable_read().acquire().await.unwrap();
    let reader = sides.read().acquire().await.unwrap();
    let upgrade = async |seconds: u32| {
        let patient = me.clone().wait(SECOND * seconds);
        sides.upgrade_with(&shared, patient).await
    };
    let mut first = Box::pin(upgrade(1));
    assert!(futures_util::poll!(first.as_mut()).is_pending());
    let writes = tokio::spawn(sides.write().acquire_with(me.clone()));
    let error = first.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    sleep(SECOND).await;
    reader.release().await.unwrap();
    let upgraded = upgrade(10).await.unwrap();
    assert!(!writes.is_finished(), "it waits for the reader");
    upgraded.release().await.unwrap();
    shared.release().await.unwrap();
    writes.await.unwrap().unwrap().release().await.unwrap();
}
