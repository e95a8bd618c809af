//! The server run behind a connection: its `run_id` and uptime. We ask once per connection, because a server that
//! restarts ends its connections. If locks may be granted on other connections too, we ask each time.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{BootInstant, Incarnation};

/// The reply to `INFO server`, and when it arrived.
#[derive(Debug, Clone)]
pub(crate) struct ServerRun {
    id: Arc<str>,
    /// A lower bound of the uptime at `heard`.
    up: Duration,
    heard: BootInstant,
}

impl ServerRun {
    /// The server run at that time, if it has not ended.
    pub(crate) fn by(&self, now: BootInstant) -> Incarnation {
        Incarnation {
            id: Arc::clone(&self.id),
            // Saturating, because the server may report any number.
            up: self.up.saturating_add(now.since(self.heard)),
        }
    }
}

pub(crate) fn read(info: &str, heard: BootInstant) -> Option<ServerRun> {
    let field = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    // The server subtracts whole seconds: a server that started at 0.9 s reports 1 at 1.0 s. So we subtract one second.
    // Otherwise a restarted server would vote before the leases that it has forgotten have expired.
    //
    // The number is negative if the server's wall clock was set back by more than it has been up. `i128` has room for that and for
    // every `u64`.
    let told: i128 = field("uptime_in_seconds")?.trim().parse().ok()?;
    let told = u64::try_from(told.max(0)).unwrap_or(u64::MAX);
    Some(ServerRun {
        id: field("run_id")?.trim().into(),
        up: Duration::from_secs(told.saturating_sub(1)),
        heard,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t39_a_server_is_never_taken_for_older_than_it_is() {
        let heard = BootInstant::from_nanos(7);
        for (told, least) in [(-7, 0), (0, 0), (1, 0), (12, 11)] {
            let info = format!("run_id:abc\r\nuptime_in_seconds:{told}\r\n");
            assert_eq!(read(&info, heard).unwrap().by(heard).up.as_secs(), least);
        }
    }

    #[test]
    fn a_missing_field_is_not_invented() {
        let heard = BootInstant::from_nanos(7);
        let info = "# Server\r\nredis_version:8.0.2\r\nrun_id:abc\r\nuptime_in_seconds:12\r\n";
        let server_run = read(info, heard).unwrap();
        assert_eq!(&*server_run.id, "abc");
        let ancient = read("run_id:a\nuptime_in_seconds:18446744073709551615", heard).unwrap();
        assert_eq!(ancient.by(BootInstant::FAR).up, Duration::MAX);
        assert!(read("run_id:abc\r\n", heard).is_none());
        assert!(read("uptime_in_seconds:12\r\nrun_id_of_another:abc", heard).is_none());
    }
}
