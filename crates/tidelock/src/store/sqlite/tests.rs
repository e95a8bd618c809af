//! The store as its callers see it: what it shows to other processes, and which requests wait for no writer.

use rusqlite::Connection;
use rusqlite::types::Type;
use tempfile::TempDir;

use super::*;
use crate::store::{Background, PermitChange, Timers};

mod connections;
mod waiters;

/// A client of the file in this folder, of which nothing runs in the background.
async fn opened(folder: &TempDir, create: bool) -> Store {
    let (background, _stop) = Background::start(Clock::Boot).unwrap();
    let env = Env {
        lease: Duration::from_secs(1),
        create,
        ..Env::of_limits(Timers::new(Clock::Boot), background, Duration::from_secs(5))
    };
    let path = folder.path().join("locks.db");
    open(path.to_str().unwrap(), &env).await.unwrap()
}

/// A process that waits for the lock has locked a byte of the file.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_held_lock_is_shown_until_its_release_which_counts_the_processes_that_wait() {
    use crate::store::ReplicaAck;
    use crate::store::sqlite::byte_locks::ByteLocks;
    use crate::store::sqlite::queue_place::NameBytes;
    use crate::types::OwnerMint;

    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder, true).await;
    let other = ByteLocks::on(&folder.path().join("locks.db-lock")).unwrap();
    let bytes = NameBytes::of("stock");
    let one_waits = Awaited {
        others: 1,
        ..Awaited::default()
    };
    for (waits, answer) in [
        (false, Released::Freed),
        (true, Released::Awaited(one_waits)),
    ] {
        let ticket = Ticket {
            kind: LockKind::Mutex,
            name: Name::new("stock").unwrap(),
            owner: OwnerMint::new().fresh(),
        };
        let ask = AttemptRequest::once(ticket, Duration::from_secs(30), ReplicaAck::Off);
        let granted = store.front.attempt(&ask).await.outcome;
        assert!(matches!(granted, Ok(Attempt::Acquired(_))), "{granted:?}");
        assert!(other.is_taken(bytes.held));
        if waits {
            assert!(other.try_lock(bytes.first).unwrap());
        }
        let released = store.front.release(&ask.ticket).await.unwrap();
        assert_eq!(released, answer);
        assert!(!other.is_taken(bytes.held));
    }
}

#[cfg(unix)]
#[test]
fn a_path_below_the_home_folder_leads_there() {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let below = home.map(|home| std::path::Path::new(&home).join("locks.db"));
    assert_eq!(address::path_of("~/locks.db").ok(), below);
}

#[cfg(unix)]
#[tokio::test]
async fn the_doctor_looks_at_everything_that_weakens_a_lock_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder, true).await;
    let findings = store.front.diagnose().await.unwrap();
    let subjects = findings.iter().map(|finding| finding.subject.as_str());
    let mut subjects: Vec<&str> = subjects.collect();
    subjects.sort_unstable();
    let all = [
        "durability",
        "file system",
        "free space",
        "journal mode",
        "log",
        "reach",
        "rights",
        "version",
    ];
    assert_eq!(subjects, all);
}

/// Each process of a service may ask so at its start, and most change nothing.
#[tokio::test]
async fn a_number_that_is_set_already_is_found_without_waiting_for_a_writer() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder, true).await;
    let (extensions, name) = (store.front.extensions(), Name::new("stock").unwrap());
    let tokens = extensions.token_counter.unwrap();
    let permits = extensions.permit_counter.unwrap();
    assert_eq!(tokens.raise(&name, 7).await.unwrap(), 7);
    let new = PermitChange::SetIfNew(3);
    assert!(permits.change(&name, new).await.unwrap());
    let tool = Connection::open(folder.path().join("locks.db")).unwrap();
    tool.execute_batch("BEGIN IMMEDIATE").unwrap();
    for newest in [7, 5] {
        assert_eq!(tokens.raise(&name, newest).await.unwrap(), 7);
    }
    assert!(!permits.change(&name, new).await.unwrap());
}

/// It makes no request, so only its own look at the files tells it. Until then no other process can use the new ones.
#[cfg(unix)]
#[tokio::test]
async fn an_idle_client_that_only_looks_makes_room_for_others_when_the_log_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    drop(opened(&folder, true).await);
    let looks = opened(&folder, false).await;
    let paths = DatabasePaths::of(folder.path().join("locks.db"));
    for path in [&paths.wal, &paths.shm] {
        std::fs::remove_file(path).unwrap();
    }
    let mut newcomer = Database::new(SharedConnectionState::of_one(Arc::new(paths), true));
    // It looks ten times per lease.
    busy::be_patient_for(Duration::from_millis(2500));
    newcomer.connected().unwrap();
    drop(looks);
}

#[test]
fn a_row_that_cannot_be_read_fails_the_renewal_of_its_own_lock_only() {
    let unreadable = rusqlite::Error::InvalidColumnType(3, "ends".to_owned(), Type::Text);
    assert!(matches!(renewed(Err(unreadable)), Ok(Renewed::Failed(_))));
    assert!(renewed(Err(rusqlite::Error::InvalidQuery)).is_err());
    assert!(matches!(renewed(Ok(true)), Ok(Renewed::Kept)));
    assert!(matches!(renewed(Ok(false)), Ok(Renewed::Gone)));
}

/// Otherwise it could take a lock for a caller that has given up and does not know, or keep a place in its queue.
#[tokio::test]
async fn an_attempt_whose_caller_has_left_changes_nothing() {
    use crate::error::ErrorKind;
    use crate::store::ReplicaAck;
    use crate::store::liveness::tests::gone;
    use crate::types::OwnerMint;

    let folder = tempfile::tempdir().unwrap();
    let (store, name) = (opened(&folder, true).await, Name::new("stock").unwrap());
    for kind in [LockKind::Mutex, LockKind::Fair] {
        let ticket = Ticket {
            kind,
            name: name.clone(),
            owner: OwnerMint::new().fresh(),
        };
        let ask = AttemptRequest {
            liveness: gone(),
            ..AttemptRequest::once(ticket, Duration::from_secs(30), ReplicaAck::Off)
        };
        let refused = store.front.attempt(&ask).await.outcome.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{kind:?}");
        assert!(!store.front.inspect(&name).await.unwrap().is_locked());
    }
}
