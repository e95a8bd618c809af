//! The documented table of store capabilities is generated from what the stores report.

use std::fs;
use std::path::Path;

use tidelock::store::{Capabilities, LockKind};
use tidelock::testing::{Fixture, abilities, doubles};

fn row((store, can): (&str, Capabilities)) -> String {
    let word = |able| if able { "yes" } else { "no" };
    format!(
        "| `{store}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        word(can.shared),
        word(can.durable),
        word(can.wakes),
        word(can.queues),
        word(can.has(LockKind::Fenced)),
        word(can.sequencers),
        word(can.delays),
        word(can.has(LockKind::Read) && can.has(LockKind::Write)),
        word(can.has(LockKind::UpgradeableRead) && can.has(LockKind::UpgradeableReadFenced)),
        word(can.has(LockKind::Fair)),
        word(can.has(LockKind::Spin)),
        word(can.has(LockKind::Permits(1))),
        word(can.counts)
    )
}

/// Rewritten with `TIDELOCK_WRITE_DOCS=1` and all features on.
#[test]
fn the_table_of_abilities_is_what_the_stores_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stores/README.md");
    let text = fs::read_to_string(&page).unwrap();
    let rows: Vec<String> = abilities().map(row).collect();
    let (before, rest) = text
        .split_once(
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        )
        .unwrap();
    let (table, after) = rest.split_once("\n\n").unwrap();
    if std::env::var_os("TIDELOCK_WRITE_DOCS").is_some() {
        let table = rows.join("\n");
        let text = format!(
            "{before}| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n{table}\n\n{after}"
        );
        return fs::write(page, text).unwrap();
    }
    // A build with fewer stores generates fewer rows.
    for row in &rows {
        assert!(
            table.lines().any(|line| line == row),
            "not in the docs: {row}"
        );
    }
    if rows.len() == 10 {
        assert_eq!(table.lines().count(), 10, "the docs have a row too many");
    }
}

/// The error of a store without a kind of lock names exactly the stores that have it.
#[tokio::test]
async fn the_error_names_every_store_that_has_the_kind() {
    // A set has no kind of lock but the plain one.
    let client = Fixture::all_of([Fixture::memory()]);
    let client = client.client(client.builder()).await;
    let fenced = client.lock("x").fenced().try_acquire().await.map(drop);
    let sides = client.read_write_lock("x").write();
    let sides = sides.try_acquire().await.map(drop);
    let upgradeable = client.read_write_lock("x").upgradeable_read();
    let upgradeable = upgradeable.try_acquire().await.map(drop);
    let fair = client.fair_lock("x").try_acquire().await.map(drop);
    let spin = client.spin_lock("x").try_acquire().await.map(drop);
    let semaphore = client.semaphore("x");
    let permits = semaphore.try_acquire().await.map(drop);
    let numbered = semaphore.set_permits(5).await;
    for (kinds, error) in [
        (&[LockKind::Fenced][..], fenced.unwrap_err()),
        (&[LockKind::Read, LockKind::Write], sides.unwrap_err()),
        (&[LockKind::UpgradeableRead], upgradeable.unwrap_err()),
        (&[LockKind::Fair, LockKind::FairFenced], fair.unwrap_err()),
        (&[LockKind::Spin, LockKind::SpinFenced], spin.unwrap_err()),
        (&[LockKind::Permits(1)], permits.unwrap_err()),
        (&[LockKind::Permits(1)], numbered.unwrap_err()),
    ] {
        let said = error.to_string();
        let (_, named) = said.split_once("these have: ").unwrap();
        let named: Vec<&str> = named.split(", ").collect();
        for (store, can) in abilities() {
            let has = kinds.iter().all(|kind| can.has(*kind));
            assert_eq!(named.contains(&store), has, "{store}: {said}");
        }
    }
    let error = client.barrier("x", 2).enter().await.unwrap_err();
    let said = error.to_string();
    let (_, named) = said.split_once("these have: ").unwrap();
    for (store, can) in abilities() {
        let has = named.split(", ").any(|named| named == store);
        assert_eq!(has, can.marks && can.has(LockKind::Read), "{store}: {said}");
    }
    let counting = client.counting_semaphore("x");
    for (what, error) in [
        ("latches", client.latch("x").wait().await.unwrap_err()),
        (
            "counting semaphores",
            counting.acquire(1).await.unwrap_err(),
        ),
        (
            "counting semaphores",
            counting.release(1).await.unwrap_err(),
        ),
    ] {
        assert_eq!(error.kind(), tidelock::ErrorKind::Unsupported);
        let said = error.to_string();
        assert!(said.contains(what), "{said}");
        let (_, named) = said.split_once("these have: ").unwrap();
        for (store, can) in abilities() {
            let has = named.split(", ").any(|named| named == store);
            assert_eq!(has, can.counts, "{store}: {said}");
        }
    }
}

