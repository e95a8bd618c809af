//! Promises about the lock-delay: after a hold ends without a release, nobody gets the lock for a while, so that
//! requests that the dead holder still has in flight can finish.

use tokio::time::{Duration, Instant};

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::testing::fixture::{Fixture, eventually, unique, within};
use crate::testing::party::Held;

/// A delay that outlasts every promise.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// A store without lock-delays refuses the option, without traffic.
async fn refuses(fixture: &Fixture) {
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let asked = plug.requests();
    let options = AcquireOptions::new().lock_delay(fixture.lease());
    let place = a.lock(&unique("primary"));
    let error = place.acquire_with(options).await.expect_err("unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(plug.requests(), asked, "before any traffic");
    let none = AcquireOptions::new().lock_delay(Duration::ZERO);
    let held = place
        .acquire_with(none)
        .await
        .expect("no delay is asked for");
    held.release().await.expect("held");
}

/// Acquires the lock and cuts the connection. Returns after the loss, with the end of the proved lease; the hold in the
/// store ends no earlier. The moment when we hear of the loss may be later than both, on a busy machine.
async fn dies_with_it(fixture: &Fixture, name: &str, delay: Duration) -> (Held, Instant) {
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let options = AcquireOptions::new().lock_delay(delay);
    let held = a.lock(name).acquire_with(options).await.expect("free");
    // We wait for a renewal: the delay must survive it.
    tokio::time::sleep(fixture.lease() / 2).await;
    plug.pull();
    let now = Instant::now();
    let ends = now + held.valid_for().await;
    within("the loss", fixture.lease() * 2, held.lost()).await;
    (held, ends)
}

/// After a holder's connection fails, a waiter gets the lock when the lease and then the delay have passed.
pub async fn a_hold_that_ended_by_itself_leaves_a_delay(fixture: &Fixture) {
    if !fixture.capabilities().await.delays {
        return refuses(fixture).await;
    }
    let (name, delay) = (unique("primary"), fixture.lease() * 2);
    let b = fixture.party().await;
    let place = b.lock(&name);
    let early = fixture.client(fixture.builder()).await;
    let (dead, lost) = dies_with_it(fixture, &name, delay).await;
    let next = tokio::spawn(async move {
        let next = place.acquire().await.expect("it waits");
        (next, Instant::now())
    });
    while lost.elapsed() < delay / 2 {
        if let Ok(granted) = early.lock(&name).try_acquire().await {
            assert!(granted.is_none(), "{:?} after the loss", lost.elapsed());
        }
        tokio::time::sleep(fixture.lease() / 8).await;
    }
    let next = within("the follower", delay + fixture.lease() * 5, next).await;
    let (next, taken) = next.expect("no panic");
    assert!(taken - lost >= delay, "{:?}, not {delay:?}", taken - lost);
    next.release().await.expect("held");
    // The delay applies once: the next acquire does not wait.
    let place = b.lock(&name);
    let again = within("the next", fixture.lease(), place.acquire()).await;
    again.expect("free").release().await.expect("held");
    drop(dead);
}

/// After a release or a dropped guard, a waiter gets the lock without the delay, however long it is.
pub async fn a_release_leaves_no_delay(fixture: &Fixture) {
    if !fixture.capabilities().await.delays {
        return refuses(fixture).await;
    }
    let name = unique("primary");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let delayed = || AcquireOptions::new().lock_delay(FOR_EVER);
    for waits in [true, false, true] {
        let held = a.lock(&name).acquire_with(delayed()).await.expect("free");
        let place = b.lock(&name);
        let next = tokio::spawn(async move { place.acquire_with(delayed()).await });
        tokio::time::sleep(fixture.lease() / 2).await;
        assert!(!next.is_finished());
        if waits {
            held.release().await.expect("held");
        } else {
            drop(held);
        }
        let next = within("the next", fixture.lease() * 4, next).await;
        let next = next.expect("no panic").expect("it waits");
        next.release().await.expect("held");
    }
    // A waiter that leaves causes no delay either.
    let held = a.lock(&name).acquire_with(delayed()).await.expect("free");
    let waited = delayed().wait(fixture.lease() / 4);
    let left = b.lock(&name).acquire_with(waited).await;
    left.expect_err("it is held");
    held.release().await.expect("held");
    let next = within("the next", fixture.lease() * 4, b.lock(&name).acquire()).await;
    next.expect("free").release().await.expect("held");
}

/// A force release overrides the delay: it ends the hold without a delay, and it ends a delay that is running.
pub async fn force_overrules_a_delay(fixture: &Fixture) {
    if !fixture.capabilities().await.delays {
        return refuses(fixture).await;
    }
    let name = unique("primary");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let delayed = AcquireOptions::new().lock_delay(FOR_EVER);
    let held = a.lock(&name).acquire_with(delayed).await.expect("free");
    let lock = b.lock(&name);
    assert!(lock.lock().force_release().await.expect("done"));
    let next = within("the next", fixture.lease() * 4, lock.acquire()).await;
    next.expect("free").release().await.expect("held");
    drop(held);
    let (dead, _) = dies_with_it(fixture, &name, FOR_EVER).await;
    let place = b.lock(&name);
    let next = tokio::spawn(async move { place.acquire().await.expect("it waits") });
    let over = fixture.lease() * 3; // a store may end a lease somewhat late
    tokio::time::sleep(over).await;
    assert!(!next.is_finished(), "it is nobody's");
    eventually("nobody is shown as its holder", over, || async {
        !a.lock(&name).is_locked().await
    })
    .await;
    assert!(lock.lock().force_release().await.expect("done"));
    let next = within("the waiter", fixture.lease() * 3, next).await;
    next.expect("no panic").release().await.expect("held");
    drop(dead);
}

/// Clients that only try now and then, each a new one, get the lock after the delay: no store state blocks it forever.
pub async fn a_delay_ends_also_for_those_who_only_try(fixture: &Fixture) {
    if !fixture.capabilities().await.delays {
        return refuses(fixture).await;
    }
    let (name, delay) = (unique("primary"), fixture.lease() * 2);
    let (dead, lost) = dies_with_it(fixture, &name, delay).await;
    let next = within("one of the tries", delay + fixture.lease() * 6, async {
        loop {
            // A new client each time, with no memory of earlier tries.
            let stranger = fixture.party().await;
            if let Ok(Some(held)) = stranger.lock(&name).try_acquire().await {
                break (held, stranger);
            }
            stranger.close(Duration::ZERO).await;
            tokio::time::sleep(fixture.lease() / 8).await;
        }
    });
    let (held, _stranger) = next.await;
    assert!(lost.elapsed() >= delay, "{:?}", lost.elapsed());
    held.release().await.expect("held");
    drop(dead);
}

/// The delay of a plain lock blocks readers and writers with the same name. Readers that wait for its end are not shown
/// as holders, stay in the queue, and get the lock together when it ends.
pub async fn a_delay_keeps_back_both_sides(fixture: &Fixture) {
    if !fixture.capabilities().await.delays {
        return;
    }
    let (name, delay) = (unique("prices"), fixture.lease() * 3);
    let (a, b) = (fixture.party().await, fixture.party().await);
    for side in [a.read(&name), a.write(&name)] {
        let delayed = AcquireOptions::new().lock_delay(delay);
        let error = side.acquire_with(delayed).await.expect_err("unsupported");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "a side leaves none");
    }
    let (dead, lost) = dies_with_it(fixture, &name, delay).await;
    let readers = [a.read(&name), b.read(&name)].map(|place| {
        tokio::spawn(async move { (place.acquire().await.expect("it waits"), Instant::now()) })
    });
    let place = b.lock(&name);
    eventually("both wait for nobody", fixture.lease() * 3, || async {
        let seen = place.lock().inspect().await.expect("it can be read");
        seen.holders.is_empty() && seen.waiters == Some(2)
    })
    .await;
    while lost.elapsed() < delay / 2 {
        for side in [a.read(&name), a.write(&name)] {
            if let Ok(granted) = side.try_acquire().await {
                assert!(granted.is_none(), "{:?} after the loss", lost.elapsed());
            }
        }
        tokio::time::sleep(fixture.lease() / 8).await;
    }
    let mut held = Vec::new();
    for reader in readers {
        let reader = within("the readers", delay + fixture.lease() * 5, reader).await;
        let (reader, taken) = reader.expect("no panic");
        assert!(taken - lost >= delay, "{:?}, not {delay:?}", taken - lost);
        held.push(reader);
    }
    assert_eq!(held.len(), 2, "together");
    for reader in held {
        assert!(reader.is_held().await);
        reader.release().await.expect("held");
    }
    let next = within("the next", fixture.lease() * 4, b.write(&name).acquire()).await;
    next.expect("free").release().await.expect("held");
    drop(dead);
}
