//! Promises about lost replies to jobs that run once per slot.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::Client;
use crate::once::{Once, OnceJob, Slot};
use crate::testing::candidates::patience;
use crate::testing::fixture::{Fixture, unique, within};

fn job(fixture: &Fixture, client: &Client, name: &str) -> OnceJob {
    let job = client.once(name).slot(Slot::id("today"));
    job.wait(patience(fixture))
}

/// Another process finds the slot done, and the lock of the job free.
async fn is_done(fixture: &Fixture, name: &str) {
    let other = fixture.client(fixture.builder()).await;
    let late = job(fixture, &other, name);
    let late = late.run(|_| async { Ok::<_, Infallible>(()) });
    let found = within("the answer", patience(fixture), late).await;
    assert!(matches!(found, Ok(Once::Done(_))), "{found:?}");
    let lock = other.lock(name).inspect().await.expect("readable");
    assert!(!lock.is_locked(), "{lock:?}");
}

/// The replies to the acquire of a run are lost: it is asked for again, and the slot is run once.
pub async fn a_run_whose_acquire_had_no_reply_is_run_once(fixture: &Fixture) {
    let (one, plug) = fixture.mortal(fixture.builder()).await;
    for lost in 1..4 {
        let (name, runs) = (unique("report"), AtomicU32::new(0));
        let mine = job(fixture, one.client(), &name);
        plug.lose_replies(lost); // the acquire is the first request that changes something
        let ran = mine.run(|run| {
            runs.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, Infallible>(run.attempt()) }
        });
        let ran = within("its end", patience(fixture), ran).await;
        plug.lose_replies(0);
        assert!(matches!(ran, Ok(Once::Ran(1))), "{ran:?}");
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        is_done(fixture, &name).await;
    }
}

/// The reply to the last mark is lost: the run has succeeded all the same, and nobody runs it again.
pub async fn a_lost_reply_is_no_second_run(fixture: &Fixture) {
    let name = unique("report");
    let (one, plug) = fixture.mortal(fixture.builder()).await;
    let mine = job(fixture, one.client(), &name);
    let lossy = mine.run(|_| async {
        plug.lose_replies(1);
        Ok::<_, Infallible>(())
    });
    let done = within("its end", patience(fixture), lossy).await;
    assert!(matches!(done, Ok(Once::Ran(()))), "{done:?}");
    is_done(fixture, &name).await;
}
