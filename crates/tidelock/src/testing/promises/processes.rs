//! Promises about what operators see of the processes that use a store.

use std::time::Duration;

use crate::client::Client;
use crate::error::ErrorKind;
use crate::once::{Begun, Once, Slot};
use crate::processes::{AwaitedLock, Process};
use crate::testing::fixture::{Fixture, eventually, unique, within};

/// Much longer than the ten seconds between two records.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that tells what it does.
async fn open(fixture: &Fixture, program: &str) -> Client {
    let builder = fixture.builder().publish_process_info(true);
    let builder = builder.program(program).program_version("1.9");
    fixture.client(builder).await
}

/// What the store shows of a process.
async fn seen(viewer: &Client, of: &Client) -> Option<Process> {
    let all = viewer.processes().await.expect("readable");
    all.into_iter().find(|process| process.client == of.id())
}

async fn awaited(viewer: &Client, name: &str) -> Option<AwaitedLock> {
    let all = viewer.awaited().await.expect("readable");
    all.into_iter().find(|lock| lock.snapshot.name == name)
}

/// A process tells what it holds and how many of its calls wait; a viewer joins that with the state of the lock. A client
/// that was closed is listed no more.
pub async fn a_process_tells_what_it_holds_and_waits_for(fixture: &Fixture) {
    let name = unique("order 42");
    let viewer = fixture.client(fixture.builder()).await;
    viewer.watch_processes().await.expect("writable");
    let (holder, waiter) = (open(fixture, "shop\n1").await, open(fixture, "job").await);
    let held = holder.lock(&name).acquire().await.expect("free");
    let waits: Vec<_> = (0..3)
        .map(|_| {
            let lock = waiter.lock(&name);
            tokio::spawn(async move { drop(lock.acquire().await) })
        })
        .collect();
    // On a busy machine a process may be silent for a moment, and then counts as gone.
    let told = async {
        loop {
            let lock = awaited(&viewer, &name).await;
            if let Some((lock, process)) = lock.zip(seen(&viewer, &holder).await)
                && (lock.waiters, lock.processes.len()) == (3, 1)
                && lock.held_for.is_some()
                && !process.is_gone()
            {
                return (lock, process);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let (lock, process) = within("both have told", PATIENCE, told).await;
    assert!(lock.longest.is_some(), "{lock:?}");
    let waiting = &lock.processes[0];
    assert_eq!((&*waiting.client, waiting.waiters), (waiter.id(), 3));
    assert_eq!(process.held, 1, "{process:?}");
    assert_eq!(process.info.program, "shop\n1");
    assert_eq!(process.info.pid, std::process::id());
    assert_eq!(process.version.as_deref(), Some("1.9"));
    assert_eq!(process.holds[0].name, name);
    drop(held);
    for wait in waits {
        within("a turn", PATIENCE, wait).await.expect("no panic");
    }
    eventually("nobody waits", PATIENCE, async || {
        let process = seen(&viewer, &waiter).await.expect("it lives");
        let calls = process.acquire_times.iter().map(|bucket| bucket.calls);
        process.waits.is_empty() && (process.acquired, calls.sum()) == (3, 3)
    })
    .await;
    holder.close(Duration::ZERO).await;
    eventually("it is listed no more", PATIENCE, async || {
        seen(&viewer, &holder).await.is_none()
    })
    .await;
    assert!(seen(&viewer, &waiter).await.is_some());
}

/// A process tells in which elections it leads or campaigns, and what came of the jobs that it ran last. A viewer need not
/// know their names.
pub async fn a_process_tells_what_it_leads_and_runs(fixture: &Fixture) {
    let (name, job) = (unique("bill,ing"), unique("report 7"));
    let viewer = fixture.client(fixture.builder()).await;
    viewer.watch_processes().await.expect("writable");
    let (leader, other) = (open(fixture, "a").await, open(fixture, "b").await);
    let billing = leader.election(&name).identity("web,3");
    let leadership = billing.campaign().await.expect("nobody leads");
    let campaign = {
        let billing = other.election(&name).identity("web-4");
        tokio::spawn(async move { billing.campaign().await })
    };
    let ran = leader.once(&job).slot(Slot::id("a,b"));
    let ran = ran.run(async |_| Ok::<_, std::io::Error>(())).await;
    assert!(matches!(ran, Ok(Once::Ran(()))), "{ran:?}");
    let slot = leader.once(&format!("{job} again"));
    let Ok(Begun::Attempt(attempt)) = slot.begin().await else {
        panic!("the slot is free");
    };
    eventually("both have told", PATIENCE, async || {
        let seen = seen(&viewer, &leader)
            .await
            .zip(seen(&viewer, &other).await);
        let Some((leads, waits)) = seen else {
            return false;
        };
        let (led, awaited) = (leads.elections.first(), waits.elections.first());
        let jobs = leads.jobs.iter().map(|job| (&*job.slot, &*job.state));
        let jobs: Vec<_> = jobs.collect();
        led.is_some_and(|one| {
            let told = (&*one.name, &*one.identity, one.term);
            told == (&name, "web,3", Some(leadership.term()))
        }) && awaited
            .is_some_and(|one| (&*one.name, &*one.identity, one.term) == (&name, "web-4", None))
            && jobs == [("once", "running"), ("a,b", "done")]
    })
    .await;
    drop(attempt);
    let term = leadership.term();
    leadership.resign().await.expect("it leads");
    let next = within("the other leads", PATIENCE, campaign).await;
    let next = next.expect("no panic").expect("elected");
    eventually("they tell of the change", PATIENCE, async || {
        let seen = seen(&viewer, &leader)
            .await
            .zip(seen(&viewer, &other).await);
        seen.is_some_and(|(before, after)| {
            let of_other = after.elections.first();
            before.elections.is_empty()
                && before.jobs[0].state == "unconfirmed"
                && of_other.is_some_and(|one| one.term == Some(next.term()) && next.term() > term)
        })
    })
    .await;
}

/// On a store that keeps no records nobody is told anything wrong.
pub async fn a_store_without_marks_lists_no_processes(fixture: &Fixture) {
    let client = fixture.client(fixture.builder()).await;
    for error in [
        client.processes().await.expect_err("unsupported"),
        client.awaited().await.expect_err("unsupported"),
        client.watch_processes().await.expect_err("unsupported"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}
