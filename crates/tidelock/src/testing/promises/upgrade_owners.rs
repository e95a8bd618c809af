//! Promises about upgrades of guards that are shared, and of owners.

use crate::error::{Error, ErrorKind};
use crate::guard::Guard;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::testing::fixture::{Fixture, unique, within};
use crate::testing::promises::waiters::{free, until_wait};

/// An upgraded writer becomes a plain reader with a token of its own, also if its owner still reads upgradeably. The
/// owner re-enters the newer one of the two.
pub async fn an_owner_downgrades_to_a_new_reader_beside_its_upgradeable_one(fixture: &Fixture) {
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    let me = AcquireOptions::new().owner(&Owner::new());
    let upgradeable = sides.upgradeable_read().fenced();
    let held = upgradeable.acquire_with(me.clone()).await.expect("free");
    let upgraded = sides.upgrade_with(&held, me.clone()).await;
    let writer = upgraded.expect("alone");
    let written = writer.token();
    let downgraded = sides.downgrade_with(writer, me.clone()).await;
    let reader = downgraded.expect("held");
    assert!(reader.token() > written && written > held.token());
    assert_ne!(reader.owner_id(), held.owner_id());
    assert!(reader.is_held() && held.is_held());
    free(fixture, &b.read(&name)).await;
    let again = sides.read().acquire_with(me.clone()).await.expect("itself");
    assert_eq!(again.owner_id(), reader.owner_id());
    let error = sides.upgrade_with(&held, me.clone()).await;
    let error = error.expect_err("it would wait for itself");
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    again.release().await.expect("held");
    reader.release().await.expect("held");
    let again = sides.read().acquire_with(me).await.expect("itself");
    assert_eq!(again.owner_id(), held.owner_id());
    again.release().await.expect("held");
    held.release().await.expect("held");
    free(fixture, &b.write(&name)).await;
}

fn in_use(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
    assert!(error.to_string().contains("upgrade"), "{error}");
}

/// Tasks may share an upgradeable guard, but not upgrade it one after the other: the second one would write what it has
/// computed from values that the first one has replaced since.
pub async fn one_upgrade_of_a_guard_at_a_time(fixture: &Fixture) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    let me = AcquireOptions::new().owner(&Owner::new());
    let other = AcquireOptions::new().owner(&Owner::new());
    let held = sides.upgradeable_read().acquire().await.expect("free");
    let shared = held.reenter();
    for options in [AcquireOptions::new(), me.clone()] {
        let reader = b.read(&name).acquire().await.expect("shared");
        let first = tokio::spawn(sides.upgrade_with(&held, options));
        let place = b.read(&name);
        until_wait(fixture, &place, 1).await;
        let second = async |options: AcquireOptions| {
            let upgrade = sides.upgrade_with(&shared, options);
            within("an answer", fixture.soon(), upgrade).await
        };
        in_use(&second(other.clone()).await.expect_err("one waits"));
        in_use(&second(AcquireOptions::new()).await.expect_err("one waits"));
        reader.release().await.expect("held");
        let writer: Guard = within("the first", fixture.soon(), first)
            .await
            .expect("no panic")
            .expect("alone");
        in_use(&second(other.clone()).await.expect_err("it writes"));
        in_use(&second(AcquireOptions::new()).await.expect_err("it writes"));
        writer.release().await.expect("held");
    }
    let writer = sides.upgrade_with(&held, me.clone()).await.expect("alone");
    let again = sides.upgrade_with(&shared, me).await.expect("itself");
    assert_eq!(again.owner_id(), writer.owner_id());
    drop((again, writer));
    // A future that was dropped does not count, nor does one that was never polled.
    let unused = sides.upgrade(&held);
    let reader = b.read(&name).acquire().await.expect("shared");
    let limit = fixture.lease() / 10;
    let dropped = tokio::time::timeout(limit, sides.upgrade(&held)).await;
    assert!(dropped.is_err(), "a reader is inside");
    reader.release().await.expect("held");
    let writer = sides.upgrade(&shared).await.expect("alone");
    writer.release().await.expect("held");
    drop(unused);
}

/// An acquisition of the same owner that came first waits for the upgradeable reader, and the upgrade does not wait for it.
/// Otherwise neither of them would ever end.
pub async fn an_upgrade_passes_an_acquisition_of_its_owner_that_waits_for_the_reader(
    fixture: &Fixture,
) {
    let fixture = &fixture.patient();
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let b = fixture.party().await;
    let sides = a.read_write_lock(&name);
    let me = AcquireOptions::new().owner(&Owner::new());
    for side in [sides.write(), sides.upgradeable_read()] {
        let held = sides.upgradeable_read().acquire().await.expect("free");
        let waits = tokio::spawn(side.acquire_with(me.clone()));
        until_wait(fixture, &b.read(&name), 1).await;
        let upgrade = sides.upgrade_with(&held, me.clone());
        let writer = within("the upgrade", fixture.soon(), upgrade).await;
        let writer = writer.expect("alone");
        let again = sides.write().acquire_with(me.clone());
        let again = within("itself", fixture.soon(), again).await;
        let again = again.expect("the same owner");
        assert_eq!(again.owner_id(), writer.owner_id());
        again.release().await.expect("held");
        writer.release().await.expect("held");
        assert!(!waits.is_finished(), "a reader is inside");
        held.release().await.expect("held");
        let next = within("its turn", fixture.soon(), waits).await;
        let next = next.expect("no panic").expect("free");
        next.release().await.expect("held");
    }
    free(fixture, &b.write(&name)).await;
}

/// A guard that writes needs no request to be upgraded. That it was lost is told when the future is polled.
pub async fn a_guard_that_writes_but_was_lost_is_not_upgraded(fixture: &Fixture) {
    let name = unique("prices");
    let a = fixture.client(fixture.builder()).await;
    let sides = a.read_write_lock(&name);
    let me = AcquireOptions::new().owner(&Owner::new());
    let short = me.clone().max_hold(fixture.lease() / 2);
    let writer = sides.write().acquire_with(short).await.expect("free");
    let again = sides.upgradeable_read().acquire_with(me.clone()).await;
    let again = again.expect("itself");
    let before = sides.upgrade_with(&again, me.clone());
    within("the loss", fixture.lease() * 2, writer.lost()).await;
    for upgrade in [before, sides.upgrade_with(&again, me)] {
        let error = upgrade.await.expect_err("lost");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert_eq!(error.lock_name(), Some(&*name));
    }
}
