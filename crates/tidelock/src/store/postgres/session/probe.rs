//! Sets up a session: configures how long it may be silent, and checks that it is not on a standby and that no other client
//! shares it. A standby grants advisory locks that exclude nobody on the primary. Behind a pooler that passes connections on
//! after each transaction, the next client would inherit our locks.

use std::fmt;
use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::{Error, ErrorKind};
use crate::store::postgres::errors::RequestError;

/// How often we check whether two connections reach one session. On an idle pooler they do at once. On a busy pooler
/// our own statement reaches another session instead, which its own check detects.
pub(crate) const MAX_PROBE_ROUNDS: usize = 3;

/// The longest silence that we ask a server to bear. PostgreSQL counts it in an `int` of milliseconds: it refuses more than 24
/// days, and with that the session. Linux refuses TCP keepalives with pauses above 32767 s. PostgreSQL logs that for each session,
/// and keeps the keepalives of its machine.
const MAX_SILENCE: Duration = Duration::from_secs(3 * 32_767);

/// How long the server keeps a silent session: as long as the lease of the client, if it can.
pub(crate) fn span(lease: Duration) -> Duration {
    lease.min(MAX_SILENCE)
}

/// Reads the server process's id, the mark that an earlier client left, and whether the server is a standby.
const MARK: &str = "SELECT pg_backend_pid(), coalesce(current_setting('tidelock.session', true), ''), pg_is_in_recovery()";

/// Sets the mark.
const SET: &str = "SELECT set_config('tidelock.session', $1, false)";

/// Sets our mark, and returns the id of the server process. Fails if the session already has a mark, and on a standby.
pub(crate) async fn begin(
    client: &Client,
    mark: &str,
    address: &impl fmt::Display,
) -> Result<i32, RequestError> {
    let of = |error: tokio_postgres::Error| RequestError::of(&error);
    let rows = client.query_typed(MARK, &[]).await.map_err(of)?;
    let row = rows.first().ok_or_else(pooled)?;
    let (pid, before): (i32, String) = (row.get(0), row.get(1));
    if !before.is_empty() {
        return Err(pooled());
    }
    // We look only once: a primary becomes a standby by a restart, which ends the session.
    if row.get(2) {
        return Err(RequestError::on_a_standby(address));
    }
    let params = [(&mark as _, Type::TEXT)];
    client.query_typed(SET, &params).await.map_err(of)?;
    Ok(pid)
}

/// The statement that sets after how much silence the server ends the session: of the session itself (since version
/// 14), and of the client's machine (TCP).
pub(crate) fn bear(span: Duration) -> String {
    // The TCP keepalives take whole seconds, so we round up: idle time plus two probes must not be shorter than `span`.
    // Otherwise the server could end the session while a holder relies on its lease.
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

/// Checks that a second connection does not reach the session with our mark.
pub(crate) async fn refuse_if_shared(other: &Client, mark: &str) -> Result<(), RequestError> {
    let rows = other.query_typed(MARK, &[]).await;
    let rows = rows.map_err(|error| RequestError::of(&error))?;
    if rows
        .first()
        .is_none_or(|row| row.get::<_, String>(1) == mark)
    {
        // The pooler gives this session to other clients, so we clear our mark. We ignore an error: we fail anyway.
        let nobody = [(&"" as _, Type::TEXT)];
        let _ = other.query_typed(SET, &nobody).await;
        return Err(pooled());
    }
    Ok(())
}

/// The error for a session that a pooler shares.
pub(crate) fn pooled() -> RequestError {
    RequestError::Classified(Error::new(ErrorKind::Unsupported).because(
        "locks=session needs a database session of its own, but a pooler shares this connection after each transaction. Connect to the server directly, set pool_mode = session, or omit locks=session: rows with leases work behind a pooler",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers in quotes: of the silence in milliseconds, and of the keepalives in seconds.
    fn numbers(text: &str) -> Vec<u64> {
        let quoted = text.split('\'').skip(1).step_by(2);
        quoted.filter_map(|text| text.parse().ok()).collect()
    }

    #[test]
    fn a_lease_of_weeks_asks_for_no_silence_that_a_server_cannot_bear() {
        let day = Duration::from_secs(86_400);
        for lease in [day, day * 2, day * 30] {
            let span = span(lease);
            assert!(span >= day);
            let [silence, of_tcp, probes, keepalive] = numbers(&bear(span))[..] else {
                panic!("{}", bear(span));
            };
            assert_eq!(
                [silence, of_tcp],
                [u64::try_from(span.as_millis()).unwrap(); 2]
            );
            assert!(i32::try_from(silence).is_ok(), "{silence}");
            assert!(keepalive <= 32_767, "{keepalive}");
            // A machine that does not answer is given up after the keepalive and the probes.
            assert!(Duration::from_secs(keepalive * (1 + probes)) >= span);
        }
    }
}
