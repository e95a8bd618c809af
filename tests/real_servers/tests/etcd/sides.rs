//! Read-write locks: their keys, `etcdctl lock` beside them, downgrades, and holders and waiters that die.

use std::process::{Command, Stdio};
use std::time::Instant;

use testkit::java::{HammerReport, WordFile};
use testkit::process::Spawned;
use testkit::proxy::{Mode as Pass, Proxy, Way};
use testkit::servers::EtcdServer;
use tidelock::{Client, Guard, Lock, LostReason, Mode};
use tokio::task::JoinHandle;

use crate::world::{SOON, client, lease_of, ms, soon, until_keys};

const NAME: &str = "prices";

fn waits(lock: &Lock) -> JoinHandle<Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

async fn until_waiters(client: &Client, count: u64) {
    let end = Instant::now() + SOON;
    loop {
        let seen = client.lock(NAME).inspect().await.unwrap();
        if seen.waiters == Some(count) {
            return;
        }
        assert!(Instant::now() < end, "{count} waiters: {seen:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Another process, which acquires one side of the lock.
fn process(server: &EtcdServer, side: &str) -> Spawned {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
    command.args([server.url(), ms(3000).as_millis().to_string()]);
    let mut peer = Spawned::start(command).unwrap();
    peer.wait_line("ready", SOON).unwrap();
    peer.write_line(&format!("acquire {NAME} {side}")).unwrap();
    peer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_the_sides_are_those_of_the_page() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let sides = a.read_write_lock(NAME);
    let reader = sides.read().acquire().await.unwrap();
    let keys = until_keys(&server, 1).await;
    let id = keys[0].strip_prefix("prices/read/").unwrap();
    assert_eq!(lease_of(&server, &keys[0]), id);
    reader.release().await.unwrap();
    let writer = sides.write().acquire().await.unwrap();
    let mut keys = until_keys(&server, 2).await;
    keys.sort();
    let id = keys[1].strip_prefix("prices/write/").unwrap();
    assert_eq!(keys[0], format!("prices/read/{id}.downgrade"));
    let reader = sides.downgrade(writer).await.unwrap();
    let mut after = until_keys(&server, 3).await;
    after.sort();
    let tokens = after.remove(0);
    assert_eq!(tokens, "%tokens/prices");
    assert_eq!(after, [format!("prices/read/{id}"), keys[0].clone()]);
    // Both have the lease of the reader, which is another one.
    let leases = [0, 1].map(|n| lease_of(&server, &after[n]));
    assert_eq!(leases[0], leases[1]);
    assert_ne!(leases[0], id);
    reader.release().await.unwrap();
    assert_eq!(until_keys(&server, 1).await, [tokens]);
}

/// `etcdctl lock` knows no sides: it waits for all readers before it, and all sides behind it wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_counts_as_a_writer() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let (ours, theirs) = (a.read_write_lock(NAME), b.read_write_lock(NAME));
    let readers = [
        ours.read().acquire().await.unwrap(),
        theirs.read().acquire().await.unwrap(),
    ];
    let mut command = server.etcdctl();
    command.args(["lock", NAME]).stdin(Stdio::null());
    let mut foreign = Spawned::start(command).unwrap();
    until_waiters(&a, 1).await;
    let behind = [waits(&ours.read()), waits(&theirs.read())];
    until_waiters(&a, 3).await;
    assert!(theirs.read().try_acquire().await.unwrap().is_none());
    let [one, other] = readers;
    one.release().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    let seen = a.lock(NAME).inspect().await.unwrap();
    assert_eq!((seen.holders[0].mode, seen.waiters), (Mode::Read, Some(3)));
    other.release().await.unwrap();
    foreign.wait_line("prices/", SOON).unwrap();
    let seen = a.lock(NAME).inspect().await.unwrap();
    assert_eq!(
        (seen.holders[0].mode, seen.waiters),
        (Mode::Exclusive, Some(2))
    );
    assert!(behind.iter().all(|waiter| !waiter.is_finished()));
    foreign.kill().unwrap();
    for waiter in behind {
        let guard = tokio::time::timeout(SOON * 4, waiter).await.unwrap();
        guard.unwrap().release().await.unwrap();
    }
}

/// A reader that was a writer has its place in the queue, not that of its newest key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgraded_reader_is_ahead_of_etcdctl() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let sides = a.read_write_lock(NAME);
    let writer = sides.write().acquire().await.unwrap();
    let mut command = server.etcdctl();
    command.args(["lock", NAME]).stdin(Stdio::null());
    let mut foreign = Spawned::start(command).unwrap();
    until_waiters(&a, 1).await;
    let reader = sides.downgrade(writer).await.unwrap();
    foreign.wait_line("prices/", ms(1500)).unwrap_err();
    assert!(reader.is_held());
    reader.release().await.unwrap();
    foreign.wait_line("prices/", SOON).unwrap();
    foreign.kill().unwrap();
}

/// Somebody deletes the place of a reader that was a writer: the next writer enters, so the reader must be told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgraded_reader_whose_place_is_deleted_is_told() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let sides = a.read_write_lock(NAME);
    let writer = sides.write().acquire().await.unwrap();
    let reader = sides.downgrade(writer).await.unwrap();
    let keys = until_keys(&server, 3).await;
    let place = keys.iter().find(|key| key.ends_with(".downgrade")).unwrap();
    server.admin(&["del", place]).unwrap();
    assert_eq!(soon("the loss", reader.lost()).await, LostReason::Taken);
}

