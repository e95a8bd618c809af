//! Promises about sequencers.

use crate::error::ErrorKind;
use crate::options::AcquireOptions;
use crate::sequencer::Sequencer;
use crate::testing::fixture::{Fixture, unique, within};
use crate::testing::party::{Held, Party};

/// Checks a sequencer, and retries until the store answers.
async fn checked(party: &Party, sequencer: &Sequencer) -> bool {
    loop {
        match party.verify(sequencer).await {
            Ok(good) => return good,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// A hold's sequencer, formatted and parsed again.
async fn written(held: &Held) -> Sequencer {
    let text = held.sequencer().await.expect("held").to_string();
    text.parse().expect("what is written is read")
}

/// Whether the store has sequencers. Its capabilities and its extensions must agree.
async fn has_sequencers(fixture: &Fixture) -> bool {
    let bare = fixture.bare().await;
    let has = bare.store.front.extensions().sequencers.is_some();
    assert_eq!(bare.store.front.capabilities().sequencers, has);
    has
}

/// A store without sequencers refuses to issue and to check one, without traffic.
async fn refuses(fixture: &Fixture) {
    let a = fixture.party().await;
    let held = a.lock(&unique("primary")).acquire().await.expect("free");
    let error = held.sequencer().await.expect_err("unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    held.release().await.expect("held");
    let (b, plug) = fixture.mortal(fixture.builder()).await;
    let asked = plug.requests();
    let foreign = "tidelock1:exclusive:1:primary".parse().expect("good");
    let error = b.verify(&foreign).await.expect_err("unsupported");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(plug.requests(), asked, "before any traffic");
}

/// A sequencer is valid from the grant to the release, for every client that checks it. It is not valid during another
/// hold of the same lock (of another client or of the next task of the same client), nor after a force release.
pub async fn a_sequencer_is_good_while_its_hold_has_the_lock(fixture: &Fixture) {
    if !has_sequencers(fixture).await {
        return refuses(fixture).await;
    }
    let name = unique("primary: 1/2 ü");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let first = a.lock(&name).acquire().await.expect("free");
    let one = written(&first).await;
    assert_eq!(one.name(), name);
    assert!(checked(&a, &one).await && checked(&b, &one).await);
    // Two waiters: one of this client, which may get the hold by a hand-off without a request, and one of the other
    // client.
    let mut waiting = tokio::task::JoinSet::new();
    for party in [&a, &b] {
        let place = party.lock(&name);
        waiting.spawn(async move { place.acquire().await.expect("it waits") });
    }
    tokio::time::sleep(fixture.lease() / 8).await;
    assert!(checked(&b, &one).await);
    first.release().await.expect("held");
    let mut past = vec![one];
    for _ in 0..2 {
        let next = within("the next", fixture.lease() * 6, waiting.join_next()).await;
        let next = next.expect("two wait").expect("no panic");
        let its = written(&next).await;
        for old in &past {
            assert!(!checked(&b, old).await, "{old} is over");
            assert!(its.generation() > old.generation());
        }
        assert!(checked(&a, &its).await && checked(&b, &its).await);
        past.push(its);
        next.release().await.expect("held");
    }
    let forced = b.lock(&name).fenced().acquire().await.expect("free");
    let its = written(&forced).await;
    assert!(checked(&a, &its).await);
    let lock = a.lock(&name);
    assert!(lock.lock().force_release().await.expect("done"));
    assert!(!checked(&b, &its).await, "it was taken away");
    for old in &past {
        assert!(!checked(&a, old).await);
    }
}

/// After a hold has expired, its sequencer is not valid, and its holder cannot get a new one.
pub async fn a_sequencer_of_a_lost_hold_is_refused(fixture: &Fixture) {
    if !has_sequencers(fixture).await {
        return refuses(fixture).await;
    }
    let name = unique("primary");
    let (a, b) = (fixture.party().await, fixture.party().await);
    let options = AcquireOptions::new().expires_after(fixture.lease());
    let held = a.lock(&name).acquire_with(options).await.expect("free");
    let its = written(&held).await;
    within("the loss", fixture.lease() * 2, held.lost()).await;
    let error = held.sequencer().await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
    let place = b.lock(&name);
    let next = place.acquire();
    let next = within("the next", fixture.lease() * 4, next)
        .await
        .expect("it waits");
    assert!(!checked(&a, &its).await && !checked(&b, &its).await);
    assert!(checked(&a, &written(&next).await).await);
    next.release().await.expect("held");
}
