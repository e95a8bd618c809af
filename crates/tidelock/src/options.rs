//! Options of one acquisition, where they differ from the client's defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;

use crate::acknowledge::ReplicaAck;
use crate::engine::runtime::event::Flag;
use crate::error::{Error, ErrorKind, Result};
use crate::owner::Owner;
use crate::store::BoxFuture;
use crate::types::{Drift, LockKind};

/// Bounds every duration. A longer one is a mistake in units, not a lease.
const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// How long to wait, how long to hold, and which owner acquires. An option that is not set has the client's default.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tidelock::AcquireOptions;
///
/// let patient = AcquireOptions::new().wait(Duration::from_secs(5));
/// let fixed = AcquireOptions::new().expires_after(Duration::from_secs(60)); // ends then, is never renewed
/// ```
///
/// With the feature `serde` a configuration file can hold them, with durations such as `"1m 30s"`; an owner and what
/// cancels the wait are not written:
///
#[cfg_attr(feature = "serde", doc = "```")]
#[cfg_attr(not(feature = "serde"), doc = "```ignore")]
/// let options: tidelock::AcquireOptions = serde_json::from_str(r#"{"wait": "5s", "max_hold": "1h"}"#)?;
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[must_use = "options do nothing until they are given to `acquire_with`"]
pub struct AcquireOptions {
    #[cfg_attr(
        feature = "serde",
        serde(
            with = "crate::serde_text::optional_duration",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub(crate) wait: Option<Duration>,
    #[cfg_attr(
        feature = "serde",
        serde(
            with = "crate::serde_text::optional_duration",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub(crate) lease: Option<Duration>,
    #[cfg_attr(
        feature = "serde",
        serde(
            with = "crate::serde_text::optional_duration",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub(crate) expires_after: Option<Duration>,
    #[cfg_attr(
        feature = "serde",
        serde(
            with = "crate::serde_text::optional_duration",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub(crate) max_hold: Option<Duration>,
    #[cfg_attr(
        feature = "serde",
        serde(
            with = "crate::serde_text::optional_duration",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub(crate) lock_delay: Option<Duration>,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) owner: Option<Owner>,
    /// The caller expects to wait long, as a candidate of an election does. So a long wait is not logged as slow.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) waits_long: bool,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) cancel: Option<Cancellation>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub(crate) acknowledge: Option<ReplicaAck>,
}

impl AcquireOptions {
    /// The client's defaults: wait without a limit, hold until released.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let guard = client.lock("job").acquire_with(AcquireOptions::new()).await?; // as `acquire` does
    /// assert!(guard.is_held());
    /// # Ok(()) }
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives up after this time; zero makes a single attempt. Unset: waits without a limit.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let held = client.lock("job").acquire().await?;
    /// let briefly = AcquireOptions::new().wait(Duration::from_millis(5));
    /// assert!(client.lock("job").acquire_with(briefly).await.unwrap_err().is_timeout());
    /// # Ok(()) }
    /// ```
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// The length of the lease, which the client renews every third of it while the guard lives. When the process dies,
    /// others get the lock after this time at the latest. Unset: the client's lease, 30 s by default.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let short = AcquireOptions::new().lease(Duration::from_secs(6)); // renewed every 2 s
    /// let guard = client.lock("leader").acquire_with(short).await?;
    /// assert!(guard.valid_for() <= Duration::from_secs(6));
    /// # Ok(()) }
    /// ```
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = Some(length);
        self
    }

    /// The hold ends after this time and is never renewed (Redisson's `leaseTime`). Cannot be combined with
    /// [`lease`](Self::lease).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{AcquireOptions, LostReason};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let fixed = AcquireOptions::new().expires_after(Duration::from_millis(100));
    /// let guard = client.lock("import").acquire_with(fixed).await?;
    /// assert_eq!(guard.lost().await, LostReason::Expired);
    /// # Ok(()) }
    /// ```
    pub fn expires_after(mut self, time: Duration) -> Self {
        self.expires_after = Some(time);
        self
    }

    /// Limits the whole hold, renewals included. At the limit [`lost`](crate::Guard::lost) fires with
    /// [`MaxHold`](crate::LostReason::MaxHold) and the lease runs out. Use it against work that hangs while its lock is
    /// renewed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::{AcquireOptions, LostReason};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let briefly = AcquireOptions::new().max_hold(Duration::from_millis(50));
    /// let guard = client.lock("report").acquire_with(briefly).await?;
    /// assert_eq!(guard.lost().await, LostReason::MaxHold);
    /// # Ok(()) }
    /// ```
    pub fn max_hold(mut self, cap: Duration) -> Self {
        self.max_hold = Some(cap);
        self
    }

    /// When this hold ends without a release (its process died or was cut off, or its lease ran out), the store grants
    /// the lock to nobody for this additional time. So requests that the dead holder had in flight can arrive before
    /// the next holder begins. A release, a dropped guard and a force release hand the lock over at once. Unset: no
    /// delay.
    ///
    /// Works on etcd, ZooKeeper and `memory:`. On other stores `acquire` fails with
    /// [`Unsupported`](ErrorKind::Unsupported) before any traffic.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::AcquireOptions;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let careful = AcquireOptions::new().lock_delay(Duration::from_secs(30));
    /// let guard = client.lock("primary").acquire_with(careful).await?;
    /// guard.release().await?; // in good order: no delay
    /// assert!(client.lock("primary").try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn lock_delay(mut self, time: Duration) -> Self {
        self.lock_delay = Some(time);
        self
    }

    /// Acquires as this owner, which re-enters a lock that it already holds. Unset: a fresh owner, which excludes all
    /// others.
    ///
    /// The acquisitions of one owner for one lock take turns, so that each re-enters what the one before it gets. One that is
    /// kept and not polled for a third of the lease while others wait for it is passed over. From then on it excludes the others, as
    /// that of another owner does.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{AcquireOptions, Owner};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let (job, me) = (client.lock("job"), Owner::new());
    /// let mine = || AcquireOptions::new().owner(&me);
    /// let outer = job.acquire_with(mine()).await?;
    /// let inner = job.acquire_with(mine()).await?; // at once, without a trip
    /// assert_eq!(inner.owner_id(), outer.owner_id());
    /// # Ok(()) }
    /// ```
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Stops waiting with [`ErrorKind::Cancelled`] when the token is cancelled, from any thread. Async callers can also
    /// drop the future.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{AcquireOptions, CancelToken, ErrorKind};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let held = client.lock("job").acquire().await?;
    /// let cancel = CancelToken::new();
    /// let waiting = client.lock("job").acquire_with(AcquireOptions::new().cancel(&cancel));
    /// cancel.cancel();
    /// assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Cancelled);
    /// # Ok(()) }
    /// ```
    pub fn cancel(self, cancel: &CancelToken) -> Self {
        self.cancel_when(cancel.clone().cancelled())
    }

    /// Stops waiting with [`ErrorKind::Cancelled`] when this future completes: a shutdown signal, a receiver, or the
    /// `cancelled_owned()` of a `CancellationToken` of tokio-util. Replaces an earlier [`cancel`](Self::cancel). Clones
    /// of the options share the future.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{AcquireOptions, ErrorKind};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let held = client.lock("job").acquire().await?;
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// let options = AcquireOptions::new().cancel_when(async { drop(stopped.await) });
    /// let waiting = client.lock("job").acquire_with(options);
    /// drop(stop);
    /// assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Cancelled);
    /// # Ok(()) }
    /// ```
    pub fn cancel_when(mut self, cancelled: impl Future<Output = ()> + Send + 'static) -> Self {
        let cancelled: BoxFuture<'static, ()> = Box::pin(cancelled);
        self.cancel = Some(cancelled.shared());
        self
    }

    /// How many replicas must acknowledge the grant and each of its renewals. Unset: the client's policy,
    /// [`ReplicaAck::Any`] by default.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::{ReplicaAck, AcquireOptions};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let careful = AcquireOptions::new().acknowledge(ReplicaAck::All);
    /// let guard = client.lock("ledger").acquire_with(careful).await?;
    /// assert!(guard.is_held()); // a store without replicas fulfils every policy
    /// # Ok(()) }
    /// ```
    pub fn acknowledge(mut self, policy: ReplicaAck) -> Self {
        self.acknowledge = Some(policy);
        self
    }

    /// Checks the durations, and returns the length of the lease and whether it is renewed.
    pub(crate) fn term(&self, default_lease: Duration, drift: &Drift) -> Result<Term> {
        if let Some(wait) = self.wait {
            within("wait", wait, Duration::ZERO)?;
        }
        if let Some(cap) = self.max_hold {
            within("max_hold", cap, Duration::from_millis(1))?;
        }
        if let Some(delay) = self.lock_delay {
            within("lock_delay", delay, Duration::ZERO)?;
        }
        let (what, length, renewed) = match (self.lease, self.expires_after) {
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "set either lease, which is renewed, or expires_after, which is not".to_owned(),
                ));
            }
            (None, Some(length)) => ("expires_after", length, false),
            (Some(length), None) => ("lease", length, true),
            (None, None) => ("lease", default_lease, true),
        };
        check_lease(what, length, drift)?;
        Ok(Term { length, renewed })
    }
}

