//! How often a viewer that stays looks at the store.

use std::time::Duration;

use tidelock::Client;
use tokio::time::Instant;

use crate::exit::Outcome;
use crate::top::look::look;
use crate::top::picture::Picture;
use crate::top::{Asked, SHORTEST};

/// The interval between two looks is at least this many times as long as a look took. Otherwise a viewer would be a load on
/// a slow store.
const REST: u32 = 10;

/// But no longer than this: an operator looks at a slow store because it is slow.
const LONGEST_REST: Duration = Duration::from_secs(15);

/// Looks at one store, one picture after the other.
#[derive(Debug)]
pub(crate) struct Looks<'a> {
    client: &'a Client,
    prefix: &'a str,
    every: Duration,
    asked: Asked,
}

impl<'a> Looks<'a> {
    pub(crate) fn new(client: &'a Client, prefix: &'a str, every: Duration) -> Self {
        Self {
            client,
            prefix,
            every: every.max(SHORTEST),
            asked: Asked::default(),
        }
    }

    /// Looks once. Also returns when to look again.
    pub(crate) async fn look(&mut self) -> (Outcome<Picture>, Instant) {
        // Without the right to ask, the processes tell every ten seconds.
        let _ = self.asked.again(self.client).await;
        let begun = Instant::now();
        let seen = look(self.client, self.prefix).await;
        let ended = Instant::now();
        let next = match seen {
            Ok(_) => begun + between(self.every, ended - begun),
            // A store that answers again is seen at once, and a failed look was not much of a load.
            Err(_) => ended + self.every,
        };
        (seen, next)
    }
}

/// The time from the begin of one look to the next, if one took so long.
fn between(every: Duration, took: Duration) -> Duration {
    every.max(took.saturating_mul(REST).min(LONGEST_REST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_store_is_asked_less_often() {
        let seconds = Duration::from_secs;
        assert_eq!(between(seconds(2), seconds(0)), seconds(2));
        assert_eq!(between(seconds(2), seconds(1)), seconds(10));
        assert_eq!(between(seconds(2), seconds(3)), seconds(15));
        assert_eq!(between(seconds(60), seconds(3)), seconds(60));
    }
}
