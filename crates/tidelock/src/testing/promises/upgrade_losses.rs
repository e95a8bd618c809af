//! Promises about upgradeable readers that are lost.

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::testing::fixture::{Fixture, unique, within};
use crate::testing::promises::waiters::{free, until_wait};

/// A reader that lost the lock does not become a writer: another one may have had the lock since. One that is lost while
/// its upgrade waits learns of it there.
pub async fn an_upgradeable_reader_that_was_lost_is_not_upgraded(fixture: &Fixture) {
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    for taken in [false, true] {
        let held = sides.upgradeable_read().acquire().await.expect("free");
        let lock = b.client().lock(&name);
        // With faults the reply may be lost. A second call does the rest.
        while let Err(error) = lock.force_release().await {
            assert!(error.is_retryable(), "{error}");
        }
        let other = if taken {
            Some(b.upgradeable(&name).acquire().await.expect("free"))
        } else {
            None
        };
        let error = within("an answer", fixture.lease() * 2, sides.upgrade(&held)).await;
        let error = error.expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(!held.is_held(), "the store has said so");
        if let Some(other) = other {
            other.release().await.expect("untouched");
        }
        free(fixture, &b.write(&name)).await;
    }
    let short = AcquireOptions::new().max_hold(fixture.lease() / 2);
    let held = sides.upgradeable_read().acquire_with(short).await;
    let held = held.expect("free");
    let reader = b.read(&name).acquire().await.expect("shared");
    let error = within("the loss", fixture.lease() * 2, sides.upgrade(&held)).await;
    assert_eq!(error.expect_err("lost").kind(), ErrorKind::Lost);
    free(fixture, &b.read(&name)).await;
    reader.release().await.expect("untouched");
}

/// An upgrade whose client has lost its connection ends with its reader. Then it blocks nobody.
pub async fn an_upgrade_without_a_connection_ends_with_its_reader(fixture: &Fixture) {
    let name = unique("prices");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.client().read_write_lock(&name);
    let held = sides.upgradeable_read().acquire().await.expect("free");
    let reader = b.read(&name).acquire().await.expect("shared");
    let upgrade = tokio::spawn(sides.upgrade(&held));
    let place = b.read(&name);
    until_wait(fixture, &place, 1).await;
    plug.pull();
    let ended = within("the loss", fixture.lease() * 3, upgrade).await;
    let error = ended.expect("no panic").expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(!held.is_held() && reader.is_held().await);
    plug.put_back();
    let limit = AcquireOptions::new().wait(fixture.lease() * 10);
    for place in [b.read(&name), b.upgradeable(&name)] {
        let next = place.acquire_with(limit.clone()).await;
        next.expect("it is gone").release().await.expect("held");
    }
    reader.release().await.expect("held");
    free(fixture, &b.write(&name)).await;
}

/// The hold of the reader is removed by force while its upgrade waits, and another one may have the lock before the upgrade
/// is asked for again. What the reader has read may be wrong by then, so it does not write.
pub async fn an_upgrade_whose_reader_is_removed_while_it_waits_is_lost(fixture: &Fixture) {
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    for taken in [false, true] {
        let held = sides.upgradeable_read().acquire().await.expect("free");
        let reader = b.read(&name).acquire().await.expect("shared");
        let upgrade = tokio::spawn(sides.upgrade(&held));
        let place = b.read(&name);
        until_wait(fixture, &place, 1).await;
        let lock = b.client().lock(&name);
        // With faults the reply may be lost. A second call does the rest.
        while let Err(error) = lock.force_release().await {
            assert!(error.is_retryable(), "{error}");
        }
        if taken {
            free(fixture, &b.lock(&name)).await;
        }
        let ended = within("the loss", fixture.lease() * 3, upgrade).await;
        let error = ended.expect("no panic").expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(!held.is_held(), "the upgrade was told");
        drop(reader);
        free(fixture, &b.write(&name)).await;
    }
}
