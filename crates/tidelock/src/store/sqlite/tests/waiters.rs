//! Waiters of a file: how a place is written, who is woken, and who gets the lock while the disk is full.

use futures_util::FutureExt;

use super::*;
use crate::store::ReplicaAck;
use crate::types::OwnerMint;

const LEASE: Duration = Duration::from_secs(30);

/// An attempt of a new ticket whose caller waits for so long.
fn ask(kind: LockKind, patience: Duration) -> AttemptRequest {
    let (name, owner) = (Name::new("stock").unwrap(), OwnerMint::new().fresh());
    let ticket = Ticket { kind, name, owner };
    AttemptRequest {
        patience,
        ..AttemptRequest::once(ticket, LEASE, ReplicaAck::Off)
    }
}

/// A new file, and a connection to it.
fn new_file() -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
    let database = Database::new(SharedConnectionState::of_one(paths, true));
    (folder, database)
}

/// A place need not be on the disk: after a power failure no process waits any more.
#[test]
fn a_waiter_takes_its_place_without_waiting_for_the_disk() {
    for kind in [LockKind::Fair, LockKind::Write, LockKind::Permits(1)] {
        let (_folder, mut database) = new_file();
        if kind.is_permits() {
            let one = PermitChange::Set(1);
            let changed = database.write(Durable::No, |view| view.change_permits("stock", one));
            changed.unwrap();
        }
        for (patience, granted, synchronous) in [(Duration::ZERO, true, 2), (LEASE, false, 1)] {
            let decision = queued::attempt(&mut database, &ask(kind, patience)).unwrap();
            let is_granted = matches!(decision, Decision::Granted(..));
            let connection = database.connected().unwrap();
            let now = connection.query_row("PRAGMA synchronous", [], |row| row.get::<_, i64>(0));
            assert_eq!(
                (is_granted, now.unwrap()),
                (granted, synchronous),
                "{kind:?}"
            );
        }
    }
}

/// Otherwise the release could fail together with the grant.
#[cfg(target_os = "linux")]
#[test]
fn on_a_full_disk_a_release_frees_the_lock_and_grants_it_to_nobody() {
    let (_folder, mut database) = new_file();
    let holder = ask(LockKind::Fair, Duration::ZERO);
    for one in [&holder, &ask(LockKind::Fair, LEASE)] {
        queued::attempt(&mut database, one).unwrap();
    }
    // Now the reserve inside the file is used up.
    let filled = database.write(Durable::No, |view| {
        (0..100).try_for_each(|number| {
            let table = format!("CREATE TABLE filler{number} (room)");
            view.connection.execute_batch(&table)
        })
    });
    filled.unwrap();
    // The open connection stays. Only the question for room goes to a file system that never has any.
    database.setting.paths = Arc::new(DatabasePaths::of("/proc/locks.db".into()));
    assert!(file_system::is_full(&database.setting.paths.main));
    let freed = queued::free(&mut database, "stock", |view| view.release(&holder.ticket));
    assert_eq!(freed.unwrap(), (Released::Freed, Vec::new()));
    let row = database.read(|view| view.row("stock"));
    assert_eq!(row.unwrap(), None);
}

/// Its attempt would be refused once more.
#[tokio::test]
async fn a_release_of_a_ticket_that_holds_nothing_wakes_no_waiter() {
    let folder = tempfile::tempdir().unwrap();
    // In simulated time no thread watches the file, so only releases wake.
    let (background, _stop) = Background::start(Clock::Simulated).unwrap();
    let env = Env::of_limits(Timers::new(Clock::Simulated), background, LEASE);
    let path = folder.path().join("locks.db");
    let store = open(path.to_str().unwrap(), &env).await.unwrap();

    let holder = ask(LockKind::Mutex, Duration::ZERO);
    let granted = store.front.attempt(&holder).await.outcome;
    assert!(matches!(granted, Ok(Attempt::Acquired(_))), "{granted:?}");
    let waiter = ask(LockKind::Mutex, LEASE);
    let refused = store.front.attempt(&waiter).await.outcome.unwrap();
    let Attempt::Held(wait) = refused else {
        panic!("it is held");
    };
    let mut wake = wait.wake.unwrap();
    let never = ask(LockKind::Mutex, Duration::ZERO);
    for (ticket, released, is_woken) in [
        (&never.ticket, Released::NotHeld, false),
        (&holder.ticket, Released::Freed, true),
    ] {
        assert_eq!(store.front.release(ticket).await.unwrap(), released);
        let woken = wake.woken().now_or_never().is_some();
        assert_eq!(woken, is_woken, "{released:?}");
    }
}

/// Otherwise the first waiting process would be woken for nothing, and would look into the file every few milliseconds.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_held_lock_is_shown_until_its_own_ticket_is_released() {
    use crate::store::sqlite::byte_locks::ByteLocks;
    use crate::store::sqlite::queue_place::NameBytes;

    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder, true).await;
    let other = ByteLocks::on(&folder.path().join("locks.db-lock")).unwrap();
    let is_shown = || other.is_taken(NameBytes::of("stock").held);
    let [holder, waiter] = [(); 2].map(|()| ask(LockKind::Mutex, Duration::ZERO));
    let granted = store.front.attempt(&holder).await.outcome;
    assert!(matches!(granted, Ok(Attempt::Acquired(_))), "{granted:?}");
    let refused = store.front.attempt(&waiter).await.outcome;
    assert!(matches!(refused, Ok(Attempt::Held(_))), "{refused:?}");
    for ended in [
        store.front.release(&waiter.ticket).await,
        store.front.withdraw(&waiter.ticket).await,
    ] {
        assert_eq!(ended.unwrap(), Released::NotHeld);
        assert!(is_shown());
    }
    let released = store.front.release(&holder.ticket).await.unwrap();
    assert_eq!(released, Released::Freed);
    assert!(!is_shown());

    let granted = store.front.attempt(&holder).await.outcome;
    assert!(matches!(granted, Ok(Attempt::Acquired(_))), "{granted:?}");
    let tool = Connection::open(folder.path().join("locks.db")).unwrap();
    let body = "BEGIN SELECT RAISE(FAIL, 'no'); END";
    let trigger = format!("CREATE TRIGGER refuses BEFORE DELETE ON locks {body}");
    tool.execute_batch(&trigger).unwrap();
    store.front.release(&holder.ticket).await.unwrap_err();
    assert!(!is_shown(), "its lease may end before a release succeeds");
}
