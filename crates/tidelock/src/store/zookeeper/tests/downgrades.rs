//! Readers that follow a writer of the same process.

use super::*;
use crate::types::LostReason;

/// A transaction that creates the node of a reader, if that of the writer exists.
const JOIN: &str = "multi check ";

/// A reader that follows this writer.
fn follows(writer: &AttemptRequest) -> AttemptRequest {
    AttemptRequest {
        downgrade_of: Some(writer.ticket.owner.clone()),
        ..patient(LockKind::Read)
    }
}

#[tokio::test]
async fn a_reader_follows_its_writer_ahead_of_all_waiters() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let (writer, other) = (patient(LockKind::Write), patient(LockKind::Write));
    let holds = granted(&store, &writer).await;
    refused(&store, &other).await;
    let reader = follows(&writer);
    let joined = granted(&store, &reader).await;
    assert!(joined.token > holds.token);
    let path = server.path_of(&reader.ticket);
    assert_eq!(joined.token, Some(FencingToken::new(server.created(&path))));
    let owner = server.tree(|tree| tree.node(&path).unwrap().owner);
    assert_eq!(server.sessions(), [owner]);
    let number = |path: &str| keys::digits(path).map(str::to_owned);
    assert_eq!(number(&path), number(&server.path_of(&writer.ticket)));
    store.release(&writer.ticket).await.unwrap();
    assert_eq!(refused(&store, &other).await.ahead, Some(1));
    store.release(&reader.ticket).await.unwrap();
    granted(&store, &other).await;
}

#[tokio::test]
async fn a_writer_that_has_lost_the_lock_is_followed_by_nobody() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let writer = patient(LockKind::Write);
    let never = follows(&writer);
    let error = failed(&store, &never).await;
    assert_eq!(error.lost_reason(), Some(LostReason::Taken), "{error}");
    granted(&store, &writer).await;
    // An operator takes the lock.
    let path = server.path_of(&writer.ticket);
    server.tree(|tree| tree.remove(&path));
    let late = follows(&writer);
    let error = failed(&store, &late).await;
    assert_eq!(error.lost_reason(), Some(LostReason::Taken), "{error}");
    assert!(store.0.registry.connection(&late.ticket).is_none());
    assert!(server.children(STOCK).is_empty());
}

#[tokio::test]
async fn a_reader_whose_join_is_refused_leaves_no_doubt() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let writer = patient(LockKind::Write);
    granted(&store, &writer).await;
    let reader = follows(&writer);
    server.on(JOIN, ServerFault::Refuses(THROTTLED));
    let error = failed(&store, &reader).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(store.0.registry.connection(&reader.ticket).is_none());
    granted(&store, &reader).await;
}

#[tokio::test]
async fn a_reader_whose_join_has_no_reply_finds_its_node() {
    let server = TestServer::start().await;
    let store = server.store().await;
    let writer = patient(LockKind::Write);
    granted(&store, &writer).await;
    let reader = follows(&writer);
    server.on(JOIN, ServerFault::LosesReply);
    let error = unanswered(&server, JOIN, failed(&store, &reader)).await;
    assert!(error.outcome_unknown(), "{error}");
    granted(&store, &reader).await;
    assert_eq!(server.heard(JOIN).len(), 1);
}
