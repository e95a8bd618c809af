//! How often an attempt asks again while another transaction locks the row of its lock.
//!
//! With a fence that transaction is open for long; otherwise it is another request, and over in a moment. The lock is perhaps
//! free then, and a caller that does not wait would be told that somebody has it.

use std::time::Duration;

use crate::store::{AttemptRequest, BootInstant};

/// How often at most. Each time the server waits for the row for `ROW_PATIENCE`.
const MOST: u32 = 5;

pub(crate) struct RowRetry {
    until: BootInstant,
    tries: u32,
}

impl RowRetry {
    /// `limit`: the response timeout. An attempt that is sent late would miss the deadline, in a line of others or while the
    /// server waits for the row. The connection would be given up, and the caller would learn nothing.
    pub(crate) fn new(ask: &AttemptRequest, now: BootInstant, limit: Duration) -> Self {
        let within = if ask.patience.is_zero() {
            ask.time_to_arm(limit / 4)
        } else {
            // It asks again later in any case.
            Duration::ZERO
        };
        Self {
            until: now + within,
            tries: 1,
        }
    }

    /// Whether to ask once more, after the row was locked.
    pub(crate) fn once_more(&mut self, now: BootInstant) -> bool {
        self.tries += 1;
        self.tries <= MOST && now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::schema::ROW_PATIENCE;
    use crate::store::{LockKind, Name, OwnerId, ReplicaAck, Ticket};

    const START: BootInstant = BootInstant(1);

    fn attempt() -> AttemptRequest {
        let ticket = Ticket {
            kind: LockKind::Mutex,
            name: Name::new("stock").unwrap(),
            owner: OwnerId::of_text("a:1"),
        };
        AttemptRequest::once(ticket, Duration::from_secs(30), ReplicaAck::default())
    }

    /// How often a row is asked for that is locked all the time, and when the last answer comes.
    fn asked(ask: &AttemptRequest, limit: Duration) -> (u32, Duration) {
        let mut retry = RowRetry::new(ask, START, limit);
        let each = Duration::from_millis(ROW_PATIENCE.into());
        let mut now = START + each;
        let mut count = 1;
        while retry.once_more(now) {
            count += 1;
            now = now + each;
        }
        (count, now.since(START))
    }

    #[test]
    fn a_row_that_stays_locked_is_asked_for_five_times() {
        let (count, _) = asked(&attempt(), Duration::from_secs(3));
        assert_eq!(count, 5);
    }

    #[test]
    fn the_last_answer_comes_within_the_response_timeout() {
        for millis in 41..1000 {
            let limit = Duration::from_millis(millis);
            let (_, end) = asked(&attempt(), limit);
            assert!(end < limit, "{millis} ms: {end:?}");
        }
    }

    /// A member of a set has a part of the response timeout.
    #[test]
    fn a_member_of_a_set_asks_no_longer_than_its_caller_waits() {
        let ask = AttemptRequest {
            arms_within: Some(Duration::from_millis(25)),
            ..attempt()
        };
        assert_eq!(asked(&ask, Duration::from_secs(3)).0, 1);
    }

    #[test]
    fn an_attempt_that_waits_asks_once() {
        let ask = AttemptRequest {
            patience: Duration::from_secs(1),
            ..attempt()
        };
        assert_eq!(asked(&ask, Duration::from_secs(3)).0, 1);
    }
}
