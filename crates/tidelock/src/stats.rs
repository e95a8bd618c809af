//! The counters of a client, as plain numbers.

use std::time::Duration;

use crate::types::LostReason;

/// What a client has counted since it connected. See [`Client::stats`](crate::Client::stats).
///
/// Every number is a total since the client connected, except [`held`](Self::held) and [`waiting`](Self::waiting),
/// which are the present. The numbers are read one after the other while the client works, so two of them may differ
/// by an operation that ends meanwhile.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// let guard = client.lock("stock:42").acquire().await?;
/// let stats = client.stats();
/// assert_eq!((stats.held, stats.acquired_directly), (1, 1));
/// guard.release().await?;
/// assert_eq!(client.stats().held, 0);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Holds that this client has now. Guards of one owner that re-entered share a hold.
    pub held: u64,
    /// Acquire calls that wait now: the store has refused them once, or they wait behind another call of this client.
    pub waiting: u64,
    /// Acquire calls that got the lock with the first answer of the store.
    pub acquired_directly: u64,
    /// Acquire calls that got the lock from the store after a wait.
    pub acquired_after_wait: u64,
    /// Acquire calls that got the lock from another holder of this client, without a request to the store.
    pub handed_over: u64,
    /// Acquire calls of an [`Owner`](crate::Owner) that held the lock already.
    pub reentered: u64,
    /// Calls with a zero wait, such as `try_acquire`, that found the lock held.
    pub busy: u64,
    /// Acquire calls whose wait time ran out.
    pub timed_out: u64,
    /// Acquire calls that were stopped by a [`CancelToken`](crate::CancelToken), or whose future was dropped.
    pub cancelled: u64,
    /// Acquire calls that ended with another error. Calls that were refused because of their own options or the name
    /// are not counted.
    pub failed: u64,
    /// Holds that were lost, by reason. Each reason is listed once, also those that never occurred.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::losses"))]
    pub lost: Vec<(LostReason, u64)>,
    /// Waits that ended because the store reported a release. The waiter then asked the store again.
    pub woken_by_message: u64,
    /// Waits that ended because the time to ask again had come. On a store with messages, many of these mean that
    /// messages are lost.
    pub woken_by_timer: u64,
    /// How many of the woken waiters got the lock with the request that followed.
    pub useful_wakes: u64,
    /// Times that the lock went back to the store although a task of this process waited for it, because the number of
    /// hand-overs was used up ([`HandOff::times`](crate::HandOff::times)).
    pub returned_after_count: u64,
    /// The same, because the time for hand-overs was used up ([`HandOff::within`](crate::HandOff::within)).
    pub returned_after_time: u64,
    /// The same, because the waiter asked for other options, or no fencing token was reserved for it.
    pub returned_in_doubt: u64,
    /// Requests with an unknown outcome or without a caller that were undone in the store.
    pub cleanups_undone: u64,
    /// The same, where the store had nothing to undo.
    pub cleanups_of_nothing: u64,
    /// The same, given up without an answer of the store: such a lock stays until its lease ends.
    pub cleanups_given_up: u64,
    /// Requests to the store that got no answer, or an error.
    pub failed_requests: u64,
    /// How long the calls that got a lock took.
    pub wait: Durations,
    /// How long locks were held, from the grant or hand-over to the release or loss.
    pub hold: Durations,
    /// How much of the lease was left when a renewal was confirmed. Small values come before losses.
    pub lease_margin: Durations,
    /// How long the store took to answer an acquire, a renewal or a release.
    pub store_latency: Durations,
}

impl Stats {
    /// How many holds were lost, for any reason.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire().await?;
    /// client.close(std::time::Duration::ZERO).await; // takes the lock from its guard
    /// assert_eq!(client.stats().losses(), 1);
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub fn losses(&self) -> u64 {
        self.lost.iter().map(|(_, count)| count).sum()
    }

