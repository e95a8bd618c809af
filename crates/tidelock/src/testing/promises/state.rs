//! The state of a hold before a loss.

use crate::options::AcquireOptions;
use crate::state::HoldState;
use crate::testing::fixture::{Fixture, eventually, unique};

/// A holder without answers from its store becomes unsure while the lock is still proved to be held, becomes sure again
/// when the store returns, and reports the loss only after it was unsure.
pub async fn a_holder_is_unsure_before_it_has_lost(fixture: &Fixture) {
    let name = unique("leader");
    let (a, plug) = fixture.mortal(fixture.builder()).await;
    let long = fixture.lease() * 3;
    let options = AcquireOptions::new().lease(long);
    let held = a.lock(&name).acquire_with(options).await.expect("free");
    let is = async |state| held.state().await == state;
    eventually("it is held", long, || is(HoldState::Held)).await;
    plug.pull();
    eventually("it is unsure", long, || is(HoldState::Unsure)).await;
    assert!(held.is_held().await, "unsure, and proved");
    plug.put_back();
    eventually("it is sure again", long, || is(HoldState::Held)).await;
    plug.pull();
    eventually("it is unsure", long, || is(HoldState::Unsure)).await;
    let order = std::sync::Mutex::new(vec![held.state().await]);
    eventually("it is lost", long * 2, || async {
        let now = held.state().await;
        let mut order = order.lock().unwrap();
        if order.last() != Some(&now) {
            order.push(now);
        }
        now == HoldState::Lost
    })
    .await;
    let order = order.into_inner().unwrap();
    assert_eq!(order, [HoldState::Unsure, HoldState::Lost]);
    assert!(!held.is_held().await);
    plug.put_back();
}
