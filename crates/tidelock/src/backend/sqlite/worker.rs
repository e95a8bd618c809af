//! A thread of its own for each connection: nobody's executor ever waits for a disk.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;

use super::desk::Desk;
use super::patience::be_patient_for;
use super::watch::Watch;
use crate::backend::{Clock, Timers};
use crate::error::{Error, ErrorKind, Result};

/// How long a connection that has nothing to do may wait for others when its files were removed.
const IDLE_PATIENCE: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// Runs jobs on one connection, one after the other. Its thread ends with it.
pub(super) struct Worker {
    how: Mutex<How>,
    timers: Timers,
    limit: Duration,
}

/// Tells the workers of a client that one of the files was removed or replaced.
#[derive(Debug, Default)]
pub(super) struct Alarm(Mutex<Vec<Weak<mpsc::Sender<Job>>>>);

impl Alarm {
    pub(super) fn ring(&self) {
        for jobs in self.lock().iter().filter_map(Weak::upgrade) {
            // A worker that has ended has left.
            let _ = jobs.send(Box::new(Desk::leave_if_replaced));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<mpsc::Sender<Job>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker does while it has nothing to do.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// How often it looks whether the files of its connection are there still. `None`: another worker does, and tells it.
    pub(super) every: Option<Duration>,
    /// And whether anything happens in the queues of this process.
    pub(super) watch: Option<Arc<Watch>>,
}

enum How {
    Thread(Arc<mpsc::Sender<Job>>),
    /// In simulated time nothing may go on beside the test's own runtime, or its clock would run ahead of the disk.
    Here(Box<Desk>),
    Closed,
}

impl Worker {
    pub(super) fn start(
        name: &str,
        desk: Desk,
        timers: Timers,
        limit: Duration,
        idle: Idle,
    ) -> Result<Self> {
        let how = if matches!(timers.clock(), Clock::Simulated(_)) {
            How::Here(Box::new(desk))
        } else {
            let alarm = Arc::clone(&desk.setting.alarm);
            let jobs = Arc::new(thread(name, desk, idle)?);
            alarm.lock().push(Arc::downgrade(&jobs));
            How::Thread(jobs)
        };
        Ok(Self {
            how: Mutex::new(how),
            timers,
            limit,
        })
    }

    /// Runs a job, and gives up waiting for it after the response timeout.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Desk) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call_or_undo(job, |_, _| {}).await
    }

    /// As [`call`](Self::call); a result nobody waits for any more is given to `undo`.
    pub(super) async fn call_or_undo<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Desk) -> Result<T> + Send + 'static,
        undo: impl FnOnce(&mut Desk, T) + Send + 'static,
    ) -> Result<T> {
        let place = Place::default();
        let (answer, answered) = oneshot::channel();
        let begun = place.clone();
        let (timers, limit) = (self.timers.clone(), self.limit);
        let end = timers.now() + limit;
        self.submit(Box::new(move |desk| {
            if !begun.take() {
                return;
            }
            // A little less than the caller waits, so that it hears "busy" and need not guess.
            let left = end.since(timers.now());
            be_patient_for(left.saturating_sub(limit / 10));
            desk.leave_if_replaced();
            if let Err(Ok(value)) = answer.send(job(desk)) {
                undo(desk, value);
            }
        }))?;
        match self.timers.limit(limit, answered).await {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::new(ErrorKind::OutcomeUnknown)
                .because("the thread of the lock file has ended")),
            None if place.take() => Err(Error::new(ErrorKind::Unavailable)
                .because(format!("the lock file has been busy with earlier requests for {limit:?}; nothing was changed"))),
            None => Err(Error::new(ErrorKind::OutcomeUnknown)
                .because(format!("writing to the lock file took longer than {limit:?}"))),
        }
    }

    /// Later calls are refused; the thread ends when it has done what was asked for.
    pub(super) fn close(&self) {
        *self.how.lock().unwrap_or_else(PoisonError::into_inner) = How::Closed;
    }

    fn submit(&self, job: Job) -> Result<()> {
        match &mut *self.how.lock().unwrap_or_else(PoisonError::into_inner) {
            How::Here(desk) => {
                job(desk);
                Ok(())
            }
            How::Thread(jobs) => jobs.send(job).map_err(|_| {
                Error::new(ErrorKind::Unavailable).because("the thread of the lock file has ended")
            }),
            How::Closed => Err(Error::new(ErrorKind::Closed)),
        }
    }
}

fn thread(name: &str, mut desk: Desk, idle: Idle) -> Result<mpsc::Sender<Job>> {
    let (jobs, todo) = mpsc::channel::<Job>();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            while let Some(job) = next(&todo, &mut desk, &idle) {
                job(&mut desk);
            }
        })
        .map_err(|error| {
            Error::new(ErrorKind::Runtime)
                .because("the thread of the lock file could not be started")
                .caused_by(error)
        })?;
    Ok(jobs)
}

/// The next job. `None`: there will be none.
fn next(todo: &mpsc::Receiver<Job>, desk: &mut Desk, idle: &Idle) -> Option<Job> {
    while let Some(every) = idle.every {
        match todo.recv_timeout(every) {
            Ok(job) => return Some(job),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                be_patient_for(IDLE_PATIENCE);
                if desk.is_open() {
                    desk.leave_if_replaced();
                } else {
                    // Another connection of this client may be open and idle: it would keep all processes out of a file
                    // that was replaced.
                    desk.setting.alarm.ring();
                }
                idle.watch.iter().for_each(|watch| watch.peek());
            }
        }
    }
    todo.recv().ok()
}

/// A job's place in the queue: either the thread takes it and begins, or the caller takes it back and leaves.
#[derive(Clone, Default)]
struct Place(Arc<AtomicBool>);

impl Place {
    /// True for whoever comes first.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