/// The double of a store has exactly its capabilities, by its own name and by every scheme of its URLs.
#[tokio::test]
async fn a_double_can_do_what_its_store_can() {
    for (name, can) in doubles() {
        let double = Fixture::url(format!("memory:?like={name}"));
        assert_eq!(double.capabilities().await, can, "{name}");
    }
    assert_eq!(doubles().count(), abilities().count());
    #[cfg(feature = "redis")]
    for scheme in ["rediss", "redis+unix", "redis+sentinel", "redis+cluster"] {
        let double = Fixture::url(format!("memory:?like={scheme}"));
        let can = doubles().find(|(name, _)| *name == "redis").unwrap().1;
        assert_eq!(double.capabilities().await, can, "{scheme}");
    }
}

/// What the double refuses, it refuses with the sentence of the store, before any traffic: the same code decides.
#[tokio::test]
async fn a_double_refuses_what_its_store_refuses() {
    use tidelock::{AcquireOptions, Client, ErrorKind};

    for (name, can) in doubles() {
        let client = Client::connect(&format!("memory:?like={name}"))
            .await
            .unwrap();
        let lock = client.lock("till");
        let delayed = AcquireOptions::new().lock_delay(std::time::Duration::from_secs(1));
        let plain = client.plain_lock("stock").try_acquire().await.map(drop);
        let refused = [
            (
                can.has(LockKind::Fenced),
                lock.clone().fenced().try_acquire().await.map(drop),
                "fencing tokens",
            ),
            (
                can.has(LockKind::Read),
                client
                    .read_write_lock("prices")
                    .read()
                    .try_acquire()
                    .await
                    .map(drop),
                "read-write locks",
            ),
            (
                can.has(LockKind::Spin),
                client.spin_lock("seat").try_acquire().await.map(drop),
                "spin locks",
            ),
            (
                can.has(LockKind::Permits(1)),
                client.semaphore("render").set_permits(1).await,
                "semaphores",
            ),
            (
                can.has(LockKind::Fair),
                client.fair_lock("queue").try_acquire().await.map(drop),
                "fair locks",
            ),
            (
                can.counts,
                client.latch("gate").count().await.map(drop),
                "latches",
            ),
            (
                can.counts,
                client
                    .counting_semaphore("seats")
                    .available()
                    .await
                    .map(drop),
                "counting semaphores",
            ),
            (
                can.marks && can.has(LockKind::Read),
                client.barrier("solver", 2).members().await.map(drop),
                "barriers",
            ),
            (
                can.delays,
                lock.try_acquire_with(delayed).await.map(drop),
                "lock_delay",
            ),
            (
                can.sequencers,
                lock.acquire().await.unwrap().sequencer().map(drop),
                "sequencer",
            ),
            (name.starts_with("redis"), plain, "plain locks"),
        ];
        for (able, answer, what) in refused {
            match answer {
                Ok(()) => assert!(able, "{name}: {what}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}: {error}");
                    assert!(!able && error.to_string().contains(what), "{name}: {error}");
                }
            }
        }
    }
}

/// All clients of one name have the same abilities, and a name that no store has is refused.
#[tokio::test]
async fn a_double_is_like_one_store() {
    use tidelock::{Client, ErrorKind};

    let _one = Client::connect("memory:one double").await.unwrap();
    Client::connect("memory:one double?like=memory")
        .await
        .unwrap();
    for (url, said) in [
        ("memory:?like=mongodb", "(memory, "),
        ("memory:?like=", "(memory, "),
        #[cfg(feature = "redis")]
        ("memory:one double?like=redis", "another like="),
    ] {
        let error = Client::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{url}: {error}");
        assert!(error.to_string().contains(said), "{url}: {error}");
    }
}
