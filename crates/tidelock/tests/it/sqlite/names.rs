//! T66: one lock file with two paths.

use std::path::Path;
use std::time::{Duration, Instant};

use tidelock::{Client, ErrorKind};

use super::child::Other;

const LEASE: Duration = Duration::from_millis(600);

/// Makes the file with a client, and closes that.
async fn used(file: &Path) {
    let client = super::client(file, LEASE).await;
    client.close(Duration::ZERO).await;
}

async fn refusal(file: &Path) -> tidelock::Error {
    let client = Client::connect(&super::url(file)).await;
    client.expect_err("it is refused")
}

/// Nothing may be granted through the second path, neither to a new client nor to one that reconnects.
#[tokio::test]
async fn t66_a_file_with_a_second_hard_link_has_one_holder() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let mut holder = Other::start("hold", &file, 1);
    holder.hear();
    std::fs::hard_link(&file, &other).unwrap();
    for path in [&other, &file] {
        let error = refusal(path).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("2 hard links"), "{error}");
    }
    // A process that has the file open continues: no other client can get in.
    tokio::time::sleep(LEASE * 2).await;
    assert!(holder.still_holds());
    std::fs::remove_file(&other).unwrap();
    let client = super::client(&file, LEASE).await;
    let lock = client.lock("ledger");
    assert!(lock.try_acquire().await.unwrap().is_none());
    holder.kill();
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn t66_a_link_that_was_made_while_nobody_looked_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("a.db"), folder.path().join("b.db"));
    used(&file).await;
    std::fs::hard_link(&file, &other).unwrap();
    for path in [&other, &file] {
        let error = refusal(path).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

/// Another user who may write the folder could otherwise make this process overwrite any file. The log is missing, so the
/// line in `-lock` would be written again.
#[cfg(unix)]
#[tokio::test]
async fn t66_a_link_in_the_place_of_the_companion_is_refused_and_its_target_stays() {
    type Link = fn(&Path, &Path) -> std::io::Result<()>;
    let links: [(&str, Link); 2] = [
        ("symbolic", |target, link| {
            std::os::unix::fs::symlink(target, link)
        }),
        ("hard", |target, link| std::fs::hard_link(target, link)),
    ];
    for (kind, link) in links {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (file, target) = (path("a.db"), path("target"));
        used(&file).await;
        std::fs::write(&target, "text of another user").unwrap();
        std::fs::remove_file(path("a.db-wal")).unwrap();
        link(&target, &path("link")).unwrap();
        std::fs::rename(path("link"), path("a.db-lock")).unwrap();
        let error = refusal(&file).await;
        assert_eq!(error.kind(), ErrorKind::Refused, "{kind}: {error}");
        assert!(error.to_string().contains("-lock"), "{kind}: {error}");
        let text = std::fs::read_to_string(&target).unwrap();
        assert_eq!(text, "text of another user", "{kind}");
        // Without the link, the file is used as before.
        std::fs::remove_file(path("a.db-lock")).unwrap();
        let client = super::client(&file, LEASE).await;
        assert!(client.lock("ledger").try_acquire().await.unwrap().is_some());
    }
}

/// SQLite opens neither through a link. Otherwise it would write into the file that the link leads to.
#[cfg(unix)]
#[tokio::test]
async fn t66_a_link_in_the_place_of_the_log_or_its_index_is_not_followed() {
    for beside in ["a.db-wal", "a.db-shm"] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let (file, target) = (path("a.db"), path("target"));
        used(&file).await;
        std::fs::write(&target, "text of another user").unwrap();
        drop(std::fs::remove_file(path(beside)));
        std::os::unix::fs::symlink(&target, path(beside)).unwrap();
        let builder = Client::builder().response_timeout(LEASE / 6);
        let builder = builder.connect_within(Duration::ZERO);
        let refused = builder.connect(&super::url(&file)).await;
        assert!(refused.is_err(), "{beside}");
        let text = std::fs::read_to_string(&target).unwrap();
        assert_eq!(text, "text of another user", "{beside}");
    }
}

/// The file is renamed while a lock is held: beside the new name there is no -wal and no -shm file.
#[tokio::test]
async fn t66_a_file_that_is_renamed_under_its_holder_has_one_holder() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let mut holder = Other::start("hold", &file, 1);
    holder.hear();
    std::fs::rename(&file, &other).unwrap();
    let renamed = Instant::now();
    let granted = loop {
        let builder = Client::builder().response_timeout(LEASE / 6);
        if let Ok(client) = builder.connect(&super::url(&other)).await
            && let Ok(Some(guard)) = client.lock("ledger").try_acquire().await
        {
            break guard;
        }
    };
    assert!(!holder.still_holds(), "after {:?}", renamed.elapsed());
    assert!(renamed.elapsed() < LEASE * 2, "{:?}", renamed.elapsed());
    drop(granted);
}

