use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use redis::{Client, Cmd, Connection, IntoConnectionInfo, RedisConnectionInfo};

/// A reply from a server.
pub use redis::Value as Reply;

/// The tests' operator user on a server with an access list.
pub(crate) const OPERATOR: &str = "operator";

/// The user (if not the default one) and the password.
pub(crate) type Login<'a> = (Option<&'a str>, &'a str);

/// The limit for a reply: longer than any reply takes, and short enough that a frozen server does not block a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// Opens an operator's connection. It uses the Unix socket, so it needs neither TLS nor the TCP port, which a test may
/// have exhausted or closed.
pub(crate) fn connect(socket: &Path, as_whom: Option<Login<'_>>) -> Result<Connection> {
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some((user, password)) = as_whom {
        login = login.set_password(password);
        if let Some(user) = user {
            login = login.set_username(user);
        }
    }
    let address = redis::ConnectionAddr::Unix(socket.to_path_buf());
    let info = address.into_connection_info()?.set_redis_settings(login);
    let connection = Client::open(info)?.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// Sends one command and returns its reply.
pub(crate) fn ask(connection: &mut Connection, args: &[&[u8]]) -> Result<Reply> {
    let mut command = Cmd::new();
    for arg in args {
        command.arg(*arg);
    }
    let shown = || {
        args.iter()
            .map(|arg| String::from_utf8_lossy(arg))
            .collect::<Vec<_>>()
            .join(" ")
    };
    command.query(connection).with_context(shown)
}
