//! `etcdctl lock` and tidelock on the same names exclude each other.

use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;

use testkit::servers::EtcdServer;
use tidelock::Client;

use crate::world::{client, ms, until_keys};

/// Creates a file that must not exist, holds it for a moment, and counts.
const SCRIPT: &str = r#"set -C; { : > "$0/in"; } 2>/dev/null || echo x >> "$0/overlaps"; rm -f "$0/in"; echo x >> "$0/turns""#;

pub(crate) fn count(dir: &Path, file: &str) -> usize {
    std::fs::read_to_string(dir.join(file)).map_or(0, |text| text.lines().count())
}

/// Runs `etcdctl lock` `turns` times in sequence.
pub(crate) fn foreign(server: &EtcdServer, dir: &Path, turns: usize) -> Child {
    let ctl = server.etcdctl();
    let mut shell = std::process::Command::new("sh");
    for (key, value) in ctl.get_envs() {
        shell.env(key, value.unwrap_or_default());
    }
    let rounds = r#"n=0; while [ $n -lt $1 ]; do etcdctl lock till sh -- -c "$2" "$0" >/dev/null || exit 1; n=$((n+1)); done"#;
    shell
        .args(["-c", rounds])
        .arg(dir)
        .arg(turns.to_string())
        .arg(SCRIPT);
    shell.stdin(Stdio::null()).spawn().unwrap()
}

async fn ours(client: Client, dir: Arc<Path>, turns: usize) {
    for _ in 0..turns {
        let guard = client.lock("till").acquire().await.unwrap();
        let entered = std::fs::File::create_new(dir.join("in"));
        assert!(entered.is_ok(), "somebody else is in");
        tokio::task::yield_now().await;
        std::fs::remove_file(dir.join("in")).unwrap();
        guard.release().await.unwrap();
    }
}

async fn exclude_each_other(theirs: usize, loops: usize, own: usize) {
    let server = EtcdServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path: Arc<Path> = dir.path().into();
    let children: Vec<Child> = (0..loops)
        .map(|_| foreign(&server, &path, theirs))
        .collect();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let client = client(&server.url()).await;
        tasks.spawn(ours(client, Arc::clone(&path), own));
    }
    tasks.join_all().await;
    for mut child in children {
        let status = tokio::task::spawn_blocking(move || child.wait()).await;
        assert!(status.unwrap().unwrap().success());
    }
    assert_eq!(count(&path, "overlaps"), 0);
    assert_eq!(count(&path, "turns"), theirs * loops);
    until_keys(&server, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_and_tidelock_take_turns() {
    exclude_each_other(20, 3, 60).await;
}

/// Two thousand turns take minutes: each `etcdctl` is a process with a session of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes; run by `cargo xtask full`"]
async fn etcdctl_and_tidelock_take_turns_2000_times() {
    exclude_each_other(250, 4, 250).await;
}

/// In both directions, a hold of one is seen and waited for by the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_waits_for_the_other() {
    let server = EtcdServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let client = client(&server.url()).await;
    let guard = client.lock("till").acquire().await.unwrap();
    let mut other = foreign(&server, dir.path(), 1);
    until_keys(&server, 2).await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(count(dir.path(), "turns"), 0);
    guard.release().await.unwrap();
    let ended = tokio::task::spawn_blocking(move || other.wait()).await;
    assert!(ended.unwrap().unwrap().success());
    assert_eq!(count(dir.path(), "turns"), 1);
    let mut holder = server.etcdctl();
    let mut holder = holder
        .args(["lock", "till"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until_keys(&server, 1).await;
    assert!(client.lock("till").try_acquire().await.unwrap().is_none());
    let seen = client.lock("till").inspect().await.unwrap();
    assert!(seen.holders[0].owner.starts_with("lease "), "{seen:?}");
    let waiting = client.lock("till").acquire();
    testkit::process::terminate(holder.id()).unwrap();
    let guard = crate::world::soon("the lock", waiting).await.unwrap();
    holder.wait().unwrap();
    guard.release().await.unwrap();
}
