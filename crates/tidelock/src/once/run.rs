//! One call of a job: begins an attempt, runs the work while the lock is held, and says how it ended.

use std::fmt;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::once::{Begun, Mark, OnceJob, SlotRun};
use crate::snapshot::Holder;
use crate::types::LostReason;

/// What a call of [`OnceJob::run`] did.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::once::{Once, Slot};
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let hello = client.once("hello").slot(Slot::id("1"));
/// let first = hello.run(|run| async move { Ok::<_, std::fmt::Error>(run.attempt()) }).await?;
/// assert!(matches!(first, Once::Ran(1)));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Once<T, E> {
    /// This call ran the job, which succeeded with this value.
    Ran(T),
    /// This call ran nothing: the slot has been run, or has had all its attempts. The [state](Mark::state) of its mark says
    /// which: [`MarkState::Done`](crate::once::MarkState::Done) only if an attempt has succeeded.
    Done(Mark),
    /// This call ran nothing: another holder has the lock of the job. `None`: the holders changed so fast that it was not seen.
    Running(Option<Holder>),
    /// This call ran the job, which failed with this error.
    Failed(E),
}

impl OnceJob {
    /// Runs the job, unless its slot has been run or is running. `job` is called at most once, and its future is
    /// dropped when the lock is lost or [`max_run`](Self::max_run) is over.
    ///
    /// # Errors
    /// [`Lost`](ErrorKind::Lost) if the lock was lost while the job ran; the next call runs it again if
    /// [`if_crashed`](Self::if_crashed) allows. [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) if the job has ended and
    /// the store did not answer for a lease: the slot may be run again. [`Unsupported`](ErrorKind::Unsupported) before
    /// any traffic, if the store keeps no marks or no tokens. [`InvalidOptions`](ErrorKind::InvalidOptions),
    /// [`WrongType`](ErrorKind::WrongType), and the errors of [`Lock::acquire`](crate::Lock::acquire). An error of the
    /// job itself is [`Once::Failed`].
    ///
    /// # Cancel safety
    /// Dropping the future drops the job and releases the lock. The attempt counts as crashed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> tidelock::Result<()> {
    /// use tidelock::once::{Once, Slot};
    ///
    /// let client = tidelock::Client::connect("memory:").await?;
    /// let import = client.once("import").slot(Slot::id("orders-17.csv"));
    /// match import.run(|run| async move { load(run.slot(), run.token().get()).await }).await? {
    ///     Once::Ran(rows) => assert_eq!(rows, 3),
    ///     other => panic!("{other:?}"),
    /// }
    /// # async fn load(_file: &str, _token: u64) -> std::io::Result<u64> { Ok(3) }
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E, F>(&self, job: impl FnOnce(SlotRun) -> F) -> Result<Once<T, E>>
    where
        F: Future<Output = Result<T, E>>,
        E: fmt::Display,
    {
        let attempt = match self.begin().await? {
            Begun::Attempt(attempt) => attempt,
            Begun::Done(mark) => return Ok(Once::Done(mark)),
            Begun::Running(holder) => return Ok(Once::Running(holder)),
        };
        let worked = attempt.guard().while_held(job(attempt.run().clone())).await;
        match worked {
            Ok(Ok(value)) => attempt.succeed().await.map(|()| Once::Ran(value)),
            Ok(Err(error)) => {
                attempt.fail(&error).await?;
                Ok(Once::Failed(error))
            }
            Err(lost) => {
                // It ran for too long, which is a failure of the job and not of its process. After any other loss the
                // lock is somebody else's, and so is the mark.
                if lost.lost_reason() == Some(LostReason::MaxHold) {
                    attempt.fail("it ran for too long and was dropped").await?;
                }
                Err(lost)
            }
        }
    }
}