/// The reader lives for longer than the writer's lease, which nobody renews any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgraded_reader_outlives_the_lease_of_the_writer() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let sides = a.read_write_lock(NAME);
    let writer = sides.write().acquire().await.unwrap();
    let keys = until_keys(&server, 2).await;
    let lease = lease_of(&server, &keys[0]);
    let next = waits(&b.read_write_lock(NAME).write());
    until_waiters(&a, 1).await;
    let reader = sides.downgrade(writer).await.unwrap();
    // Its lease is not kept for another acquisition, whose keys would have the names of the reader's.
    let other = a.read_write_lock("other").write().acquire().await.unwrap();
    let keys = server.keys().unwrap();
    assert!(!keys.contains(&format!("other/write/{lease}")), "{keys:?}");
    other.release().await.unwrap();
    tokio::time::sleep(ms(2500)).await;
    assert!(reader.is_held() && !next.is_finished());
    assert!(sides.write().try_acquire().await.unwrap().is_none());
    reader.release().await.unwrap();
    soon("the writer", next)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    until_keys(&server, 1).await;
}

/// The keys of those that wait are older than the reader's. Each has a larger token than the one before it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_across_a_downgrade() {
    let server = EtcdServer::start().unwrap();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let (ours, theirs) = (a.read_write_lock(NAME), b.read_write_lock(NAME));
    let writer = ours.write().fenced().acquire().await.unwrap();
    let mut last = writer.token();
    let mut waiting = Vec::new();
    for lock in [
        theirs.write().fenced(),
        b.fair_lock(NAME).fenced(),
        theirs.read().fenced(),
        a.lock(NAME).fenced(),
    ] {
        waiting.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
        until_waiters(&a, waiting.len() as u64).await;
    }
    let mut guard = ours.downgrade(writer).await.unwrap();
    for next in waiting {
        assert!(guard.token() > last, "{} after {last}", guard.token());
        last = guard.token();
        let seen = a.lock(NAME).inspect().await.unwrap();
        assert_eq!(seen.token, Some(last));
        if let Ok(sequencer) = guard.sequencer() {
            assert!(a.verify(&sequencer).await.unwrap());
        }
        guard.release().await.unwrap();
        guard = soon("the next", next).await.unwrap();
    }
    assert!(guard.token() > last);
    let sequencer = guard.sequencer().unwrap();
    assert!(a.verify(&sequencer).await.unwrap());
    guard.release().await.unwrap();
    assert!(!a.verify(&sequencer).await.unwrap());
}

/// T10: the replies to the downgrade are lost. Afterwards one reader holds the lock, or nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t10_a_downgrade_whose_replies_were_swallowed_leaves_one_reader() {
    let server = EtcdServer::start().unwrap();
    let near = client(&server.url()).await;
    let proxy = Proxy::start(server.addr()).unwrap();
    let far = Client::builder()
        .lease(ms(6000))
        .response_timeout(ms(1000))
        .publish_process_info(false);
    let far = far
        .connect(&format!("etcd://{}", proxy.addr()))
        .await
        .unwrap();
    let sides = far.read_write_lock(NAME);
    // They leave a lease each, one for the writer and one for the reader, so the downgrade is one request.
    let one = sides.read().acquire().await.unwrap();
    let other = sides.read().acquire().await.unwrap();
    one.release().await.unwrap();
    other.release().await.unwrap();
    let writer = sides.write().acquire().await.unwrap();
    proxy.set(Way::ToClient, Pass::Drop);
    let downgrade = tokio::spawn(sides.downgrade(writer));
    until_keys(&server, 4).await;
    proxy.set(Way::ToClient, Pass::Pass);
    proxy.cut();
    match soon("the downgrade", downgrade).await.unwrap() {
        Ok(reader) => {
            let beside = near.read_write_lock(NAME).read().try_acquire().await;
            beside.unwrap().unwrap().release().await.unwrap();
            let seen = near.lock(NAME).inspect().await.unwrap();
            assert!(seen.holders.iter().all(|one| one.mode == Mode::Read));
            assert_eq!(seen.holders.len(), 1);
            reader.release().await.unwrap();
        }
        Err(error) => assert!(error.outcome_unknown(), "{error}"),
    }
    until_keys(&server, 1).await;
}

