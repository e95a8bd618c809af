//! Promises about counting semaphores whose replies are lost while something else happens.

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
