use futures_util::FutureExt;

use crate::store::Wake;
use crate::store::sqlite::wake::*;

mod alone;
#[cfg(target_os = "linux")]
mod ranks;

/// Whether it was woken since this was asked last.
fn is_woken(wake: &mut Wake) -> bool {
    wake.woken().now_or_never().is_some()
}

#[tokio::test]
async fn it_looks_while_somebody_waits_and_rests_when_nobody_does() {
    let folder = tempfile::tempdir().unwrap();
    let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
    let mut database = Database::new(SharedConnectionState::of_one(Arc::clone(&paths), true));
    database.version().unwrap();
    let watch = FileWatch::of(&paths);
    let signals = watch.signals(Timers::new(Clock::Boot));
    let listening = watch.listen(signals.clone());
    let checks = || watch.checks.load(Ordering::Relaxed);
    assert_eq!(checks(), 0);
    // The file has no row: the first look finds the lock free and wakes the waiter.
    let mut wake = signals.arm("free");
    watch.begin("free", Clock::Boot);
    wake.woken().await;
    drop(wake);
    let wake = signals.arm("free");
    watch.begin("free", Clock::Boot);
    let (before, time) = (checks(), Duration::from_secs(1));
    std::thread::sleep(time);
    let many = checks() - before;
    // 50 short pauses, and then long ones for the rest of the second, on a machine that may be busy.
    assert!((10..=160).contains(&many), "{many} checks a second");
    drop(wake);
    std::thread::sleep(LONG_PAUSE * 4);
    let before = checks();
    std::thread::sleep(LONG_PAUSE * 10);
    assert_eq!(checks(), before);
    drop(listening);
}

/// Otherwise a release in one file would wake the waiters of another, and only one of the files would be watched.
#[test]
fn two_files_are_two_watches() {
    let folder = tempfile::tempdir().unwrap();
    let paths = |name: &str| Arc::new(DatabasePaths::of(folder.path().join(name)));
    let (one, other) = (paths("one.db"), paths("other.db"));
    for file in [&one, &other] {
        std::fs::write(&file.main, "").unwrap();
    }
    let watches = [&one, &other].map(FileWatch::of);
    assert!(!Arc::ptr_eq(&watches[0], &watches[1]));
    assert!(Arc::ptr_eq(&watches[0], &FileWatch::of(&one)), "it stays");
}

/// Otherwise a process would keep an entry for each file that it has ever opened.
#[test]
fn a_watch_that_nobody_has_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one.db", "other.db"].map(|name| folder.path().join(name));
    let watch = |path: &PathBuf| FileWatch::of(&Arc::new(DatabasePaths::of(path.clone())));
    drop(watch(&one));
    let _other = watch(&other);
    // The files do not exist, so their paths identify them.
    assert!(!WATCHES.lock().contains_key(&Key::Path(one)));
}

#[test]
fn a_client_that_has_left_is_woken_no_longer_and_the_others_are() {
    let folder = tempfile::tempdir().unwrap();
    let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
    let watch = FileWatch::of(&paths);
    let [stays, leaves] = [(); 2].map(|()| watch.signals(Timers::new(Clock::Boot)));
    let [_listening, left] = [&stays, &leaves].map(|signals| watch.listen(signals.clone()));
    drop(left);
    let (mut woken, mut asleep) = (stays.arm("a"), leaves.arm("a"));
    watch.wake("a");
    assert!(is_woken(&mut woken) && !is_woken(&mut asleep));
}

/// Otherwise it would get the lock only after the next look at the rows.
#[test]
fn a_release_that_calls_this_process_wakes_its_waiter_for_that_lock() {
    let folder = tempfile::tempdir().unwrap();
    let paths = Arc::new(DatabasePaths::of(folder.path().join("locks.db")));
    let watch = FileWatch::of(&paths);
    let signals = watch.signals(Timers::new(Clock::Boot));
    let _listening = watch.listen(signals.clone());
    let (mut woken, mut asleep) = (signals.arm("a"), signals.arm("b"));
    QueueListener::called(&*watch, "a");
    assert!(is_woken(&mut woken) && !is_woken(&mut asleep));
}

#[cfg(unix)]
#[test]
fn two_ways_to_one_file_are_one_watch() {
    let folder = tempfile::tempdir().unwrap();
    let paths = |name: &str| Arc::new(DatabasePaths::of(folder.path().join(name)));
    let (file, other) = (paths("locks.db"), paths("other.db"));
    // The file does not exist yet, so the path identifies it.
    assert!(Arc::ptr_eq(
        &FileWatch::of(&file),
        &FileWatch::of(&paths("locks.db"))
    ));
    std::fs::write(&file.main, "").unwrap();
    std::fs::hard_link(&file.main, &other.main).unwrap();
    assert!(Arc::ptr_eq(&FileWatch::of(&file), &FileWatch::of(&other)));
}

/// It looks into the file at its own path, and the inode of a file that was deleted is given to a new one.
#[cfg(unix)]
#[test]
fn a_file_that_has_the_identity_of_an_earlier_one_has_a_watch_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let paths = |name: &str| Arc::new(DatabasePaths::of(folder.path().join(name)));
    let (earlier, file) = (paths("earlier.db"), paths("locks.db"));
    std::fs::write(&earlier.main, "").unwrap();
    let before = FileWatch::of(&earlier);
    std::fs::rename(&earlier.main, &file.main).unwrap();
    let watch = FileWatch::of(&file);
    assert_eq!(watch.paths.main, file.main);
    std::fs::write(&earlier.main, "").unwrap();
    assert_eq!(FileWatch::of(&earlier).paths.main, before.paths.main);
    assert!(Arc::ptr_eq(&FileWatch::of(&file), &watch), "it stays");
}
