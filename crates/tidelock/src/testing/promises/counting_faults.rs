//! Promises about counting semaphores while replies are lost, and when a holder of a semaphore of the same name has died.

use std::time::Duration;

use super::counting::available;
use crate::error::ErrorKind;
use crate::testing::fixture::{Fixture, eventually, unique, within};

/// A close that meets an acquisition without a reply takes no permit along: what the request took is given back before the
/// client is gone.
pub async fn a_close_gives_back_what_an_acquire_in_doubt_took(fixture: &Fixture) {
    let patience = fixture.lease() * 10;
    for waits in [false, true] {
        let name = unique("slots");
        // Long limits: the close must come before the acquisition gives up.
        let settings = fixture.builder().lease(patience).response_timeout(patience);
        let (mortal, plug) = fixture.mortal(settings).await;
        let other = fixture.client(fixture.builder()).await;
        let (client, b) = (mortal.client(), other.counting_semaphore(&name));
        assert!(b.set_permits_if_new(3).await.expect("answered"));
        let a = client.counting_semaphore(&name);
        plug.lose_replies(u64::MAX);
        let before = plug.requests();
        let taker = tokio::spawn(async move {
            if waits {
                a.acquire(2).await
            } else {
                a.try_acquire(2).await.map(drop)
            }
        });
        eventually("it asks", patience, || async { plug.requests() > before }).await;
        let told = async {
            let told = within("the close", patience, taker).await;
            plug.lose_replies(0);
            told
        };
        let (_, told) = tokio::join!(client.close(Duration::ZERO), told);
        let error = told.expect("no panic").expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        eventually("it is given back", patience, || async {
            available(&b).await == 3
        })
        .await;
    }
}

/// A semaphore with holders counts in the same number. When the lease of a dead holder has ended, its permits come back to the
/// waiters of the counting semaphore, although nobody asks for a permit with a holder.
pub async fn permits_of_a_dead_holder_come_back_to_a_counting_semaphore(fixture: &Fixture) {
    let name = unique("slots");
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let other = fixture.client(fixture.builder()).await;
    let slots = other.counting_semaphore(&name);
    assert!(slots.set_permits_if_new(3).await.expect("answered"));
    let patience = fixture.lease() * 10;
    let of_the_dead = mortal.client().semaphore(&name);
    let taken = of_the_dead.acquire().await.expect("there are three");
    assert_eq!(available(&slots).await, 2);
    plug.pull();
    let waited = within("the lease of the dead", patience, slots.acquire(3)).await;
    waited.expect("taken");
    assert_eq!(available(&slots).await, 0);
    plug.put_back();
    drop(taken);
    eventually("the dead is gone", patience, || async {
        mortal.client().is_idle()
    })
    .await;
    slots.release(2).await.expect("answered");
    // The same again: a look and a drain count what a dead holder has left.
    let taken = of_the_dead.acquire().await.expect("there are two");
    assert_eq!(available(&slots).await, 1);
    plug.pull();
    eventually("a look shows it", patience, || async {
        available(&slots).await == 2
    })
    .await;
    let seen = slots.inspect().await.expect("readable");
    assert_eq!(seen.permits.expect("it has permits").available, 2);
    assert_eq!(slots.drain().await.expect("answered"), 2);
    plug.put_back();
    drop(taken);
    eventually("the dead is gone", patience, || async {
        mortal.client().is_idle()
    })
    .await;
    assert_eq!(available(&slots).await, 0, "it came back once");
}

/// One request takes all permits that dead holders have left, however many they are. A store may take them back in portions.
pub async fn many_permits_of_dead_holders_come_back_at_once(fixture: &Fixture) {
    let name = unique("slots");
    let (mortal, plug) = fixture.mortal(fixture.builder()).await;
    let other = fixture.client(fixture.builder()).await;
    let slots = other.counting_semaphore(&name);
    assert!(slots.set_permits_if_new(1500).await.expect("answered"));
    let patience = fixture.lease() * 10;
    let of_the_dead = mortal.client().semaphore(&name);
    for drains in [false, true] {
        let mut taken = Vec::new();
        for permits in [1000, 500] {
            let some = of_the_dead.permits(permits).acquire().await;
            taken.push(some.expect("there are enough"));
        }
        assert_eq!(available(&slots).await, 0);
        plug.pull();
        eventually("the leases of the dead end", patience, || async {
            available(&slots).await == 1500
        })
        .await;
        if drains {
            assert_eq!(slots.drain().await.expect("answered"), 1500);
        } else {
            assert!(slots.try_acquire(1500).await.expect("answered"));
        }
        plug.put_back();
        drop(taken);
        eventually("the dead is gone", patience, || async {
            mortal.client().is_idle()
        })
        .await;
        let back = slots.release(1500).await.expect("answered");
        assert_eq!(back, 1500, "they came back once");
    }
}
