//! How long a refresh may take, and how soon after a doubt the next one begins.

use futures_util::FutureExt;

use super::*;
use crate::store::redis::topology::router::RETRY_LIMIT;
use crate::store::redis::wire::tests::skip;

/// A node that is silent now may answer the next refresh, and a first connect has other requests to make.
#[tokio::test]
async fn silent_nodes_use_up_only_a_part_of_the_time() {
    for starts_again in [false, true] {
        let server = ScriptedServer::start().await;
        server.answers("CLUSTER SLOTS", &[SILENCE]);
        let cluster = cluster_of(vec![server.address()]);
        let begun = cluster.timers.now();
        let asked = async {
            if starts_again {
                cluster.start_again().await
            } else {
                cluster.refresh_map().await.is_ok()
            }
        };
        let silence = async {
            server.hears("CLUSTER SLOTS", 1).await;
            skip(LIMIT / 2).await;
        };
        let (is_answered, ()) = in_time(async { tokio::join!(asked, silence) }).await;
        let waited = cluster.timers.now().since(begun);
        assert!(
            !is_answered && waited < LIMIT,
            "starts again: {starts_again}, {waited:?}"
        );
    }
}

/// Requests that the old map has led astray are retried for a while only.
#[tokio::test(start_paused = true)]
async fn a_refresh_after_a_doubt_begins_while_requests_are_still_retried() {
    let cluster = Arc::new(cluster_of(vec![loopback(7)]));
    let timers = cluster.timers.clone();
    cluster.doubt();
    let begun = timers.now();
    let mut following = Box::pin(follow(Arc::downgrade(&cluster), timers.clone()));
    assert!(following.as_mut().now_or_never().is_none());
    // Where the refresh would begin, the task finds that the client was dropped, and ends.
    drop(cluster);
    following.await;
    let waited = timers.now().since(begun);
    assert!(waited < RETRY_LIMIT, "{waited:?}");
}
