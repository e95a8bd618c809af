//! The marks of a job's slots.

use super::*;
use crate::snapshot::since_epoch;
use crate::store::{MarkChange, Marks};

/// The node above all marks, which tells the time.
const ALL_MARKS: &str = "/tidelock/%marks";

/// The marks of the job `stock`.
const JOB: &str = "/tidelock/%marks/stock";

/// The mark of one slot.
const NOON: &str = "/tidelock/%marks/stock/noon";

const KEEP: Duration = Duration::from_secs(60);

/// Replaces the mark of noon.
async fn replaced(store: &ZooKeeper, before: Option<&str>, after: &str) -> Result<bool> {
    let change = MarkChange::unacknowledged("noon", before, after, KEEP);
    store.replace(&stock(), change).await
}

async fn read(store: &ZooKeeper) -> Option<String> {
    store.read(&stock(), "noon").await.unwrap()
}

#[tokio::test]
async fn a_mark_is_replaced_by_those_who_know_it() {
    let server = TestServer::start().await;
    let store = server.store().await;
    for (before, after, is_replaced, now) in [
        (Some("x"), "a", false, None),
        (None, "", true, None),
        (None, "a", true, Some("a")),
        (None, "b", false, Some("a")),
        (Some("x"), "b", false, Some("a")),
        (Some("a"), "b", true, Some("b")),
        (Some("b"), "", true, None),
        (Some("b"), "c", false, None),
        (None, "", true, None),
        (None, "d", true, Some("d")),
    ] {
        let done = replaced(&store, before, after).await.unwrap();
        assert_eq!(done, is_replaced, "{before:?}, {after}");
        assert_eq!(read(&store).await.as_deref(), now, "{before:?}, {after}");
        let nodes = usize::from(now.is_some());
        assert_eq!(server.children(JOB).len(), nodes, "an empty mark has none");
    }
}

#[tokio::test]
async fn an_empty_mark_that_is_not_there_needs_no_node() {
    let server = TestServer::start().await;
    let store = server.store().await;
    assert!(replaced(&store, None, "").await.unwrap());
    assert_eq!(read(&store).await, None);
    let history = store.history(&stock(), 9).await.unwrap();
    assert!(history.is_empty());
    assert_eq!(server.data(ALL_MARKS), None);
}

#[tokio::test]
async fn the_time_is_that_of_the_server() {
    let server = TestServer::start().await;
    let store = server.store().await;
    for _ in 0..2 {
        let now = store.now(&stock()).await.unwrap();
        assert_eq!(now, since_epoch(1_000_000));
    }
    server.tree(|tree| tree.clock += 5);
    let now = store.now(&stock()).await.unwrap();
    assert_eq!(now, since_epoch(1_000_005));
}

#[tokio::test]
async fn a_mark_expires_after_its_last_change_by_the_clock_of_the_server() {
    let server = TestServer::start().await;
    let store = server.store().await;
    assert!(replaced(&store, None, "a").await.unwrap());
    server.tree(|tree| tree.clock += 50_000);
    assert!(replaced(&store, Some("a"), "b").await.unwrap());
    server.tree(|tree| tree.clock += 59_999);
    assert_eq!(read(&store).await.as_deref(), Some("b"));
    server.tree(|tree| tree.clock += 1);
    assert_eq!(read(&store).await, None);
    let history = store.history(&stock(), 9).await.unwrap();
    assert!(history.is_empty());
    assert!(!replaced(&store, Some("b"), "c").await.unwrap());
    assert!(replaced(&store, None, "c").await.unwrap());
    assert_eq!(server.data(NOON).as_deref(), Some("60000 c"));
}

#[tokio::test]
async fn a_change_on_its_way_replaces_no_mark_that_it_has_not_seen() {
    let server = TestServer::start().await;
    let store = server.store().await;
    assert!(replaced(&store, None, "a").await.unwrap());
    server.before("multi", |tree| tree.write(NOON, b"60000 b"));
    assert!(!replaced(&store, Some("a"), "c").await.unwrap());
    assert_eq!(server.data(NOON).as_deref(), Some("60000 b"));
    // The version of a new node counts from zero again.
    assert!(replaced(&store, Some("b"), "").await.unwrap());
    assert!(replaced(&store, None, "a").await.unwrap());
    server.before("multi", |tree| {
        tree.remove(NOON);
        tree.write(JOB, b"");
        tree.make(NOON, b"60000 z");
    });
    assert!(!replaced(&store, Some("a"), "c").await.unwrap());
    assert_eq!(server.data(NOON).as_deref(), Some("60000 z"));
}

#[tokio::test]
async fn of_two_that_make_one_mark_one_makes_it() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.before("multi", |tree| tree.make(NOON, b"60000 b"));
    assert!(!replaced(&store, None, "a").await.unwrap());
    assert_eq!(server.data(NOON).as_deref(), Some("60000 b"));
    // A mark that is not there any more stays gone.
    server.before("multi", |tree| tree.remove(NOON));
    assert!(!replaced(&store, Some("b"), "c").await.unwrap());
    assert_eq!(server.data(NOON), None);
}

