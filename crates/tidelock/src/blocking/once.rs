//! Jobs that run once per slot, of the blocking API.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::Client;
use crate::engine::runtime::background::Blocker;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::once::{Begun, Mark, Once, OnceAttempt, Retry, Slot};

/// A job that runs once per slot; see [`once::OnceJob`](crate::once::OnceJob).
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tidelock::once::{Once, Slot};
///
/// let client = tidelock::blocking::Client::connect("memory:")?;
/// let report = client.once("report").slot(Slot::every(Duration::from_secs(24 * 3600)));
/// let ran = report.run(|attempt| write_report(attempt.run().slot()))?;
/// assert!(matches!(ran, Once::Ran(3)));
/// # fn write_report(_slot: &str) -> std::io::Result<u32> { Ok(3) }
/// # Ok::<(), tidelock::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "call `run`"]
pub struct OnceJob {
    job: crate::once::OnceJob,
    blocker: Arc<Blocker>,
}

impl Client {
    /// A job that runs once per slot; see [`Client::once`](crate::Client::once).
    ///
    /// # Examples
    /// ```
    /// use tidelock::once::Slot;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let import = client.once("import").slot(Slot::id("orders-17.csv"));
    /// import.run(|_| Ok::<_, std::io::Error>(()))?;
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn once(&self, name: &str) -> OnceJob {
        OnceJob {
            job: self.client.once(name),
            blocker: Arc::clone(&self.blocker),
        }
    }
}

impl OnceJob {
    /// See [`OnceJob::slot`](crate::once::OnceJob::slot).
    ///
    /// # Examples
    /// ```
    /// use tidelock::once::Slot;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let import = client.once("import").slot(Slot::id("orders-17.csv"));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn slot(mut self, slot: Slot) -> Self {
        self.job = self.job.slot(slot);
        self
    }

    /// See [`OnceJob::max_run`](crate::once::OnceJob::max_run). A thread cannot be stopped: the lock is given up, and
    /// the job has to look at its guard.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let report = client.once("report").max_run(Duration::from_secs(60));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn max_run(mut self, limit: Duration) -> Self {
        self.job = self.job.max_run(limit);
        self
    }

    /// See [`OnceJob::if_crashed`](crate::once::OnceJob::if_crashed).
    ///
    /// # Examples
    /// ```
    /// use tidelock::once::Retry;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let mail = client.once("mail").if_crashed(Retry::Never);
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn if_crashed(mut self, retry: Retry) -> Self {
        self.job = self.job.if_crashed(retry);
        self
    }

    /// See [`OnceJob::keep`](crate::once::OnceJob::keep).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let report = client.once("report").keep(Duration::from_secs(3600));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn keep(mut self, time: Duration) -> Self {
        self.job = self.job.keep(time);
        self
    }

    /// See [`OnceJob::wait`](crate::once::OnceJob::wait).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let report = client.once("report").wait(Duration::from_secs(60));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn wait(mut self, limit: Duration) -> Self {
        self.job = self.job.wait(limit);
        self
    }

    /// The name of the job and of its lock, prefix included.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert_eq!(client.once("report").name(), "report");
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.job.name()
    }

    /// See [`OnceJob::history`](crate::once::OnceJob::history).
    ///
    /// # Errors
    /// As [`OnceJob::history`](crate::once::OnceJob::history), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// assert!(client.once("report").history(10)?.is_empty());
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn history(&self, limit: u32) -> Result<Vec<Mark>> {
        self.blocker.run(self.job.history(limit))?
    }

    /// Runs the job, unless its slot has been run or is running. The job has to stop when the
    /// [guard](OnceAttempt::guard) of its attempt is no longer held: a thread cannot be stopped.
    ///
    /// # Errors
    /// As [`OnceJob::run`](crate::once::OnceJob::run), and [`Runtime`](ErrorKind::Runtime) in async code.
    ///
    /// # Examples
    /// ```
    /// use tidelock::once::{Once, Slot};
    ///
    /// let client = tidelock::blocking::Client::connect("memory:")?;
    /// let import = client.once("import").slot(Slot::id("orders-17.csv"));
    /// let ran = import.run(|attempt| {
    ///     for line in 0..3 {
    ///         if !attempt.guard().is_held() {
    ///             return Err("the lock is lost");
    ///         }
    ///         println!("{line}: token {}", attempt.run().token());
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(ran, Once::Ran(()));
    /// # Ok::<(), tidelock::Error>(())
    /// ```
    pub fn run<T, E: fmt::Display>(
        &self,
        job: impl FnOnce(&OnceAttempt) -> Result<T, E>,
    ) -> Result<Once<T, E>> {
        let attempt = match self.blocker.run(self.job.begin())?? {
            Begun::Attempt(attempt) => attempt,
            Begun::Done(mark) => return Ok(Once::Done(mark)),
            Begun::Running(holder) => return Ok(Once::Running(holder)),
        };
        match job(&attempt) {
            Ok(value) => {
                self.blocker.run(attempt.succeed())??;
                Ok(Once::Ran(value))
            }
            Err(error) => {
                self.blocker.run(attempt.fail(&error))??;
                Ok(Once::Failed(error))
            }
        }
    }
}

impl fmt::Debug for OnceJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.job.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::once::MarkState;

    #[test]
    fn a_job_that_failed_runs_again_and_one_that_is_done_does_not() {
        let client = Client::connect("memory:").unwrap();
        let job = client.once("report").slot(Slot::id("today"));
        let failed = job.run(|attempt| Err::<(), _>(attempt.run().attempt()));
        assert_eq!(failed.unwrap(), Once::Failed(1));
        let ran = job.run(|attempt| Ok::<_, u32>(attempt.run().attempt()));
        assert_eq!(ran.unwrap(), Once::Ran(2));
        let done = job.run(|_| Ok::<_, u32>(0)).unwrap();
        assert!(matches!(done, Once::Done(_)), "{done:?}");
        let marks = job.history(9).unwrap();
        let states: Vec<MarkState> = marks.iter().map(|mark| mark.state).collect();
        assert_eq!(states, [MarkState::Done]);
        client.close(Duration::ZERO).unwrap();
        let error = job.history(9).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        let refused = job.run(|_| Ok::<_, u32>(0)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed, "{refused}");
    }
}
