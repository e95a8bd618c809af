//! Settings of the hand-off: how often and how long a lock passes between tasks of one process.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::options;

/// Limits for the hand-off, which passes a lock between the tasks of one client without a round trip to the store.
///
/// Of the tasks that wait for one name, one (the leader) asks the store; the others wait behind it in a local queue,
/// first come, first served. A released lock goes to the next task in the queue at memory speed, up to a number of
/// times and for a limited time in a row. Then the client releases it in the store, so that other processes can acquire
/// it. Each holder has its own guard, loss signal and fencing token.
///
/// After that release the client waits before it asks the store again; otherwise it would always be faster than the
/// waiters of other processes. This fairness delay starts at 300 µs or two round trips, whichever is longer. It grows
/// if a waiter elsewhere does not acquire the lock in that time, as a Java service may not, up to a quarter of the time
/// the lock was kept in this process.
///
/// The client hands off only a hold that is renewed (no [`expires_after`](crate::AcquireOptions::expires_after)), while
/// more than a third of its lease is proved, and only to a task that asked for the same lease. It reserves the fencing
/// tokens of later holders with the first grant; tokens that are not used leave a gap. On a store that cannot reserve
/// tokens, locks with tokens are not handed off.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use std::time::Duration;
/// use tidelock::{Client, HandOff};
///
/// let gentle = HandOff::default().times(16).within(Duration::from_millis(2));
/// let client = Client::builder().hand_off(gentle).connect("memory:").await?;
/// let strict = Client::builder().hand_off(HandOff::OFF).connect("memory:").await?; // each turn is the store's
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct HandOff {
    pub(crate) times: u32,
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub(crate) within: Duration,
}

impl HandOff {
    /// Every release goes to the store.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{Client, HandOff};
    ///
    /// let strict = Client::builder().hand_off(HandOff::OFF).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub const OFF: Self = Self {
        times: 0,
        within: Duration::ZERO,
    };

    /// The most hand-offs in a row. Zero switches hand-off off. Default 1000.
    ///
    /// # Examples
    /// ```
    /// use tidelock::HandOff;
    ///
    /// let gentle = HandOff::default().times(16);
    /// assert_eq!(HandOff::default().times(1000), HandOff::default());
    /// ```
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// How long after the store's grant the client may still hand off the lock. Another process waits at most this
    /// long, plus the rest of the hold that has begun by then. Default 10 ms.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::HandOff;
    ///
    /// let gentle = HandOff::default().within(Duration::from_millis(2));
    /// assert_ne!(gentle, HandOff::default()); // which is 10 ms
    /// ```
    #[must_use]
    pub const fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    pub(crate) fn check(self) -> Result<()> {
        // Zero is valid here: the first release then goes to the store.
        options::within("hand_off within", self.within, Duration::ZERO)?;
        if self.times > MAX_HAND_OFFS {
            return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                "hand_off allows {} hand-offs in a row; the maximum is {MAX_HAND_OFFS}, because the client reserves a fencing token for each",
                self.times
            )));
        }
        Ok(())
    }
}

/// Bounds the number of hand-offs, because the client reserves one fencing token for each.
const MAX_HAND_OFFS: u32 = 1_000_000;

impl Default for HandOff {
    fn default() -> Self {
        Self {
            times: 1000,
            within: Duration::from_millis(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_accepted_up_to_the_number_of_tokens_that_a_client_reserves() {
        let most = HandOff::OFF.times(MAX_HAND_OFFS);
        for good in [HandOff::OFF, HandOff::default(), most] {
            assert!(good.check().is_ok(), "{good:?}");
        }
        let more = most.times(MAX_HAND_OFFS + 1);
        for bad in [more, HandOff::OFF.within(Duration::MAX)] {
            let error = bad.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{bad:?}");
        }
    }
}
