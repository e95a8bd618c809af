//! An attempt to run a slot: begins under the lock, and ends with a mark before the lock is released.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::engine::runtime::clock::BootInstant;
use crate::error::{Error, ErrorKind, Result};
use crate::fenced::FencedGuard;
use crate::name::Name;
use crate::once::own_run::OwnRun;
use crate::once::register::{MarkRegister, StoredMark};
use crate::once::{Mark, MarkState, OnceJob};
use crate::options::AcquireOptions;
use crate::snapshot::Holder;
use crate::types::{FencingToken, LostReason};

/// What came of [`OnceJob::begin`].
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::once::{Begun, Slot};
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let import = client.once("import").slot(Slot::id("orders-17.csv"));
/// match import.begin().await? {
///     Begun::Attempt(attempt) => attempt.succeed().await?,
///     Begun::Done(mark) => println!("not run again: {mark:?}"),
///     Begun::Running(holder) => println!("it is running: {holder:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "an attempt that is dropped counts as crashed"]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one of it per run of a job"
)]
pub enum Begun {
    /// The slot is this caller's now.
    Attempt(OnceAttempt),
    /// The slot has been run, or has had all its attempts: see [`Once::Done`](crate::once::Once::Done).
    Done(Mark),
    /// Another holder has the lock of the job. `None`: the holders changed so fast that it was not seen.
    Running(Option<Holder>),
}

/// The run of a job: what [`OnceJob::run`] passes to it.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::once::{Slot, SlotRun};
///
/// async fn import(run: SlotRun) -> std::io::Result<()> {
///     println!("{} with token {}, attempt {}", run.slot(), run.token(), run.attempt());
///     Ok(())
/// }
/// let client = tidelock::Client::connect("memory:").await?;
/// client.once("import").slot(Slot::id("orders-17.csv")).run(import).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRun {
    slot: String,
    token: FencingToken,
    attempt: u32,
}

impl SlotRun {
    /// The slot: the text of [`Slot::id`](crate::once::Slot::id), or the time at which the slot begins, as in
    /// `2026-11-20T03:00:00Z`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let import = client.once("import");
    /// import
    ///     .run(|run| async move {
    ///         assert_eq!(run.slot(), "once"); // no slot was set
    ///         Ok::<_, std::io::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn slot(&self) -> &str {
        &self.slot
    }

    /// The fencing token of this attempt: larger than those of all earlier attempts and slots of the job. Pass it to
    /// the resource, so that it refuses an attempt that was declared dead.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let import = client.once("import");
    /// import
    ///     .run(|run| async move {
    ///         assert!(run.token().get() > 0);
    ///         Ok::<_, std::io::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The number of this attempt in its slot: 1 for the first.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let import = client.once("import");
    /// import
    ///     .run(|run| async move {
    ///         assert_eq!(run.attempt(), 1);
    ///         Ok::<_, std::io::Error>(())
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

/// An attempt that has begun: the lock of the job is held. If it is dropped, the lock is released and the attempt
/// counts as crashed.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::once::{Begun, OnceAttempt, Slot};
///
/// async fn work(attempt: OnceAttempt) -> tidelock::Result<()> {
///     let worked = attempt.guard().while_held(async { Err("no route to host") }).await?;
///     match worked {
///         Ok(()) => attempt.succeed().await,
///         Err(why) => attempt.fail(why).await,
///     }
/// }
/// let client = tidelock::Client::connect("memory:").await?;
/// if let Begun::Attempt(attempt) = client.once("mail").slot(Slot::id("1")).begin().await? {
///     work(attempt).await?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "an attempt that is dropped counts as crashed"]
#[clippy::has_significant_drop]
pub struct OnceAttempt {
    job: OnceJob,
    guard: FencedGuard,
    running: StoredMark,
    run: SlotRun,
    began: BootInstant,
    shown: OwnRun,
}

