//! The side for callers, in front of a store without the abilities of the other one.

use super::*;
use crate::store::PermitCounter as _;
use crate::store::postgres::caller_side::CallerSide;
use crate::store::postgres::tests::{env, stock};

/// A waiter that has a place in a queue of the store does not queue in its process.
#[tokio::test]
async fn the_side_for_callers_promises_no_more_than_its_store() {
    let server = sessions().await;
    let store = server.session_store().await;
    let side = CallerSide::new(Arc::clone(&store.front), &env().background);
    assert!(side.extensions().permit_counter.is_none());
    assert!(!side.queues());
    assert_eq!(side.lane(&stock()), store.front.lane(&stock()));
}
