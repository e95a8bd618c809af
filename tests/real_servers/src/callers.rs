//! Counts the clients of a server that also has connections from its replicas and sentinels.

use anyhow::Result;
use testkit::servers::RedisServer;

/// The number of connected clients, without the operator's own connection.
pub fn callers(server: &RedisServer) -> Result<usize> {
    let list: String = server.query(&["CLIENT", "LIST"])?;
    let others = list.lines().filter(|line| {
        let plain = line.contains(" flags=N ") || line.contains(" flags=P ");
        let watches = line.contains(" name=sentinel-");
        plain && !watches && !line.contains(" cmd=client")
    });
    Ok(others.count())
}