/// It sees that the deletion before it has written the parent.
#[tokio::test]
async fn a_deletion_is_seen_by_those_who_looked_before() {
    let server = TestServer::start().await;
    let store = server.store().await;
    assert!(replaced(&store, None, "a").await.unwrap());
    assert!(replaced(&store, Some("a"), "").await.unwrap());
    let last = server.heard("multi").pop();
    assert_eq!(last, Some(format!("multi set {JOB}; delete {NOON}")));
    assert!(replaced(&store, None, "").await.unwrap());
    let last = server.heard("multi").pop();
    assert_eq!(last, Some(format!("multi check {JOB}")));
}

#[tokio::test]
async fn a_new_mark_deletes_some_that_have_expired() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| {
        for number in 0..10 {
            tree.make(&format!("{JOB}/x{number}"), b"1 old");
        }
        tree.make(&format!("{JOB}/y"), b"60000 live");
        tree.clock += 9;
    });
    // The place where it begins depends on the time: here at the second of twelve nodes.
    assert!(replaced(&store, None, "a").await.unwrap());
    let left = server.children(JOB);
    assert_eq!(left, ["noon", "x4", "x5", "x6", "x7", "x8", "x9", "y"]);
    assert!(replaced(&store, Some("a"), "b").await.unwrap());
    assert_eq!(server.children(JOB), left, "no new mark");
    server.on(&format!("list {JOB}"), ServerFault::Refuses(THROTTLED));
    assert!(replaced(&store, Some("b"), "").await.unwrap());
    assert!(
        replaced(&store, None, "c").await.unwrap(),
        "it has no effect"
    );
    assert_eq!(server.children(JOB).len(), 8);
}

/// Those that have not expired stay, however few there are.
#[tokio::test]
async fn a_new_mark_looks_at_no_more_than_there_are() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| {
        tree.make(&format!("{JOB}/x"), b"1 old");
        tree.clock += 9;
    });
    assert!(replaced(&store, None, "a").await.unwrap());
    assert_eq!(server.children(JOB), ["noon"]);
    assert_eq!(server.heard("get /tidelock/%marks/stock/x").len(), 1);
}

/// The place where it begins depends on the time. To count the milliseconds since 1970 one by one would take hours.
#[tokio::test]
async fn a_new_mark_deletes_at_once_however_late_it_is() {
    let server = TestServer::start().await;
    let store = server.store().await;
    server.tree(|tree| {
        tree.clock = 1_800_000_000_000;
        tree.make(&format!("{JOB}/x"), b"1 old");
        tree.clock += 9;
    });
    assert!(replaced(&store, None, "a").await.unwrap());
    assert_eq!(server.children(JOB), ["noon"]);
}

#[tokio::test]
async fn the_history_has_the_last_changes_first() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let slots = ["a/b", "noon", "c"];
    for slot in slots {
        let change = MarkChange::unacknowledged(slot, None, "done", KEEP);
        assert!(store.replace(&stock(), change).await.unwrap());
    }
    let change = MarkChange::unacknowledged("a/b", Some("done"), "again", KEEP);
    assert!(store.replace(&stock(), change).await.unwrap());
    server.tree(|tree| tree.make(&format!("{JOB}/%zz"), b"60000 of another program"));
    let all = [("a/b", "again"), ("c", "done"), ("noon", "done")];
    for (limit, count) in [(0, 0), (2, 2), (9, 3)] {
        let history = store.history(&stock(), limit).await.unwrap();
        let seen: Vec<(&str, &str)> = history
            .iter()
            .map(|(slot, text)| (&**slot, &**text))
            .collect();
        assert_eq!(seen, all[..count]);
    }
}

#[tokio::test]
async fn a_mark_that_cannot_be_read_is_an_error() {
    let server = TestServer::start().await;
    let store = server.store().await;
    assert!(replaced(&store, None, "a").await.unwrap());
    let clock = format!("set {ALL_MARKS}");
    for request in [&*clock, "get /tidelock/%marks/stock/noon"] {
        server.on(request, ServerFault::Refuses(THROTTLED));
        let name = stock();
        let refused = store.read(&name, "noon").await.unwrap_err();
        server.on(request, ServerFault::Ignores);
        let read = store.read(&name, "noon");
        let late = unanswered(&server, request, read).await.unwrap_err();
        for error in [refused, late] {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{request}: {error}");
        }
    }
    server.on("multi", ServerFault::LosesReply);
    let lost = unanswered(&server, "multi", replaced(&store, Some("a"), "b")).await;
    assert!(lost.unwrap_err().outcome_unknown());
    assert_eq!(read(&store).await.as_deref(), Some("b"));
}
