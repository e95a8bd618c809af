//! Promises about the marks of a job: how long they are kept, in which order, and when one is replaced.

use std::convert::Infallible;
use std::time::Duration;

use crate::once::{Once, Slot};
use crate::store::{MarkChange, Name};
use crate::testing::candidates::patience;
use crate::testing::fixture::{Fixture, eventually, unique};

/// A run may take longer than its mark is kept. It has ended well all the same.
pub async fn a_run_that_outlives_its_mark_ends_well(fixture: &Fixture) {
    let client = fixture.client(fixture.builder()).await;
    let job = client
        .once(&unique("report"))
        .slot(Slot::id("today"))
        .keep(Duration::from_secs(1))
        .wait(patience(fixture));
    let long = job.run(|run| {
        let job = &job;
        async move {
            let expired = || async { job.history(1).await.expect("readable").is_empty() };
            // The store may keep it for longer: etcd counts in seconds.
            eventually("its mark expires", Duration::from_secs(20), expired).await;
            Ok::<_, Infallible>(run.attempt())
        }
    });
    assert_eq!(long.await.expect("its end is stored"), Once::Ran(1));
}

/// The newest mark comes first, also before one that is kept for longer.
pub async fn the_newest_mark_comes_before_one_that_is_kept_longer(fixture: &Fixture) {
    let name = unique("report");
    let client = fixture.client(fixture.builder()).await;
    let day = Duration::from_secs(24 * 3600);
    for (slot, keep) in [("a", day * 30), ("b", day)] {
        let job = client.once(&name).slot(Slot::id(slot)).keep(keep);
        let job = job.wait(patience(fixture));
        let ran = job.run(|_| async { Ok::<_, Infallible>(()) }).await;
        assert_eq!(ran.expect("free"), Once::Ran(()));
    }
    for (limit, newest) in [(1, &["b"][..]), (2, &["b", "a"][..])] {
        let marks = client.once(&name).history(limit).await.expect("readable");
        let slots: Vec<_> = marks.iter().map(|mark| &*mark.slot).collect();
        assert_eq!(slots, newest);
    }
}

/// A server that was replaced by an empty one lacks the mark that a change is to replace, so the change is refused. Otherwise an
/// attempt of a job would begin although its lock is lost too.
pub async fn a_mark_that_is_missing_is_not_replaced(fixture: &Fixture) {
    let bare = fixture.bare().await;
    let marks = bare.store.front.extensions().marks;
    let marks = marks.expect("it keeps marks");
    let name = Name::new(unique("report")).expect("a good name");
    let keep = Duration::from_secs(60);
    let change = MarkChange::unacknowledged("today", Some("attempt 1"), "attempt 2", keep);
    let beside = MarkChange::unacknowledged("yesterday", None, "done", keep);
    // The second time the name has the mark of another slot.
    for has_others in [false, true] {
        if has_others {
            let written = marks.replace(&name, beside).await;
            assert!(written.expect("answered"), "the slot has no mark");
        }
        let replaced = marks.replace(&name, change).await;
        assert!(!replaced.expect("answered"), "others: {has_others}");
        let seen = marks.read(&name, "today").await.expect("readable");
        assert_eq!(seen, None, "others: {has_others}");
    }
}
