//! Forced releases that fail midway.

use super::*;

/// The key of each reader is deleted by a request of its own.
#[tokio::test]
async fn a_forced_release_that_fails_after_the_first_of_two_readers_is_in_doubt() {
    for (turns, kind, left) in [
        (&[NO_LEADER][..], ErrorKind::Unavailable, 2),
        (&[Turn::Usual, NO_LEADER], ErrorKind::OutcomeUnknown, 1),
    ] {
        let server = ModelServer::start().await;
        let etcd = server.client();
        for _ in 0..2 {
            etcd.grants(&ask(LockKind::Read)).await;
        }
        server.in_turn("Txn", turns);
        let error = etcd.force_release(&stock(), None).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(server.keys().len(), left, "{kind:?}");
    }
}
