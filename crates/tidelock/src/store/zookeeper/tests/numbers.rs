//! How many permits a semaphore has.

use super::*;
use crate::store::zookeeper::entry::QueueNode;
use crate::store::zookeeper::permit_view::{ClaimStep, ClaimView, SemaphoreNumber};
use crate::store::{PermitChange, PermitCounter};

/// The transaction that makes the number.
const MAKES: &str = "multi delete";

async fn changes(store: &ZooKeeper, change: PermitChange) -> Result<bool> {
    store.change(&stock(), change).await
}

/// The number without its epoch.
fn total(server: &TestServer) -> Option<i64> {
    let data = server.data(NUMBER)?;
    let (total, _) = data.split_once(' ').unwrap();
    Some(total.parse().unwrap())
}

#[tokio::test]
async fn a_number_is_made_once_and_changed_by_what_is_asked() {
    use PermitChange::{Add, Set, SetIfNew};

    let server = TestServer::start().await;
    let store = server.store().await;
    assert!(store.queues());
    for (change, changed, expected) in [
        (SetIfNew(3), true, 3),
        (SetIfNew(5), false, 3),
        (Set(3), false, 3),
        (Set(5), true, 5),
        (Add(-2), true, 3),
        (Add(0), false, 3),
    ] {
        assert_eq!(changes(&store, change).await.unwrap(), changed);
        assert_eq!(total(&server), Some(expected), "{change:?}");
    }
    assert_eq!(server.children(STOCK).len(), 1, "its maker has left");
    assert_eq!(server.children(NUMBER).len(), 1, "its epoch");
    for (first, expected) in [(Add(2), 2), (Set(4), 4)] {
        let server = TestServer::start().await;
        let store = server.store().await;
        assert!(changes(&store, first).await.unwrap());
        assert_eq!(total(&server), Some(expected), "{first:?}");
    }
}

#[tokio::test]
async fn a_name_that_is_a_lock_gets_no_number() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let lock = format!("{STOCK}/_c_x-lock-0000000000");
    server.tree(|tree| tree.make_for(FOREIGN, &lock, b""));
    let error = changes(&store, PermitChange::Set(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert_eq!(server.children(STOCK), ["_c_x-lock-0000000000"]);
    server.tree(|tree| {
        tree.remove(&lock);
        tree.make(MARK, b"7 5000");
    });
    let error = changes(&store, PermitChange::Set(3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "a delay is running");
    assert!(server.children(STOCK).is_empty());
}

#[tokio::test]
async fn of_two_that_make_the_number_one_makes_it() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.before(MAKES, |tree| tree.make(NUMBER, b"7 1f"));
    let is_made = changes(&store, PermitChange::SetIfNew(3)).await.unwrap();
    assert_eq!((is_made, total(&server)), (false, Some(7)));
    assert_eq!(server.children(STOCK).len(), 1, "the maker has left");
}

#[tokio::test]
async fn a_change_of_a_number_that_has_changed_counts_from_the_new_one() {
    let server = TestServer::start().await;
    let store = server.store().await;
    assert!(changes(&store, PermitChange::Set(3)).await.unwrap());
    let epoch = server.children(NUMBER).remove(0);
    let other = format!("10 {epoch}").into_bytes();
    server.before("multi check", move |tree| tree.write(NUMBER, &other));
    assert!(changes(&store, PermitChange::Add(2)).await.unwrap());
    assert_eq!(total(&server), Some(12));
    assert_eq!(server.heard("multi check").len(), 2);
}

/// Otherwise the change would be tried again and again until the deadline.
#[tokio::test]
async fn a_number_without_its_epoch_is_not_changed() {
    let server = TestServer::start().await;
    let store = server.store().await;
    assert!(changes(&store, PermitChange::Set(3)).await.unwrap());
    let epoch = format!("{NUMBER}/{}", server.children(NUMBER)[0]);
    server.tree(|tree| tree.remove(&epoch));
    let error = changes(&store, PermitChange::Set(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert_eq!(total(&server), Some(3));
    server.tree(|tree| tree.write(NUMBER, b"many"));
    let error = changes(&store, PermitChange::Set(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "it is no number");
}

#[tokio::test]
async fn a_number_whose_making_has_no_reply_is_in_doubt() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let set = || changes(&store, PermitChange::Set(3));
    server.on(MAKES, ServerFault::Refuses(NO_AUTH));
    assert_eq!(set().await.unwrap_err().kind(), ErrorKind::Refused);
    assert!(server.children(STOCK).is_empty(), "the maker has left");
    server.on(MAKES, ServerFault::LosesReply);
    let lost = unanswered(&server, MAKES, set()).await;
    assert!(lost.unwrap_err().outcome_unknown());
    assert_eq!(total(&server), Some(3));
    assert!(!set().await.unwrap(), "it has been made");
}

/// Otherwise all locks of this name would wait for its node until the session ends.
#[tokio::test]
async fn a_maker_whose_caller_leaves_is_withdrawn() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.on(MAKES, ServerFault::Ignores);
    let made = async {
        tokio::select! {
            biased;
            made = changes(&store, PermitChange::Set(3)) => Some(made),
            () = server.hears(MAKES, 1) => None,
        }
    };
    assert!(made.await.is_none(), "its caller has left");
    assert_eq!(server.children(STOCK).len(), 1);
    server.hears("delete /tidelock/stock/_c_", 1).await;
    assert!(server.children(STOCK).is_empty());
}

/// Those that came after the last change of the number have left room for it.
#[test]
fn a_claim_reads_those_behind_it_only_if_the_number_has_changed_since_it_came() {
    let number = SemaphoreNumber {
        total: 3,
        epoch: "1f".to_owned(),
        version: 1,
        changed: 9,
    };
    let claims = ["_c_a-1-permits-0000000000", "_c_b-1-permits-0000000001"];
    let view = ClaimView::new(Some(number), claims.map(str::to_owned).into());
    let reads = ClaimStep::Read(vec![claims[1].to_owned()]);
    for (zxid, step) in [(8, reads), (9, ClaimStep::Gets), (10, ClaimStep::Gets)] {
        let name = claims[0].to_owned();
        let own = QueueNode { name, zxid };
        assert_eq!(view.step(Some(&own), 1), step, "{zxid}");
    }
}
