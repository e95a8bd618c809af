//! The connections of a client: how many there are, how long one waits for its turn, the name of its clock, and its end.

use super::*;
use crate::error::ErrorKind;

#[tokio::test]
async fn a_client_that_was_closed_refuses_all_requests() {
    let folder = tempfile::tempdir().unwrap();
    let (store, name) = (opened(&folder, true).await, Name::new("stock").unwrap());
    for side in [&store.front, &store.back] {
        assert!(!side.inspect(&name).await.unwrap().is_locked());
        side.close().await;
        let refused = side.inspect(&name).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed, "{refused}");
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::path::Path;

    use super::*;
    use crate::store::sqlite::write_turn::WriteTurn;

    /// How many descriptors of this file the process has open.
    fn descriptors_of(file: &Path) -> usize {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link == file).count()
    }

    /// It has no hold that its second connection would renew.
    #[tokio::test]
    async fn a_client_that_only_looks_opens_one_connection_and_each_other_opens_two() {
        for (create, connections) in [(false, 1), (true, 2)] {
            let folder = tempfile::tempdir().unwrap();
            // The kernel shows paths without symbolic links.
            let file = folder.path().canonicalize().unwrap().join("locks.db");
            let paths = Arc::new(DatabasePaths::of(file.clone()));
            let mut first = Database::new(SharedConnectionState::of_one(paths, true));
            first.connected().unwrap();
            drop(first);
            let store = opened(&folder, create).await;
            assert_eq!(descriptors_of(&file), connections, "create: {create}");
            drop(store);
        }
    }

    /// Otherwise it would have no time left for the write itself when the other process is frozen.
    #[test]
    fn a_writer_waits_for_the_turn_of_another_for_a_part_of_its_time_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut frozen = WriteTurn::beside(file.path());
        let taken = frozen.take();
        assert!(taken.is_some());
        // A busy machine may let the thread go on late, but not each time.
        let has_time_left = (0..20).any(|_| {
            let mut own = WriteTurn::beside(file.path());
            busy::be_patient_for(Duration::from_millis(400));
            assert!(own.take().is_none());
            busy::left().is_some()
        });
        assert!(has_time_left);
    }

    /// Otherwise the deadline of a holder that ended with an earlier boot would be read on a clock that has begun again since.
    #[test]
    fn the_name_of_the_clock_has_the_id_of_this_boot() {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let timebase = Timebase::new(Clock::Boot);
        let (boot, domain) = (boot.trim(), timebase.now().domain);
        assert!(!boot.is_empty() && domain.starts_with(boot), "{domain}");
    }
}
