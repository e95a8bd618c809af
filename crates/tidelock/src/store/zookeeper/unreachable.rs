//! Says why no server can be reached. The driver tries one server after the other, and tells no reasons.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpStream;

use crate::store::Timers;

/// Connects to all servers at the same time, each for at most `limit`, and says what came of it.
pub(crate) async fn reasons(servers: &str, timers: &Timers, limit: Duration) -> String {
    let asked = servers.split(',').map(async |server| {
        let reason = match timers.limit(limit, TcpStream::connect(server)).await {
            Some(Err(error)) => error.to_string(),
            Some(Ok(_)) => "it accepts connections, but no session; is it a ZooKeeper server, and has the ensemble a majority?".to_owned(),
            None => "it does not answer".to_owned(),
        };
        (server, reason)
    });
    match join_all(asked).await.as_slice() {
        [(_, reason)] => reason.clone(),
        several => several
            .iter()
            .map(|(server, reason)| format!("{server}: {reason}"))
            .collect::<Vec<_>>()
            .join("; "),
    }
}
