//! Who is connected to a server that also has connections of its peers.

use anyhow::Result;
use testkit::servers::RedisServer;

/// How many clients are connected, without the operator's own.
pub(crate) fn callers(server: &RedisServer) -> Result<usize> {
    let list: String = server.query(&["CLIENT", "LIST"])?;
    let others = list.lines().filter(|line| {
        let plain = line.contains(" flags=N ") || line.contains(" flags=P ");
        let watches = line.contains(" name=sentinel-");
        plain && !watches && !line.contains(" cmd=client")
    });
    Ok(others.count())
}
