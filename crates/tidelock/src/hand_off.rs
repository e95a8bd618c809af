//! How long a lock stays within a process while others wait for it there.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::options;

/// How a lock passes between the tasks of one client without a trip to the store.
///
/// Of the tasks that wait for one name, one asks the store; the others stand in line behind it, first come, first served.
/// A released lock goes to the next in line at memory speed, so many times or for so long in a row; then it is released in
/// the store, where other processes get their turn. Each holder has its own guard, loss signal and fencing token.
///
/// Then whoever waits elsewhere has time to come before this client asks again: 300 µs or two trips at first, and longer where
/// somebody who waits has not come in that, as a Java service may not, up to a quarter of the time the lock was kept here.
///
/// It passes on only what is renewed (no [`expires_after`](crate::AcquireOptions::expires_after)), while more than a third
/// of the lease is proved, and to a task that asked for the same lease. Tokens for those who come next are reserved with
/// the first; what is not used leaves a gap. Where a store cannot reserve tokens, locks with tokens are not handed on.
///
/// # Examples
/// ```
/// # async fn f() -> tidelock::Result<()> {
/// use std::time::Duration;
/// use tidelock::{Client, HandOff};
///
/// let gentle = HandOff::default().times(16).within(Duration::from_millis(2));
/// let client = Client::builder().hand_off(gentle).connect("memory:").await?;
/// let strict = Client::builder().hand_off(HandOff::OFF).connect("memory:").await?; // each turn is the store's
/// # let _ = (client, strict);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandOff {
    pub(crate) times: u32,
    pub(crate) within: Duration,
}

impl HandOff {
    /// Every release goes to the store.
    ///
    /// # Examples
    /// ```
    /// # async fn f() -> tidelock::Result<()> {
    /// use tidelock::{Client, HandOff};
    ///
    /// let strict = Client::builder().hand_off(HandOff::OFF).connect("memory:").await?;
    /// # drop(strict);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f()).unwrap();
    /// ```
    pub const OFF: Self = Self {
        times: 0,
        within: Duration::ZERO,
    };

    /// At most so many times in a row. Zero switches it off. Default 1000.
    ///
    /// # Examples
    /// ```
    /// use tidelock::HandOff;
    ///
    /// let gentle = HandOff::default().times(16);
    /// assert_eq!(HandOff::default().times(1000), HandOff::default());
    /// # let _ = gentle;
    /// ```
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// No more once this time has passed since the store granted the lock: another process waits that long, and for the
    /// hold that has begun by then. Default 10 ms.
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
        options::within("hand_off within", self.within, Duration::ZERO)?;
        if self.times > MOST {
            return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                "hand_off of {} times in a row; {MOST} is the most, because so many fencing tokens are reserved",
                self.times
            )));
        }
        Ok(())
    }
}

/// Tokens are reserved for that many.
const MOST: u32 = 1_000_000;

impl Default for HandOff {
    fn default() -> Self {
        Self {
            times: 1000,
            within: Duration::from_millis(10),
        }
    }
}
