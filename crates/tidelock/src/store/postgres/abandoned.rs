//! Connections that were given up while statements are in flight on them.
//!
//! The server may log a client in and answer it, but keep its statements waiting: for a standby at the commit, for a lock on
//! a table or on a row. The driver ends a connection only after the last answer. So each connection that is given up would
//! stay, and its session at the server too, until nobody could log in there any more.
//!
//! So the server is asked to cancel what it runs for such a connection, again and again: each request cancels one statement.
//! It needs no free session for that, and a pooler passes the request on. A statement that is cancelled changes nothing, or
//! was committed and waits for its standby only. Its caller has been told already that its outcome is unknown.
//!
//! A pooler that passes server connections on after each transaction may deliver such a request late, and then it cancels the
//! statement of another client, as pgbouncer did before 1.18. So none is sent for a connection that answers within the response
//! timeout.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::runtime::backoff::ExponentialBackoff;
use crate::store::Timers;
use crate::store::postgres::address::Address;
use crate::store::postgres::prepared::LiveClient;

/// The pauses between two requests. All statements that may be in flight are cancelled within some seconds. A server on
/// which nothing helps is asked less and less often.
const PAUSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(5))
        .growth(1.1)
        .jitter(0.5);

/// How often the server is asked. The pauses between are about a minute together.
const MOST_TRIES: u32 = 50;

/// Ends a connection that was given up. `limit`: after that time nobody waits for an answer on it.
pub(crate) async fn end(
    live: Arc<LiveClient>,
    address: Arc<Address>,
    timers: Timers,
    limit: Duration,
) {
    // A statement that was sent before may still be answered in time. Cancelled, it would be told as a failure.
    let end = timers.now() + limit;
    // The server answers this after everything that was sent before it. The driver ends the connection then. One to a standby has
    // nothing in flight: its session must not stay until the end.
    while timers
        .until(end, live.client.batch_execute(""))
        .await
        .is_some()
    {
        if Arc::strong_count(&live) == 1 {
            return;
        }
        // A request that has the connection may still send on it.
        timers.after(PAUSES.pause(0)).await;
    }
    let mut answered = std::pin::pin!(live.client.batch_execute(""));
    let mut secure = None;
    for tries in 0..MOST_TRIES {
        let pause = PAUSES.pause(tries);
        if timers.limit(pause, answered.as_mut()).await.is_some() {
            return;
        }
        if secure.is_none() {
            secure = address.secure().await.ok();
        }
        if let Some(secure) = &secure {
            let token = live.client.cancel_token();
            let asked = token.cancel_query(secure.clone());
            // Without an answer the next request may help.
            let _ = timers.limit(limit, asked).await;
        }
    }
    live.given_up.set();
}
