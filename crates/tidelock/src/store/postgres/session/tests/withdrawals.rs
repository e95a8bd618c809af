//! The owners whose late requests take no effect.

use std::time::Duration;

use super::*;
use crate::store::postgres::target;
use crate::types::OwnerMint;

/// How long a withdrawn owner is remembered at least.
const REMEMBERED: Duration = Duration::from_secs(300);

/// The state of a store that has no session, and room for the notes of some withdrawals.
fn with_room() -> Shared {
    let env = env();
    let address = target("postgres://h/d?sslmode=disable", &env).unwrap();
    let state = without_session(Connection::new(Arc::new(address), &env));
    state.withdrawn.lock().reserve(10);
    state
}

/// A walk through all of them at each withdrawal would make a thousand withdrawals a million steps.
#[tokio::test(start_paused = true)]
async fn a_withdrawal_forgets_old_ones_only_when_the_list_would_grow() {
    let (shared, mint) = (with_room(), OwnerMint::new());
    let (old, young) = (mint.fresh(), mint.fresh());
    shared.withdraw(&old);
    tokio::time::advance(REMEMBERED).await;
    shared.withdraw(&young);
    let has_room = || {
        let all = shared.withdrawn.lock();
        all.len() < all.capacity()
    };
    while has_room() {
        assert!(shared.is_withdrawn(&old));
        shared.withdraw(&mint.fresh());
    }
    assert!(shared.is_withdrawn(&old));
    shared.withdraw(&mint.fresh());
    assert!(!shared.is_withdrawn(&old), "its time is over");
    assert!(shared.is_withdrawn(&young));
}
