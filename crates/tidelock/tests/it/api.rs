//! The public API: which types are `Send`, the size of its futures, the foreign types it exposes, and its docs.

use std::fs;
use std::path::Path;

use tidelock::*;

fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn forever<T: 'static>() {}

macro_rules! all {
    ($($type:ty),* $(,)?) => { $( send::<$type>(); sync::<$type>(); forever::<$type>(); )* };
}

#[test]
fn public_types_go_anywhere() {
    all!(
        Client,
        ClientBuilder,
        Credentials,
        Lock,
        Guard,
        FencedGuard,
        FencedLock,
        FencingToken,
        LostReason,
        HoldState,
        Sequencer,
        Lost,
        AcquireOptions,
        CancelToken,
        Owner,
        ReadWriteLock,
        RedLock,
        RedLockBuilder,
        Snapshot,
        Holder,
        Mode,
        ClientInfo,
        Finding,
        Severity,
        Error,
        ErrorKind,
    );
    // Only one task polls a future at a time, so futures need not be `Sync`.
    send::<Acquire>();
    send::<Acquire<FencedGuard>>();
    send::<TryAcquire>();
    send::<Release>();
    send::<WhileHeld<std::future::Ready<()>>>();
    forever::<Acquire>();
    forever::<TryAcquire>();
    forever::<Release>();
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_clients_and_locks_go_anywhere() {
    all!(blocking::Client, blocking::Lock, blocking::FencedLock);
}

#[test]
fn futures_of_methods_are_send() {
    fn check<T: Send>(_: T) {}
    async fn all(client: Client, guard: Guard) {
        let (lock, hour) = (client.lock("a"), std::time::Duration::from_secs(3600));
        check(Client::connect("memory:"));
        check(client.list("*").limit(1));
        check(client.diagnose());
        check(client.verify(&guard.sequencer().unwrap()));
        check(client.close(hour));
        check(lock.inspect());
        check(lock.force_release());
        check(guard.extend(hour));
    }
    let _ = all;
}

#[test]
fn public_values_are_small() {
    assert_eq!(size_of::<Guard>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Guard>>(), size_of::<usize>());
    assert_eq!(size_of::<FencedGuard>(), size_of::<usize>() + 8);
    assert_eq!(size_of::<Client>(), size_of::<usize>());
    assert_eq!(size_of::<Error>(), size_of::<usize>());
    assert!(size_of::<Lock>() <= 48);
    assert!(size_of::<Lost>() <= 24);
    assert!(size_of::<Acquire>() <= 168, "{}", size_of::<Acquire>());
    assert!(size_of::<AcquireOptions>() <= 128);
}

/// Each file of the crate's public API, up to its tests.
fn faces() -> Vec<(String, String)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    for entry in fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    for file in ["redis/topology.rs", "store/mod.rs"] {
        found.push((file.into(), fs::read_to_string(source.join(file)).unwrap()));
    }
    found
}

#[test]
fn no_driver_shows_in_a_signature() {
    for (file, text) in faces() {
        for line in text.lines().map(str::trim_start) {
            let public = line.starts_with("pub ") && !line.starts_with("pub(");
            for driver in [
                "redis::",
                "rusqlite::",
                "rustix::",
                "futures_util::",
                "uuid::",
                "tokio::",
            ] {
                assert!(!(public && line.contains(driver)), "{file}: {line}");
            }
        }
    }
}

/// The doc lines above each public item, with the item's line.
fn documented(text: &str) -> Vec<(String, String)> {
    let (mut docs, mut items) = (String::new(), Vec::new());
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("///") {
            docs.push_str(line);
            docs.push('\n');
        } else if !line.starts_with("#[") && !line.starts_with(')') && !line.starts_with("clippy") {
            if line.starts_with("pub ") {
                items.push((std::mem::take(&mut docs), line.to_owned()));
            }
            docs.clear();
        }
    }
    items
}

#[test]
fn every_future_documents_what_a_drop_does() {
    let futures = ["-> Acquire", "-> TryAcquire", "-> Release", "-> WhileHeld"];
    let mut seen = 0;
    for (file, text) in faces() {
        if file == "store/mod.rs" {
            continue;
        }
        for (docs, item) in documented(&text) {
            let awaited = item.starts_with("pub async fn")
                || item.starts_with("pub fn") && futures.iter().any(|future| item.contains(future));
            if awaited && file != "blocking.rs" {
                seen += 1;
                assert!(docs.contains("# Cancel safety"), "{file}: {item}");
            }
        }
    }
    assert!(seen >= 10, "the test finds what it looks for: {seen}");
}

/// Every verb of a lock that the store does not support fails before any request is sent.
#[tokio::test]
async fn a_store_without_plain_locks_refuses_their_verbs() {
    let client = Client::connect("memory:").await.unwrap();
    let lock = client.plain_lock("stock");
    assert_eq!(lock.name(), "stock");
    for error in [
        lock.acquire().await.map(drop).unwrap_err(),
        lock.try_acquire().await.map(drop).unwrap_err(),
        lock.clone().fenced().acquire().await.map(drop).unwrap_err(),
        lock.inspect().await.map(drop).unwrap_err(),
        lock.force_release().await.map(drop).unwrap_err(),
        client.multi_lock([&lock]).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(error.lock_name(), Some("stock"));
    }
    let error = client.plain_lock("").acquire().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName);
}

/// The error comes before a lock exists, and before any request is sent.
#[tokio::test]
async fn a_store_without_read_write_locks_makes_none() {
    use tidelock::testing::{Fixture, Plug};

    let plug = Plug::default();
    let hand = plug.clone();
    // A set of one. Sets have no read-write locks, whatever their members have.
    let fixture = Fixture::all_of([Fixture::memory()]).wrapped(move |env, store| {
        tidelock::testing::Chaos::wrap(store, env, tidelock::testing::Faults::none(), hand.clone())
    });
    let client = fixture.client(fixture.builder()).await;
    let before = plug.requests();
    let sides = client.read_write_lock("prices");
    let error = sides.read().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(error.lock_name(), Some("prices"));
    let said = error.to_string();
    assert!(
        said.contains("these have: memory:, sqlite:, redis:, postgres:, mysql:, zookeeper:, etcd:"),
        "{said}"
    );
    assert_eq!(plug.requests(), before);
    let client = Client::connect("memory:").await.unwrap();
    let error = client
        .read_write_lock("")
        .write()
        .acquire()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName);
    // A side of a read-write lock cannot be part of a set.
    let sides = client.read_write_lock("prices");
    for side in [sides.read(), sides.write()] {
        let error = client.multi_lock([&side]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        side.acquire().await.unwrap().release().await.unwrap();
    }
    let readers = [sides.read().fenced(), sides.read().fenced()];
    let one = readers[0].acquire().await.unwrap();
    let other = readers[1].try_acquire().await.unwrap().unwrap();
    assert_ne!(one.token(), other.token());
}