/// T50: the hold of a killed reader ends with its lease, however long another one reads; a killed waiter lets those
/// behind it pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t50_a_reader_and_a_waiting_writer_that_were_killed_cost_a_lease() {
    let server = EtcdServer::start().unwrap();
    let a = client(&server.url()).await;
    let sides = a.read_write_lock(NAME);
    let mut reads = process(&server, "read");
    reads.wait_line("acquired", SOON).unwrap();
    let stays = sides.read().acquire().await.unwrap();
    let mut waiting = process(&server, "write");
    until_waiters(&a, 1).await;
    let behind = waits(&sides.read());
    until_waiters(&a, 2).await;
    waiting.kill().unwrap();
    let behind = soon("the reader behind it", behind).await.unwrap();
    let writer = waits(&sides.write());
    until_waiters(&a, 1).await;
    reads.kill().unwrap();
    behind.release().await.unwrap();
    stays.release().await.unwrap();
    soon("the writer", writer)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// Readers and writers of two processes: no writer overlaps with another holder, and tokens grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_of_several_processes_never_meet() {
    let server = EtcdServer::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("word");
    let word = WordFile::create(&path).unwrap();
    let processes = [(); 2].map(|()| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hammer"));
        command.args([&*server.url(), "sides", NAME, "60", "2"]);
        command.arg(&path).arg("200");
        Spawned::start(command).unwrap()
    });
    for mut process in processes {
        let line = process.wait_line("acquisitions", SOON * 3).unwrap();
        let report: HammerReport = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
        assert_eq!((report.overlaps, report.token_faults), (0, 0), "{report:?}");
    }
    // Every third hold is a writer's, and no update was lost.
    assert_eq!(word.counter().unwrap(), 80);
}

/// etcd refuses a transaction with more than 128 operations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_readers_is_freed_if_it_is_the_one_that_was_seen() {
    let server = EtcdServer::start().unwrap();
    // So many renewals and a large transaction: a short lease or response timeout would test the machine.
    let builder = Client::builder()
        .lease(ms(30_000))
        .response_timeout(ms(10_000))
        .publish_process_info(false);
    let a = builder.clone().connect(&server.url()).await.unwrap();
    let sides = a.read_write_lock(NAME);
    let mut readers = Vec::new();
    for _ in 0..130 {
        readers.push(sides.read().acquire().await.unwrap());
    }
    let operator = builder.connect(&server.url()).await.unwrap();
    let lock = operator.lock(NAME);
    let seen = lock.inspect().await.unwrap();
    assert_eq!(seen.holders.len(), readers.len());
    readers.push(sides.read().acquire().await.unwrap());
    assert!(
        !lock.force_release_if(&seen).await.unwrap(),
        "one more reads"
    );
    let seen = lock.inspect().await.unwrap();
    assert!(lock.force_release_if(&seen).await.unwrap());
    assert!(!lock.inspect().await.unwrap().is_locked());
}

/// The first page of the list ends between the two keys of a writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_has_the_lock_whose_keys_are_on_two_pages() {
    let server = EtcdServer::start().unwrap();
    let builder = Client::builder()
        .lease(ms(30_000))
        .publish_process_info(false);
    let a = builder.connect(&server.url()).await.unwrap();
    // A page has 250 keys, and each writer has two of them: without this key no page would end within a writer.
    let first = a.lock("a").acquire().await.unwrap();
    let (mut names, mut writers) = (vec!["a".to_owned()], Vec::new());
    for n in 0..130 {
        let name = format!("b{n:03}");
        let writer = a.read_write_lock(&name).write().acquire().await.unwrap();
        names.push(name);
        writers.push(writer);
    }
    assert_eq!(a.list("*").await.unwrap(), names);
    drop((first, writers));
}
