//! Promises about the downgrade of a writer: no gap, no hold that is left, and an owner that stays the same.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::snapshot::Mode;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::polls::{Polled, poll_times};
use crate::testing::promises::waiters::{free, next, refused, until_wait, waiting};

/// The writer and the readers that wait stay out: the writer until the reader has released, the readers behind it.
pub async fn a_writer_becomes_a_reader_without_a_gap(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.party().await,
    );
    let sides = a.read_write_lock(&name);
    let writer = sides.write().fenced().acquire().await.expect("free");
    let token = writer.token();
    let waits = waiting(fixture, &b.write(&name), 1).await;
    let behind = waiting(fixture, &b.read(&name), 2).await;
    let reader = within("the downgrade", fixture.soon(), sides.downgrade(writer)).await;
    let reader = reader.expect("held");
    assert!(reader.token() > token && reader.is_held());
    let (lock, owner) = (sides.read(), reader.owner_id());
    eventually("it only reads", fixture.lease() * 4, || async {
        let seen = lock.inspect().await.expect("readable");
        matches!(&*seen.holders, [one] if one.mode == Mode::Read && one.owner == owner)
    })
    .await;
    assert!(refused(&b.read(&name)).await, "a writer waits");
    assert!(!waits.is_finished(), "a reader is inside");
    assert!(!behind.is_finished(), "a writer is ahead of it");
    reader.release().await.expect("held");
    let held = next(fixture, "the writer", waits).await;
    assert!(!behind.is_finished(), "a writer is inside");
    held.release().await.expect("held");
    let held = next(fixture, "the reader behind it", behind).await;
    held.release().await.expect("held");
}

/// Readers that come next when the writer is downgraded enter beside it, and no writer does.
pub async fn readers_that_come_next_enter_at_a_downgrade(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.party().await,
    );
    let sides = a.read_write_lock(&name);
    let writer = sides.write().acquire().await.expect("free");
    let waiters = [
        waiting(fixture, &b.read(&name), 1).await,
        waiting(fixture, &b.read(&name), 2).await,
    ];
    let reader = sides.downgrade(writer).await.expect("held");
    for waiter in waiters {
        let held = next(fixture, "a reader beside it", waiter).await;
        assert!(reader.is_held() && refused(&b.write(&name)).await);
        held.release().await.expect("held");
    }
    assert!(refused(&b.write(&name)).await, "it still reads");
    reader.release().await.expect("held");
    free(fixture, &b.write(&name)).await;
}

/// A writer that lost the lock cannot become a reader: another writer may have had the lock since.
pub async fn a_writer_that_was_lost_is_not_downgraded(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.party().await,
    );
    let sides = a.read_write_lock(&name);
    for taken in [false, true] {
        let writer = sides.write().acquire().await.expect("free");
        let lock = b.client().lock(&name);
        // With faults the reply may be lost. A second call does the rest.
        while let Err(error) = lock.force_release().await {
            assert!(error.is_retryable(), "{error}");
        }
        let other = if taken {
            Some(b.read(&name).acquire().await.expect("free"))
        } else {
            None
        };
        let error = sides.downgrade(writer).await.expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        if let Some(other) = other {
            other.release().await.expect("untouched");
        }
        free(fixture, &b.write(&name)).await;
    }
}

/// A guard that is no writer's, or not the only one of its hold, is refused before any traffic. Other guards stay as they
/// are.
pub async fn only_the_last_guard_of_a_writer_is_downgraded(fixture: &Fixture) {
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let sides = a.read_write_lock(&name);
    let other = a.read_write_lock(&unique("other"));
    let refused = |error: crate::Error| {
        assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        assert_eq!(error.lock_name(), Some(&*name));
    };
    let reader = sides.read().acquire().await.expect("free");
    refused(sides.downgrade(reader).await.expect_err("a reader"));
    let stranger = other.write().acquire().await.expect("free");
    refused(
        sides
            .downgrade(stranger)
            .await
            .expect_err("of another lock"),
    );
    let writer = sides.write().acquire().await.expect("free");
    let again = writer.reenter();
    refused(sides.downgrade(writer).await.expect_err("not the last"));
    assert!(again.is_held());
    let reader = sides.downgrade(again).await.expect("the last");
    reader.release().await.expect("held");
}

