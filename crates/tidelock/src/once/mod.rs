//! Jobs that run once per slot, on whichever process comes first.
//!
//! A lock alone cannot do this: once a fast job has released it, a process that comes a moment later acquires it and
//! runs the job again. So the store keeps a [`Mark`] for each slot, which says what the job of that slot did. [`OnceJob::run`]
//! takes the lock of the job's name with a fencing token, reads the mark, and writes it:
//!
//! ```text
//!   absent ──begin──► running(attempt 1) ──end──► done
//!                        │ │                  └─► failed ──begin──► running(attempt 2) …
//!                        │ └──process died: lock expires──begin──► running(attempt 2) …
//! ```
//!
//! 1. A mark is replaced only by compare-and-set, by a holder of the lock. The marks of two attempts differ, because
//!    each contains the fencing token and the owner of its attempt. A holder that reads a mark with a larger token than its
//!    own asks the store whether it still holds the lock before it replaces the mark. So a holder that was declared dead
//!    cannot overwrite the mark of its successor.
//! 2. We write `running` before the job and `done` after it, and release the lock only after `done` is confirmed.
//!    Otherwise the next process would find the lock free and no mark.
//! 3. A slot is computed from the store's clock, so that processes with other clocks compute the same one.

mod attempt;
mod mark;
mod own_run;
mod register;
mod retry;
mod run;
mod slot;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::attempt::{Begun, OnceAttempt, SlotRun};
pub use self::mark::{Mark, MarkState};
pub use self::retry::Retry;
pub use self::run::Once;
pub use self::slot::Slot;

use crate::engine::ClientInner;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::{FencedLock, Lock};
use crate::options;
use crate::store::LockKind;

/// How long the store keeps the mark of a slot, unless [`OnceJob::keep`] says otherwise.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// A job that runs once per slot: [`Client::once`](crate::Client::once) makes it. Cheap to clone.
///
/// *Promise*: at least once per slot in which somebody calls [`run`](Self::run) and an attempt succeeds; at most once,
/// unless a holder was declared dead while it still ran, or the store lost the mark. Pass [`SlotRun::token`] to the
/// resource to exclude the first; a slot whose mark was lost is run again all the same. A mark on Redis waits for as many
/// replicas as [`ClientBuilder::acknowledge`](crate::ClientBuilder::acknowledge) says; with
/// [`ReplicaAck::All`](crate::ReplicaAck::All) a failover loses none that [`run`](Self::run) has confirmed.
///
/// The job holds the [fenced lock](crate::FencedLock) of its name while it runs. Two runs of one name never overlap,
/// also of different slots, and a Java service that holds `getLock(name)` keeps the job from running. A call meanwhile
/// returns [`Once::Running`], also if the run is of another slot: if no later call comes in its slot, that slot is not run.
/// [`wait`](Self::wait) prevents that.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use std::time::Duration;
/// use tidelock::once::{Once, Slot};
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let report = client
///     .once("report")
///     .slot(Slot::every(Duration::from_secs(3600)))
///     .max_run(Duration::from_secs(20 * 60));
/// for _ in 0..2 { // two replicas, or one ticker that fires twice
///     match report.run(|run| async move { write_report(run.slot()).await }).await? {
///         Once::Ran(lines) => println!("wrote {lines} lines"),
///         Once::Done(mark) => println!("{:?} before by {:?}", mark.state, mark.process),
///         Once::Running(holder) => println!("running now: {holder:?}"),
///         Once::Failed(error) => eprintln!("the report failed: {error}"),
///     }
/// }
/// # async fn write_report(_slot: &str) -> std::io::Result<u32> { Ok(3) }
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "call `run`"]
pub struct OnceJob {
    lock: FencedLock,
    slot: Slot,
    max_run: Option<Duration>,
    retry: Retry,
    keep: Duration,
    wait: Option<Duration>,
}

impl OnceJob {
    pub(crate) fn new(core: &Arc<ClientInner>, name: &str) -> Self {
        Self {
            lock: Lock::new(core, LockKind::Mutex, name).fenced(),
            slot: Slot::id("once"),
            max_run: None,
            retry: Retry::InSlot(2),
            keep: KEEP,
            wait: None,
        }
    }

    /// Which slot a call belongs to. Default: one slot for all calls, so the job runs once until its mark
    /// [expires](Self::keep).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::once::Slot;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let import = client.once("import").slot(Slot::id("orders-17.csv"));
    /// import.run(|_| async { Ok::<_, std::io::Error>(()) }).await?;
    /// # Ok(()) }
    /// ```
    pub fn slot(mut self, slot: Slot) -> Self {
        self.slot = slot;
        self
    }

    /// Bounds how long the job may run, in wall time from its start. A job that runs longer is dropped, its slot is
    /// marked as failed, and [`run`](Self::run) returns [`Lost`](ErrorKind::Lost) with
    /// [`MaxHold`](crate::LostReason::MaxHold). Default: no bound.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::LostReason;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let report = client.once("report").max_run(Duration::from_millis(20));
    /// let endless = report.run(|_| std::future::pending::<std::io::Result<()>>());
    /// let error = endless.await.unwrap_err();
    /// assert_eq!(error.lost_reason(), Some(LostReason::MaxHold));
    /// # Ok(()) }
    /// ```
    pub fn max_run(mut self, limit: Duration) -> Self {
        self.max_run = Some(limit);
        self
    }