/// Bounds the permits of one acquisition. Each has an id in the store, and a script of Redis handles all of them.
const MOST_PERMITS: u16 = 1000;

impl AcquireOptions {
    /// Refuses a number of permits that is out of range, and an owner of permits: an owner re-enters its hold, and
    /// permits are not re-entered.
    pub(crate) fn check_permits(&self, kind: LockKind) -> Result<()> {
        let LockKind::Permits(count) = kind else {
            return Ok(());
        };
        if !(1..=MOST_PERMITS).contains(&count) {
            return Err(invalid(format!(
                "an acquisition takes 1 to {MOST_PERMITS} permits, not {count}"
            )));
        }
        if self.owner.is_some() {
            return Err(invalid(
                "permits have no owner that could re-enter them; leave out the owner".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Refuses a lease that is too short to prove anything.
pub(crate) fn check_lease(what: &str, length: Duration, drift: &Drift) -> Result<()> {
    within(what, length, Duration::from_millis(1))?;
    if drift.proved(length).is_zero() {
        return Err(invalid(format!(
            "{what} of {length:?} is not longer than the allowance for clock drift, so the lock could never be proved; set a longer one"
        )));
    }
    Ok(())
}

/// Refuses durations that are probably a mistake in units.
pub(crate) fn within(what: &str, given: Duration, least: Duration) -> Result<()> {
    if given < least {
        return Err(invalid(format!(
            "{what} of {given:?} is too short; the minimum is {least:?}"
        )));
    }
    if given > MAX_DURATION {
        return Err(invalid(format!(
            "{what} of {} s is longer than a year; check the unit",
            given.as_secs()
        )));
    }
    Ok(())
}

fn invalid(detail: String) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(detail)
}

/// The length of a lease and whether it is renewed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    pub(crate) length: Duration,
    pub(crate) renewed: bool,
}

/// What stops a wait. Clones share one future.
pub(crate) type Cancellation = Shared<BoxFuture<'static, ()>>;

/// Stops a wait from another task or thread. Cheap to clone; all clones are the same token.
///
/// # Examples
/// ```
/// use tidelock::{AcquireOptions, CancelToken};
///
/// let cancel = CancelToken::new();
/// let options = AcquireOptions::new().cancel(&cancel);
/// cancel.cancel(); // an acquire with these options fails with `Cancelled`
/// ```
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Flag>);

impl CancelToken {
    /// A token that is not cancelled.
    ///
    /// # Examples
    /// ```
    /// use tidelock::CancelToken;
    ///
    /// let cancel = CancelToken::new();
    /// assert!(!cancel.is_cancelled());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops every acquisition that waits with this token, and every later one. Calling it again has no effect.
    ///
    /// # Examples
    /// ```
    /// use tidelock::CancelToken;
    ///
    /// let cancel = CancelToken::new();
    /// let elsewhere = cancel.clone();
    /// std::thread::spawn(move || elsewhere.cancel()).join().unwrap();
    /// assert!(cancel.is_cancelled());
    /// ```
    pub fn cancel(&self) {
        self.0.set();
    }

    /// Whether the token was cancelled.
    ///
    /// # Examples
    /// ```
    /// use tidelock::CancelToken;
    ///
    /// let cancel = CancelToken::new();
    /// cancel.cancel();
    /// cancel.cancel(); // as often as you like
    /// assert!(cancel.is_cancelled());
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.0.is_set()
    }

    /// Resolves when the token is cancelled.
    pub(crate) async fn cancelled(self) {
        self.0.happened().await;
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("cancelled", &self.is_cancelled())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &AcquireOptions) -> bool {
        options
            .term(Duration::from_secs(30), &Drift::default())
            .is_err_and(|e| e.kind() == ErrorKind::InvalidOptions)
    }

    #[test]
    fn durations_that_make_no_sense_are_refused() {
        let ns = Duration::from_nanos(999_999);
        for bad in [Duration::ZERO, ns, Duration::from_millis(2), Duration::MAX] {
            assert!(refused(&AcquireOptions::new().lease(bad)), "{bad:?}");
            assert!(
                refused(&AcquireOptions::new().expires_after(bad)),
                "{bad:?}"
            );
        }
        assert!(refused(&AcquireOptions::new().max_hold(Duration::ZERO)));
        assert!(refused(&AcquireOptions::new().wait(Duration::MAX)));
        assert!(refused(&AcquireOptions::new().lock_delay(Duration::MAX)));
        let second = Duration::from_secs(1);
        assert!(refused(
            &AcquireOptions::new().lease(second).expires_after(second)
        ));
        assert!(!refused(
            &AcquireOptions::new().wait(Duration::ZERO).lease(second)
        ));
    }

    #[test]
    fn the_shortest_and_the_longest_durations_are_accepted() {
        let (short, year) = (Duration::from_millis(1), MAX_DURATION);
        let drift = Drift {
            share: 0.0,
            fixed: Duration::ZERO,
        };
        for good in [
            AcquireOptions::new().max_hold(short).lease(short),
            AcquireOptions::new()
                .wait(year)
                .lock_delay(year)
                .lease(year),
            AcquireOptions::new().expires_after(year).max_hold(year),
        ] {
            let term = good.term(short, &drift);
            assert!(term.is_ok(), "{good:?}: {term:?}");
        }
        let longer = year + Duration::from_nanos(1);
        for bad in [
            AcquireOptions::new().wait(longer),
            AcquireOptions::new().max_hold(longer),
            AcquireOptions::new().lock_delay(longer),
            AcquireOptions::new().lease(longer),
            AcquireOptions::new().expires_after(longer),
        ] {
            assert!(refused(&bad), "{bad:?}");
        }
    }

    #[test]
    fn a_lease_is_renewed_unless_it_expires() {
        let (own, default) = (Duration::from_secs(5), Duration::from_secs(30));
        for (options, length, renewed) in [
            (AcquireOptions::new(), default, true),
            (AcquireOptions::new().lease(own), own, true),
            (AcquireOptions::new().expires_after(own), own, false),
        ] {
            let term = options.term(default, &Drift::default()).unwrap();
            assert_eq!((term.length, term.renewed), (length, renewed));
        }
    }

    #[test]
    fn an_acquisition_takes_one_to_a_thousand_permits_without_an_owner() {
        let (none, owned) = (
            AcquireOptions::new(),
            AcquireOptions::new().owner(&Owner::new()),
        );
        for count in [1, MOST_PERMITS] {
            assert!(none.check_permits(LockKind::Permits(count)).is_ok());
            assert!(owned.check_permits(LockKind::Permits(count)).is_err());
        }
        for count in [0, MOST_PERMITS + 1, u16::MAX] {
            assert!(none.check_permits(LockKind::Permits(count)).is_err());
        }
        assert!(owned.check_permits(LockKind::Mutex).is_ok());
    }

    #[test]
    fn a_lease_is_proved_less_drift() {
        let proved = Drift::default().proved(Duration::from_secs(30));
        assert_eq!(proved, Duration::from_millis(30_000 - 300 - 2));
    }
}