/// The owner of a writer re-enters the hold of the reader that it has become, and cannot write beside it.
pub async fn an_owner_reenters_what_it_was_downgraded_to(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.party().await,
    );
    let sides = a.read_write_lock(&name);
    let me = AcquireOptions::new().owner(&Owner::new());
    let writer = sides.write().acquire_with(me.clone()).await.expect("free");
    let waits = waiting(fixture, &b.write(&name), 1).await;
    let downgraded = sides.downgrade_with(writer, me.clone()).await;
    let reader = downgraded.expect("held");
    let again = sides.read().acquire_with(me.clone());
    let again = within("itself", fixture.soon(), again).await;
    let again = again.expect("the same owner");
    assert_eq!(again.owner_id(), reader.owner_id());
    let error = sides.write().acquire_with(me).await.expect_err("itself");
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    again.release().await.expect("held");
    reader.release().await.expect("held");
    let held = next(fixture, "the writer", waits).await;
    held.release().await.expect("held");
}

/// An acquisition of the same owner that came first waits for the writer, and the downgrade does not wait for it. Otherwise
/// neither of them would ever end.
pub async fn a_downgrade_passes_an_acquisition_of_its_owner_that_waits_for_the_writer(
    fixture: &Fixture,
) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.party().await,
    );
    let sides = a.read_write_lock(&name);
    let me = AcquireOptions::new().owner(&Owner::new());
    // A downgrade that has not been polled has taken its owner's writer from it.
    for (options, writes) in [
        (AcquireOptions::new(), false),
        (AcquireOptions::new(), true),
        (me.clone(), false),
    ] {
        let writer = sides.write().acquire_with(options).await.expect("free");
        let downgrade = sides.downgrade_with(writer, me.clone());
        let side = if writes { sides.write() } else { sides.read() };
        let waits = tokio::spawn(side.acquire_with(me.clone()));
        until_wait(fixture, &b.read(&name), 1).await;
        let reader = within("the downgrade", fixture.soon(), downgrade).await;
        let reader = reader.expect("held");
        let again = sides.read().acquire_with(me.clone());
        let again = within("itself", fixture.soon(), again).await;
        let again = again.expect("the same owner");
        assert_eq!(again.owner_id(), reader.owner_id());
        again.release().await.expect("held");
        assert!(!(writes && waits.is_finished()), "a reader is inside");
        reader.release().await.expect("held");
        let next = within("its turn", fixture.soon(), waits).await;
        let next = next.expect("no panic").expect("free");
        next.release().await.expect("held");
    }
    free(fixture, &b.write(&name)).await;
}

/// A downgrade that is dropped after any number of polls leaves neither of its holds.
pub async fn a_downgrade_dropped_anywhere_leaves_nothing(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let (a, b) = (
        fixture.client(fixture.builder()).await,
        fixture.party().await,
    );
    let sides = a.read_write_lock(&name);
    for polls in 0..20 {
        let writer = sides.write().acquire().await.expect("free");
        let downgrade = sides.downgrade(writer);
        match poll_times(downgrade, polls, Duration::from_secs(5)).await {
            Polled::Done(reader) => reader.expect("held").release().await.expect("held"),
            Polled::Dropped => {}
            Polled::Asleep => panic!("nothing woke it after {polls} polls"),
        }
        free(fixture, &b.write(&name)).await;
    }
    let place = b.write(&name);
    eventually("nobody holds it", fixture.lease() * 4, || async {
        !place.is_locked().await
    })
    .await;
}
