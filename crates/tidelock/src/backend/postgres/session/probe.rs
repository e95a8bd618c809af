//! The beginning of a session: how long it may be silent, and whether it is one. Behind a pooler that gives connections
//! away after each transaction it is not, and locks would stay with whoever comes next.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::life::{SIGN, Session};
use crate::backend::postgres::link::Link;
use crate::backend::postgres::trouble::Trouble;
use crate::error::{Error, ErrorKind};

/// How often it is looked whether two connections come to one session. Where nobody else uses the pooler they do at once;
/// where many do, ours comes to another session instead.
const ROUNDS: usize = 3;

/// Who has been here before?
const MARK: &str =
    "SELECT pg_backend_pid(), coalesce(current_setting('tidelock.session', true), '')";

const SET: &str = "SELECT set_config('tidelock.session', $1, false)";

/// Leaves our mark, and tells which process of the server serves us.
pub(super) async fn begin(client: &Client, mark: &str) -> Result<i32, Trouble> {
    let of = |error: tokio_postgres::Error| Trouble::of(&error);
    let rows = client.query_typed(MARK, &[]).await.map_err(of)?;
    let row = rows.first().ok_or_else(pooled)?;
    let (pid, before): (i32, String) = (row.get(0), row.get(1));
    if !before.is_empty() {
        return Err(pooled());
    }
    let params = [(&mark as _, Type::TEXT)];
    client.query_typed(SET, &params).await.map_err(of)?;
    Ok(pid)
}

/// How long a silence the server is to bear: of the session itself (since version 14), and of the machine at the other end.
pub(super) fn bear(span: Duration) -> String {
    // Whole seconds, and never less than a third: what the holder counts on must not end before.
    let (silence, third) = (
        span.as_millis().max(1),
        span.as_millis().div_ceil(3000).max(1),
    );
    format!(
        "SELECT coalesce(pg_backend_pid() = $1 AND current_setting('tidelock.session', true) = $2, false), \
         count(set_config(name, CASE name WHEN 'idle_session_timeout' THEN '{silence}' WHEN 'tcp_user_timeout' THEN '{silence}' \
           WHEN 'tcp_keepalives_count' THEN '2' ELSE '{third}' END, false)) FROM pg_settings WHERE name IN \
           ('idle_session_timeout', 'tcp_user_timeout', 'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count')"
    )
}

/// Whether it stays ours, and no other connection comes to it.
pub(super) async fn check(link: &Link, session: &Session) -> Result<(), Trouble> {
    let other = link.connect(None).await?;
    for _ in 0..ROUNDS {
        let rows = other.query_typed(MARK, &[]).await;
        let rows = rows.map_err(|error| Trouble::of(&error))?;
        if rows
            .first()
            .is_none_or(|row| row.get::<_, String>(1) == session.mark())
        {
            // It is somebody else's next. An error changes nothing.
            let nobody = [(&"" as _, Type::TEXT)];
            let _ = other.query_typed(SET, &nobody).await;
            return Err(pooled());
        }
        session.ask(SIGN, None, link.deadline()).await?;
    }
    Ok(())
}

pub(super) fn pooled() -> Trouble {
    Trouble::Setup(Error::new(ErrorKind::Unsupported).because(
        "locks=session needs a session of its own, and this connection is shared: a pooler gives it away after each transaction. \
         Connect past it, let it keep sessions (pool_mode = session), or leave locks=session out: rows with leases work behind it",
    ))
}