    /// How many acquire calls got the lock, in any way.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// drop(client.lock("job").try_acquire().await?);
    /// assert_eq!(client.stats().acquired(), 1);
    /// # Ok(()) }
    /// ```
    pub fn acquired(&self) -> u64 {
        self.acquired_directly + self.acquired_after_wait + self.handed_over + self.reentered
    }
}

/// A histogram of durations.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// let client = tidelock::Client::connect("memory:").await?;
/// drop(client.lock("job").acquire().await?);
/// let wait = client.stats().wait;
/// assert_eq!(wait.count(), 1);
/// println!("half of the calls took at most {:?}", wait.quantile(0.5));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Durations {
    /// The upper bounds of the buckets, in ascending order. The last bucket, without a bound, has what is longer.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::durations"))]
    pub bounds: &'static [Duration],
    /// The number of durations in each bucket: above the bound before, up to its own. One more than `bounds`.
    pub buckets: Vec<u64>,
    /// The sum of all durations.
    #[cfg_attr(feature = "serde", serde(with = "crate::serde_text::duration"))]
    pub sum: Duration,
}

impl Durations {
    /// How many durations were counted.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert_eq!(client.stats().hold.count(), 0);
    /// # Ok(()) }
    /// ```
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The upper bound of the bucket that contains this quantile, from 0 to 1. `None`: nothing was counted, or the
    /// quantile lies above the last bound.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// assert_eq!(client.stats().wait.quantile(0.99), None); // nothing yet
    /// # Ok(()) }
    /// ```
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        #[allow(
            clippy::cast_precision_loss,
            reason = "exact below 2^53, and a bucket is a rough answer anyway"
        )]
        let wanted = self.count() as f64 * quantile.clamp(0.0, 1.0);
        let mut below = 0;
        for (bound, bucket) in self.bounds.iter().zip(&self.buckets) {
            below += bucket;
            #[allow(clippy::cast_precision_loss, reason = "as above")]
            if below > 0 && below as f64 >= wanted {
                return Some(*bound);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        const BOUNDS: &[Duration] = &[Duration::from_millis(1), Duration::from_millis(10)];
        let durations = |buckets: &[u64]| Durations {
            bounds: BOUNDS,
            buckets: buckets.to_vec(),
            sum: Duration::ZERO,
        };
        let some = durations(&[1, 98, 1]);
        assert_eq!(some.quantile(0.0), Some(BOUNDS[0]));
        assert_eq!(some.quantile(0.01), Some(BOUNDS[0]));
        assert_eq!(some.quantile(0.5), Some(BOUNDS[1]));
        assert_eq!(some.quantile(0.99), Some(BOUNDS[1]));
        assert_eq!(some.quantile(1.0), None, "longer than every bound");
        assert_eq!(durations(&[0, 0, 0]).quantile(0.5), None);
        assert_eq!(some.count(), 100);
    }

    #[test]
    fn each_way_to_a_lock_and_each_reason_of_a_loss_counts() {
        let none = Durations {
            bounds: &[],
            buckets: Vec::new(),
            sum: Duration::ZERO,
        };
        let stats = Stats {
            held: 100,
            waiting: 100,
            acquired_directly: 1,
            acquired_after_wait: 2,
            handed_over: 4,
            reentered: 8,
            busy: 100,
            timed_out: 100,
            cancelled: 100,
            failed: 100,
            lost: vec![(LostReason::Taken, 16), (LostReason::Expired, 32)],
            woken_by_message: 100,
            woken_by_timer: 100,
            useful_wakes: 100,
            returned_after_count: 100,
            returned_after_time: 100,
            returned_in_doubt: 100,
            cleanups_undone: 100,
            cleanups_of_nothing: 100,
            cleanups_given_up: 100,
            failed_requests: 100,
            wait: none.clone(),
            hold: none.clone(),
            lease_margin: none.clone(),
            store_latency: none,
        };
        assert_eq!((stats.acquired(), stats.losses()), (15, 48));
    }
}