    /// What a later call does in a slot whose attempt crashed or failed. Default: two more attempts. Nothing calls by
    /// itself: the next attempt is made by the next call, or by one that [waits](Self::wait).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::once::{Once, Retry};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let mail = client.once("mail").if_crashed(Retry::InSlot(1));
    /// for attempt in 1..=2 {
    ///     let failed = mail.run(|run| async move { Err::<(), _>(run.attempt()) }).await?;
    ///     assert_eq!(failed, Once::Failed(attempt));
    /// }
    /// let third = mail.run(|_| async { Ok::<_, u32>(()) }).await?;
    /// assert!(matches!(third, Once::Done(_)));
    /// # Ok(()) }
    /// ```
    pub fn if_crashed(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// How long the store keeps the mark of a slot after its last change. Default: seven days. A slot whose mark has
    /// expired counts as one that never ran, so this must be longer than a slot lasts, and than a run takes: a longer
    /// [`max_run`](Self::max_run) is refused. The mark of a [crontab line](Slot::cron) is kept until its next time in any
    /// case, and its [`max_run`](Self::max_run) is compared with that.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::once::Slot;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let month = Duration::from_secs(31 * 24 * 3600);
    /// let invoices = client.once("invoices").slot(Slot::id("2026-11")).keep(2 * month);
    /// invoices.run(|_| async { Ok::<_, std::io::Error>(()) }).await?;
    /// # Ok(()) }
    /// ```
    pub fn keep(mut self, time: Duration) -> Self {
        self.keep = time;
        self
    }

    /// Waits up to this long for a run on another process to end, and takes over if that process dies. If it has not ended
    /// by then, [`run`](Self::run) returns [`Once::Running`]. Default: does not wait.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use std::time::Duration;
    /// use tidelock::once::{MarkState, Once};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let migrate = client.once("migrate-7").wait(Duration::from_secs(60));
    /// // Every replica calls it as it starts, and goes on when the migration is done.
    /// let is_done = match migrate.run(|_| async { Ok::<_, std::io::Error>(()) }).await? {
    ///     Once::Ran(()) => true,
    ///     Once::Done(mark) => mark.state == MarkState::Done, // otherwise no attempt has succeeded
    ///     Once::Running(_) | Once::Failed(_) => false,
    /// };
    /// assert!(is_done);
    /// # Ok(()) }
    /// ```
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// The name of the job and of its lock, prefix included.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::builder().prefix("shop:").connect("memory:").await?;
    /// assert_eq!(client.once("report").name(), "shop:report");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// The marks of this job, the newest first; at most `limit`. On Redis, a job with more than 1000 marks has those first
    /// that are kept longest: the newest, unless [`keep`](Self::keep) was lowered.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) before any traffic, if the store keeps no marks.
    /// [`Unavailable`](ErrorKind::Unavailable), [`Refused`](ErrorKind::Refused), [`WrongType`](ErrorKind::WrongType),
    /// [`InvalidName`](ErrorKind::InvalidName), [`Closed`](ErrorKind::Closed).
    ///
    /// # Cancel safety
    /// Cancel safe; it only reads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::once::{MarkState, Slot};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let import = client.once("import").slot(Slot::id("orders-17.csv"));
    /// import.run(|_| async { Ok::<_, std::io::Error>(()) }).await?;
    /// let marks = import.history(10).await?;
    /// assert_eq!((&*marks[0].slot, marks[0].state), ("orders-17.csv", MarkState::Done));
    /// # Ok(()) }
    /// ```
    pub async fn history(&self, limit: u32) -> Result<Vec<Mark>> {
        let name = self.lock.checked_name()?;
        let marks = async { self.register(&name)?.history(limit).await };
        marks.await.map_err(|error| error.on_lock(&name))
    }

    fn check(&self) -> Result<()> {
        let least = Duration::from_millis(1);
        options::within("keep", self.keep, least)?;
        if let Some(limit) = self.max_run {
            options::within("max_run", limit, least)?;
        }
        let keep = self.keep;
        if let Some(length) = self.slot.length()
            && length > keep
        {
            return Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                "a slot of {length:?} is longer than its mark is kept ({keep:?}), so the job would run twice; set keep to more"
            )));
        }
        if self.slot.is_of_any_length() {
            return Ok(());
        }
        self.check_run(keep)
    }

    /// Refuses a run that may outlive its mark. `kept`: how long the store keeps the mark of the slot, which is longer than
    /// `keep` for a long slot of a crontab line.
    fn check_run(&self, kept: Duration) -> Result<()> {
        match self.max_run {
            Some(limit) if limit > kept => {
                Err(Error::new(ErrorKind::InvalidOptions).because(format!(
                    "a run of {limit:?}, as max_run allows, is longer than its mark is kept ({kept:?}), so a crash would not be counted; set keep to more"
                )))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for OnceJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceJob")
            .field("name", &self.name())
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;

    #[tokio::test]
    async fn a_mark_is_kept_for_the_slot_and_for_the_longest_run_at_least() {
        let client = Client::connect("memory:").await.unwrap();
        let job = || client.once("report").keep(Duration::from_secs(60));
        let (minute, longer) = (Duration::from_secs(60), Duration::from_millis(60_001));
        for good in [
            job().slot(Slot::every(minute)).max_run(minute),
            job().slot(Slot::id("today")).max_run(minute),
            job().keep(Duration::from_millis(1)),
        ] {
            assert!(good.check().is_ok(), "{good:?}");
        }
        for bad in [
            job().slot(Slot::every(longer)),
            job().max_run(longer),
            job().max_run(Duration::from_micros(999)),
            job().keep(Duration::from_micros(999)),
        ] {
            let error = bad.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{error}");
        }
    }
}