/// Runs a role of this test binary in a separate namespace, in which it may mount.
#[cfg(target_os = "linux")]
fn in_a_namespace(script: &str, role: &str, file: &Path) {
    let own = ["--user", "--map-root-user", "--mount"];
    let able = std::process::Command::new("unshare")
        .args(own)
        .arg("true")
        .status();
    if !able.is_ok_and(|status| status.success()) {
        let why = "this machine does not allow `unshare --user --mount`";
        assert!(std::env::var_os("TIDELOCK_REQUIRE").is_none(), "{why}");
        eprintln!("LEFT OUT: {why}");
        return;
    }
    let script = format!("{script} && exec \"$0\" \"$@\"");
    let mut command = vec!["unshare"];
    command.extend(own);
    command.extend(["sh", "-c", script.as_str()]);
    Other::start_in(&command, role, file, 0).finish();
}

#[cfg(target_os = "linux")]
#[test]
fn t66_a_folder_that_is_mounted_twice_has_one_holder() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let script = format!("mkdir {at}/one {at}/two && mount --bind {at}/one {at}/two");
    in_a_namespace(
        &script,
        "mounted twice",
        &folder.path().join("one/locks.db"),
    );
}

/// The child's part of the test above.
pub(crate) async fn lock_through_two_mounts(file: &Path) {
    let other = file
        .parent()
        .unwrap()
        .with_file_name("two")
        .join("locks.db");
    let (one, two) = (
        super::client(file, LEASE).await,
        super::client(&other, LEASE).await,
    );
    let held = one.lock("stock").acquire().await.unwrap();
    assert!(two.lock("stock").try_acquire().await.unwrap().is_none());
    let lock = two.lock("stock");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(LEASE * 2).await;
    assert!(!waiter.is_finished() && held.is_held());
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn t66_a_file_that_is_mounted_without_its_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let script = format!(
        "mkdir {at}/one {at}/two && touch {at}/one/locks.db {at}/two/locks.db && mount --bind {at}/one/locks.db {at}/two/locks.db"
    );
    in_a_namespace(
        &script,
        "mounted alone",
        &folder.path().join("one/locks.db"),
    );
}

/// The child's part of the test above.
pub(crate) async fn open_a_mounted_file(file: &Path) {
    let other = file
        .parent()
        .unwrap()
        .with_file_name("two")
        .join("locks.db");
    let error = refusal(&other).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("Mount the folder"), "{error}");
    super::client(file, LEASE).await;
}

/// The client that comes first through the links creates the file at their end.
#[cfg(unix)]
#[tokio::test]
async fn t66_links_to_a_file_that_is_not_there_yet_lead_to_one_store() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("real")).unwrap();
    symlink("real/a.db", path("link.db")).unwrap();
    symlink(path("link.db"), path("real/outer.db")).unwrap();
    let client = super::client(&path("real/outer.db"), LEASE).await;
    let held = client.lock("stock").acquire().await.unwrap();
    for name in ["real/a.db", "link.db", "real/outer.db"] {
        let other = super::client(&path(name), LEASE).await;
        let taken = other.lock("stock").try_acquire().await.unwrap();
        assert!(taken.is_none(), "{name}");
    }
    held.release().await.unwrap();
    assert!(path("real/a.db-lock").exists());
    assert!(!path("link.db-lock").exists() && !path("real/outer.db-lock").exists());
    symlink(path("round.db"), path("round.db")).unwrap();
    let error = refusal(&path("round.db")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
}

/// A symbolic link, a path through `/proc` and a path with `..` are names of the same file.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn t66_paths_that_lead_to_one_file_are_one_store() {
    use std::os::fd::AsRawFd;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.db");
    let client = super::client(&file, LEASE).await;
    let held = client.lock("stock").acquire().await.unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let open = std::fs::File::open(folder.path()).unwrap();
    let through = format!("/proc/self/fd/{}/a.db", open.as_raw_fd());
    std::fs::create_dir(folder.path().join("x")).unwrap();
    for path in [link, through.into(), folder.path().join("x/../a.db")] {
        let other = super::client(&path, LEASE).await;
        let taken = other.lock("stock").try_acquire().await.unwrap();
        assert!(taken.is_none(), "{}", path.display());
    }
    held.release().await.unwrap();
}
