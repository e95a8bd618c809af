//! Promises about jobs that run once per slot, for a store that keeps marks.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::client::Client;
use crate::error::{ErrorKind, Result};
use crate::once::{MarkState, Once, OnceJob, Retry, Slot};
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::types::LostReason;

/// Longer than any run here takes.
fn patience(fixture: &Fixture) -> Duration {
    fixture.lease() * 20
}

fn job(client: &Client, name: &str) -> OnceJob {
    client.once(name).slot(Slot::id("today"))
}

/// Runs a job that succeeds at once.
async fn run(job: &OnceJob) -> Result<Once<u32, Infallible>> {
    job.run(|run| async move { Ok(run.attempt()) }).await
}

/// Runs a job that never ends, until it has begun. The caller drops the rest.
async fn begun(job: OnceJob) -> tokio::task::JoinHandle<()> {
    let started = Arc::new(Notify::new());
    let seen = Arc::clone(&started);
    let task = tokio::spawn(async move {
        let endless = job.run(|_| async move {
            seen.notify_one();
            pending::<std::result::Result<(), Infallible>>().await
        });
        drop(endless.await);
    });
    started.notified().await;
    task
}

/// Of many callers on two clients one runs the job; the others wait for it and run nothing.
pub async fn a_slot_is_run_once_by_many(fixture: &Fixture) {
    let name = unique("report");
    let clients = [
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    ];
    let runs = Arc::<AtomicU32>::default();
    let callers = (0..8).map(|n| {
        let job = job(&clients[n % 2], &name).wait(patience(fixture));
        let runs = Arc::clone(&runs);
        tokio::spawn(async move {
            job.run(|_| async move {
                runs.fetch_add(1, Ordering::SeqCst);
                Ok::<_, Infallible>(())
            })
            .await
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut ran = 0;
    for caller in callers {
        match caller.await.expect("no panic").expect("the store answers") {
            Once::Ran(()) => ran += 1,
            Once::Done(mark) => assert_eq!((mark.state, mark.attempt), (MarkState::Done, 1)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((ran, runs.load(Ordering::SeqCst)), (1, 1));
}

/// With injected faults a call may fail. Whoever calls again finds the slot done: it is run again only after an error
/// that said so, never by two at a time, and each time with a larger token.
pub async fn a_slot_with_faults_is_run_again_only_after_an_error(fixture: &Fixture) {
    let name = unique("report");
    let (inside, runs) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let mut callers = Vec::new();
    for _ in 0..4 {
        let client = fixture.client(fixture.builder()).await;
        let job = job(&client, &name)
            .if_crashed(Retry::InSlot(100))
            .wait(patience(fixture));
        let (inside, runs) = (Arc::clone(&inside), Arc::clone(&runs));
        callers.push(tokio::spawn(async move {
            let mut errors = 0;
            loop {
                let ran = job.run(|_| async {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Infallible>(())
                });
                match ran.await {
                    Ok(Once::Ran(()) | Once::Done(_)) => return errors,
                    Ok(_) => {}
                    Err(error) => {
                        let kind = error.kind();
                        assert!(error.is_retryable() || kind == ErrorKind::Lost, "{error}");
                        errors += 1;
                    }
                }
            }
        }));
    }
    let mut errors = 0;
    for caller in callers {
        let caller = within("its end", patience(fixture) * 5, caller).await;
        errors += caller.expect("no panic");
    }
    let runs = runs.load(Ordering::SeqCst);
    assert!(
        (1..=1 + errors).contains(&runs),
        "{runs} runs, {errors} errors"
    );
    let marks = loop {
        match job(&fixture.client(fixture.builder()).await, &name)
            .history(10)
            .await
        {
            Ok(marks) => break marks,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    assert_eq!((marks.len(), marks[0].state), (1, MarkState::Done));
}

/// Another slot of the same job runs again, with a larger token.
pub async fn each_slot_has_its_run(fixture: &Fixture) {
    let name = unique("report");
    let client = fixture.client(fixture.builder()).await;
    let mut last = 0;
    for slot in ["Monday", "Tuesday", "a slot: 1/2 ü %"] {
        let job = client
            .once(&name)
            .slot(Slot::id(slot))
            .wait(patience(fixture));
        let token = job.run(|run| async move {
            assert_eq!((run.slot(), run.attempt()), (slot, 1));
            Ok::<_, Infallible>(run.token().get())
        });
        let Once::Ran(token) = token.await.expect("free") else {
            panic!("a new slot");
        };
        assert!(token > last);
        last = token;
        assert!(matches!(run(&job).await, Ok(Once::Done(_))));
    }
}

/// A failed attempt is made again by the next call, as often as the job allows, with larger tokens.
pub async fn a_failed_attempt_is_made_again_and_no_more_than_allowed(fixture: &Fixture) {
    let name = unique("mail");
    let client = fixture.client(fixture.builder()).await;
    let job = job(&client, &name)
        .if_crashed(Retry::InSlot(1))
        .wait(patience(fixture));
    let mut tokens = Vec::new();
    for attempt in 1..=2 {
        let failed = job.run(|run| async move {
            assert_eq!(run.attempt(), attempt);
            Err::<Infallible, _>(run.token().get().to_string())
        });
        let Once::Failed(token) = failed.await.expect("free") else {
            panic!("it was to fail");
        };
        tokens.push(token.parse::<u64>().expect("a number"));
    }
    assert!(tokens[0] < tokens[1]);
    let Once::Done(mark) = run(&job).await.expect("readable") else {
        panic!("it has had both attempts");
    };
    assert_eq!((mark.state, mark.attempt), (MarkState::Failed, 2));
    assert_eq!(mark.error, Some(tokens[1].to_string()));
}

/// A run whose process dies is followed by one with a larger token, on a process that waits for it.
pub async fn a_crashed_run_is_followed_by_another(fixture: &Fixture) {
    let name = unique("report");
    let (dying, plug) = fixture.mortal(fixture.builder()).await;
    let other = fixture.client(fixture.builder()).await;
    let crashed = begun(job(dying.client(), &name).wait(patience(fixture))).await;
    let next = job(&other, &name);
    let Once::Running(holder) = run(&next).await.expect("readable") else {
        panic!("it runs elsewhere");
    };
    plug.pull();
    let limit = patience(fixture);
    let waiting = next.wait(limit);
    let taken =
        waiting.run(|run| async move { Ok::<_, Infallible>((run.attempt(), run.token().get())) });
    let taken = within("the other takes over", limit, taken).await;
    let Once::Ran((attempt, _)) = taken.expect("free") else {
        panic!("the run had died");
    };
    assert_eq!(attempt, 2);
    within("the work of the dead run is dropped", limit, crashed)
        .await
        .expect("no panic");
    drop(holder);
}

/// A job that runs for too long is dropped, and its slot is marked as failed.
pub async fn a_run_that_takes_too_long_is_dropped_and_has_failed(fixture: &Fixture) {
    let name = unique("report");
    let client = fixture.client(fixture.builder()).await;
    let job = job(&client, &name)
        .if_crashed(Retry::Never)
        .max_run(fixture.lease() / 4)
        .wait(patience(fixture));
    let endless = job.run(|_| pending::<std::result::Result<(), Infallible>>());
    let error = within("its end", patience(fixture), endless)
        .await
        .expect_err("it never ends");
    assert_eq!(error.lost_reason(), Some(LostReason::MaxHold));
    let Once::Done(mark) = run(&job).await.expect("readable") else {
        panic!("it had its attempt");
    };
    assert_eq!(mark.state, MarkState::Failed);
    assert!(mark.error.expect("a reason").contains("too long"));
}

/// The newest mark comes first, and each says who ran what and when.
pub async fn history_begins_with_the_newest(fixture: &Fixture) {
    let name = unique("import");
    let client = fixture.client(fixture.builder()).await;
    assert!(
        client
            .once(&name)
            .history(10)
            .await
            .expect("readable")
            .is_empty()
    );
    for slot in ["a", "b", "c"] {
        let job = client
            .once(&name)
            .slot(Slot::id(slot))
            .wait(patience(fixture));
        if slot == "b" {
            let failed = job.run(|_| async { Err::<(), _>("no\nroute 100 %") }).await;
            assert!(matches!(failed, Ok(Once::Failed(_))));
        } else {
            run(&job).await.expect("free");
        }
    }
    let marks = client.once(&name).history(2).await.expect("readable");
    let seen = |mark: &crate::once::Mark| (mark.slot.clone(), mark.state);
    assert_eq!(
        marks.iter().map(seen).collect::<Vec<_>>(),
        [
            ("c".to_owned(), MarkState::Done),
            ("b".to_owned(), MarkState::Failed)
        ]
    );
    assert_eq!(marks[1].error.as_deref(), Some("no\nroute 100 %"));
    assert_eq!(marks[0].process.pid, std::process::id());
    assert!(marks[0].ended.expect("it has ended") >= marks[0].started);
}

/// An attempt that waited for the lock began when it had it.
pub async fn an_attempt_that_waits_begins_after_its_wait(fixture: &Fixture) {
    let name = unique("report");
    let client = fixture.client(fixture.builder()).await;
    let other = fixture.client(fixture.builder()).await;
    let held = client.lock(&name).acquire().await.expect("free");
    let waits = async {
        let job = job(&other, &name).wait(patience(fixture));
        run(&job).await
    };
    let frees = async {
        let waiting = || async { other.stats().waiting == 1 };
        eventually("it waits", patience(fixture), waiting).await;
        let meanwhile = client.once(&unique("meanwhile"));
        run(&meanwhile).await.expect("free");
        let history = meanwhile.history(1).await.expect("readable");
        held.release().await.expect("held");
        history[0].started
    };
    let (ran, before) = tokio::join!(waits, frees);
    ran.expect("its turn");
    let marks = client.once(&name).history(1).await.expect("readable");
    assert!(marks[0].started >= before, "{marks:?} before {before:?}");
}

/// A mark that has expired counts as none.
pub async fn a_mark_is_kept_as_long_as_asked(fixture: &Fixture) {
    let name = unique("report");
    let client = fixture.client(fixture.builder()).await;
    let job = job(&client, &name)
        .keep(Duration::from_secs(1))
        .wait(patience(fixture));
    assert!(matches!(run(&job).await, Ok(Once::Ran(1))));
    assert!(matches!(run(&job).await, Ok(Once::Done(_))));
    let again = || async { matches!(run(&job).await, Ok(Once::Ran(1))) };
    // The store may keep it for longer: etcd counts in seconds.
    eventually("it runs again", Duration::from_secs(20), again).await;
}

/// A run dropped at any await leaves no hold, and the slot is run by the next call unless it was done.
pub async fn a_run_dropped_at_every_await_is_made_again(fixture: &Fixture) {
    use crate::testing::polls::{Polled, poll_times};

    let clients = [
        fixture.client(fixture.builder()).await,
        fixture.client(fixture.builder()).await,
    ];
    let ended = AtomicU32::new(0);
    for polls in 0..500 {
        let name = unique("report");
        ended.store(0, Ordering::SeqCst);
        let first = job(&clients[0], &name);
        let future = first.run(|_| async {
            tokio::task::yield_now().await;
            ended.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(())
        });
        let whole = match poll_times(future, polls, patience(fixture)).await {
            Polled::Done(done) => {
                assert!(matches!(done, Ok(Once::Ran(()))), "{done:?}");
                true
            }
            Polled::Dropped => false,
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        };
        let next = job(&clients[1], &name).wait(patience(fixture));
        match run(&next).await.expect("free") {
            Once::Done(_) => assert_eq!(ended.load(Ordering::SeqCst), 1, "after {polls} polls"),
            Once::Ran(_) => assert!(!whole, "after {polls} polls"),
            other => panic!("{other:?}"),
        }
        let lock = clients[1].lock(&name);
        eventually("no hold is left", patience(fixture), || async {
            !lock.inspect().await.expect("readable").is_locked()
        })
        .await;
        if whole {
            return;
        }
    }
    panic!("it never ended");
}

/// Senseless settings are refused before any traffic.
pub async fn senseless_jobs_are_refused_before_traffic(fixture: &Fixture) {
    let (party, plug) = fixture.mortal(fixture.builder()).await;
    let client = party.client();
    let asked = plug.requests();
    let second = Duration::from_secs(1);
    for bad in [
        client.once("report").keep(Duration::ZERO),
        client.once("report").max_run(Duration::ZERO),
        client.once("report").keep(second).max_run(second * 2),
        client
            .once("report")
            .slot(Slot::every(second * 60))
            .keep(second),
    ] {
        let error = run(&bad).await.expect_err("senseless");
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        assert_eq!(error.lock_name(), Some("report"));
    }
    let error = run(&client.once("")).await.expect_err("no name");
    assert_eq!(error.kind(), ErrorKind::InvalidName);
    assert_eq!(plug.requests(), asked, "before any traffic");
}

/// A store without marks, or without tokens, refuses the job before any traffic.
pub async fn a_store_without_marks_refuses_a_job(fixture: &Fixture) {
    assert!(!fixture.capabilities().await.marks);
    let (party, plug) = fixture.mortal(fixture.builder()).await;
    let asked = plug.requests();
    let error = run(&party.client().once("report"))
        .await
        .expect_err("unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let error = party.client().once("report").history(1).await;
    assert_eq!(
        error.expect_err("unsupported").kind(),
        ErrorKind::Unsupported
    );
    assert_eq!(plug.requests(), asked, "before any traffic");
}

/// A call that repeats its requests while the store is away ends with `Closed` when its client closes.
pub async fn a_close_ends_the_calls_that_wait_for_the_store(fixture: &Fixture) {
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let client = mortal.client();
    let jobs = [(); 8].map(|()| job(client, &unique("report")));
    assert!(jobs[0].history(1).await.expect("answered").is_empty());
    plug.pull();
    let mut calls = Vec::new();
    for job in jobs {
        calls.push(tokio::spawn(async move { job.history(1).await }));
        // So that the close finds calls in a try, and in the pause between two.
        tokio::time::sleep(fixture.lease() / 50).await;
    }
    client.close(Duration::ZERO).await;
    for call in calls {
        let ended = within("the close", fixture.lease() * 2, call).await;
        ended.expect("no panic").expect_err("the store is away");
    }
}