impl OnceJob {
    /// Begins an attempt by hand, for work that cannot be a future of [`run`](Self::run). The caller must stop its work
    /// when the [guard](OnceAttempt::guard) is lost.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped, the lock is released; the attempt may count as crashed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::once::Begun;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// if let Begun::Attempt(attempt) = client.once("import").begin().await? {
    ///     attempt.guard().while_held(async { /* work */ }).await?;
    ///     attempt.succeed().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn begin(&self) -> Result<Begun> {
        let name = self.lock.checked_name()?;
        let begun = async {
            self.check()?;
            self.begin_with(&name, &self.register(&name)?).await
        };
        begun.await.map_err(|error| error.on_lock(&name))
    }

    /// Takes the lock and writes that an attempt runs, unless the slot needs none.
    async fn begin_with(&self, name: &Name, register: &MarkRegister<'_>) -> Result<Begun> {
        let now = register.now().await?;
        let slot = self.slot.at(now)?;
        // Again for a crontab line: only now is it known how long its mark is kept.
        self.check_run(register.kept(&slot))?;
        // We read before we acquire: most calls come late, and then cost one read and no grant.
        if let Some(seen) = register.read(&slot).await?
            && seen.mark.is_final(self.retry)
        {
            return Ok(Begun::Done(seen.mark));
        }
        let guard = match self.acquire_or_see_holder().await? {
            Ok(guard) => guard,
            Err(holder) => return Ok(Begun::Running(holder)),
        };
        let began = self.lock.context.core.timers.now();
        // The wait may have been long. The slot stays that of the call.
        let started = register.now().await?;
        // We read again under the lock: the holder before us may have run the slot since.
        let before = register.read(&slot).await?;
        let written = self.write_running(register, &guard, slot, started, before);
        let running = match written.await? {
            Ok(running) => running,
            Err(done) => {
                release(guard).await;
                return Ok(Begun::Done(done));
            }
        };
        let core = &self.lock.context.core;
        let shown = OwnRun::begin(core, name, &running.mark, began);
        // The reply may have come after the lease: then the attempt is over before it begins.
        if let Some(lost) = guard.hold().status.refusal() {
            return Err(lost);
        }
        let run = SlotRun {
            slot: running.mark.slot.clone(),
            token: running.mark.token,
            attempt: running.mark.attempt,
        };
        Ok(Begun::Attempt(OnceAttempt {
            job: self.clone(),
            guard,
            running,
            run,
            began,
            shown,
        }))
    }

    /// Writes under the lock that an attempt runs. `Err`: the slot needs none, because the holder before us has run it.
    /// `before`: what the slot had.
    async fn write_running(
        &self,
        register: &MarkRegister<'_>,
        guard: &FencedGuard,
        slot: String,
        started: SystemTime,
        mut before: Option<StoredMark>,
    ) -> Result<Result<StoredMark, Mark>> {
        loop {
            // The mark may be that of a successor that has begun since our lease ended. We must not replace it: otherwise
            // the successor's end would find another mark than its own, and the slot would be run again.
            if let Some(lost) = guard.hold().status.refusal() {
                return Err(lost);
            }
            let attempt = match &before {
                Some(seen) => {
                    // Before we look at the attempts. Otherwise the last one, of a successor that runs, would count as crashed.
                    if seen.mark.state != MarkState::Done {
                        self.check_still_held(guard).await?;
                    }
                    if seen.mark.is_exhausted(self.retry) {
                        return Ok(Err(seen.mark.clone()));
                    }
                    seen.mark.attempt.saturating_add(1)
                }
                None => 1,
            };
            let mark = Mark {
                slot: slot.clone(),
                state: MarkState::Running,
                attempt,
                token: guard.token(),
                owner: guard.owner_id(),
                process: self.lock.context.core.process_info.own(),
                started,
                ended: None,
                error: None,
            };
            if let Some(running) = register.replace(before.as_ref(), mark).await? {
                return Ok(Ok(running));
            }
            // A call that was dropped may have sent its mark and released its lock before us; then its mark came in between.
            // The next pass tells it from the mark of a later holder. If there is none now, we had lost the lock.
            before = register.read(&slot).await?;
            if before.is_none() {
                return Err(Error::lost(LostReason::Taken));
            }
        }
    }

    /// Asks the store whether the lock is still held, after the mark of another holder was read. It may be that of a later holder,
    /// and we have not heard of our loss yet, as after a force release. A mark that was read before this answer is that of
    /// an earlier holder, and may be replaced. The tokens do not tell: they begin again with an empty store, so a later holder may
    /// have a smaller one, and an earlier holder a larger one.
    async fn check_still_held(&self, guard: &FencedGuard) -> Result<()> {
        let core = &self.lock.context.core;
        let lease = core.settings.lease;
        let ask = || async move {
            let extended = guard.extend(lease).await;
            extended.map_err(Error::without_effect)
        };
        core.through_outage(lease, ask).await
    }

    /// Acquires the lock of the job. `Err`: another holder has it. `Err(None)`: nobody had it when we asked who, and then it was
    /// refused again.
    async fn acquire_or_see_holder(&self) -> Result<Result<FencedGuard, Option<Holder>>> {
        if let Some(guard) = self.acquire().await? {
            return Ok(Ok(guard));
        }
        let seen = self.lock.inspect().await?;
        if let Some(holder) = seen.holders.into_iter().next() {
            return Ok(Err(Some(holder)));
        }
        // The holder has gone between the two requests. Its run may have failed or crashed, and this call may be the last one
        // in the slot: without another try the slot would not be run, although the lock is free.
        Ok(self.acquire_within(Duration::ZERO).await?.ok_or(None))
    }

    /// Acquires the lock of the job. `None`: another holder has it.
    async fn acquire(&self) -> Result<Option<FencedGuard>> {
        self.acquire_within(self.wait.unwrap_or_default()).await
    }

    async fn acquire_within(&self, wait: Duration) -> Result<Option<FencedGuard>> {
        let mut options = AcquireOptions::new().wait(wait);
        if let Some(limit) = self.max_run {
            options = options.max_hold(limit);
        }
        match self.lock.acquire_with(options).await {
            Ok(guard) => Ok(Some(guard)),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl OnceAttempt {
    /// The slot, the token and the number of this attempt.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::once::Begun;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// if let Begun::Attempt(attempt) = client.once("import").begin().await? {
    ///     assert_eq!(attempt.run().attempt(), 1);
    ///     attempt.succeed().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn run(&self) -> &SlotRun {
        &self.run
    }

    /// The guard of the job's lock: work inside [`while_held`](crate::Guard::while_held).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::once::Begun;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// if let Begun::Attempt(attempt) = client.once("import").begin().await? {
    ///     assert!(attempt.guard().is_held());
    ///     attempt.succeed().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn guard(&self) -> &FencedGuard {
        &self.guard
    }

    /// Marks the slot as done, and releases the lock.
    ///
    /// # Errors
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the store did not confirm the mark before the lock was lost, or
    /// for a lease: the slot may be run again. [`Lost`](ErrorKind::Lost) if another attempt has begun meanwhile.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released; the slot may be done, or the attempt may count as crashed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::once::Begun;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// if let Begun::Attempt(attempt) = client.once("import").begin().await? {
    ///     attempt.succeed().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn succeed(self) -> Result<()> {
        self.end(None).await
    }

    /// Marks the attempt as failed, with the first 300 characters of the reason, and releases the lock.
    ///
    /// # Errors
    /// As [`succeed`](Self::succeed).
    ///
    /// # Cancel safety
    /// As [`succeed`](Self::succeed).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::once::Begun;
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// if let Begun::Attempt(attempt) = client.once("import").begin().await? {
    ///     attempt.fail("no route to host").await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn fail(self, reason: impl fmt::Display) -> Result<()> {
        self.end(Some(reason.to_string())).await
    }

    async fn end(self, error: Option<String>) -> Result<()> {
        let Self {
            job,
            guard,
            running,
            began,
            shown,
            ..
        } = self;
        let name = job.lock.checked_name()?;
        let took = job.lock.context.core.timers.now().since(began);
        let ended = running.mark.ended(took, error);
        let state = ended.state;
        let register = job.register_of(&name)?;
        let write = register.end(&running, ended.clone(), began);
        let written = match guard.while_held(write).await {
            // Nobody else can have begun an attempt as long as no other mark is there, which the store compares.
            Err(lost) if lost.lost_reason() == Some(LostReason::MaxHold) => {
                Ok(register.end(&running, ended, began).await)
            }
            written => written,
        };
        check_end(written).map_err(|error| error.on_lock(&name))?;
        shown.end(state);
        release(guard).await;
        Ok(())
    }
}

/// What the last write of an attempt means for the caller.
fn check_end(written: Result<Result<Option<StoredMark>>>) -> Result<()> {
    match written {
        Ok(Ok(Some(_))) => Ok(()),
        // Somebody else has begun an attempt: we had lost the lock before this one ended.
        Ok(Ok(None)) => Err(Error::lost(LostReason::Taken)),
        Ok(Err(error)) | Err(error) => Err(Error::new(ErrorKind::OutcomeUnknown)
            .because("the job has ended, but the store did not confirm its mark; the slot may be run again")
            .caused_by(error)),
    }
}

/// Releases the lock of an attempt whose mark is written. If the release fails, the lease ends by itself, and the mark
/// keeps the slot from another run.
async fn release(guard: FencedGuard) {
    if let Err(error) = guard.release().await {
        tracing::debug!(%error, "the lock of a job was not released; its lease ends by itself");
    }
}

impl fmt::Debug for OnceAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceAttempt")
            .field("run", &self.run)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
