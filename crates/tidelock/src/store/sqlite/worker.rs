//! A thread for each database connection, so that no async executor waits for the disk.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::engine::runtime::sync::Mutex;
use crate::error::{Error, ErrorKind, Result};
use crate::store::errors::unsent;
use crate::store::sqlite::busy::be_patient_for;
use crate::store::sqlite::connection::Database;
use crate::store::sqlite::wake::FileWatch;
use crate::store::{Clock, Liveness, Timers};

/// Bounds how long a background check may wait for other processes after the files were removed.
const IDLE_PATIENCE: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce(&mut Database) + Send>;

/// Runs jobs on one connection, one after the other. Its thread ends when the worker is dropped.
pub(crate) struct Worker {
    how: Mutex<WorkerMode>,
    timers: Timers,
    limit: Duration,
}

/// The background checks of a worker.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// How often to check that the connection's files still exist. `None`: another worker checks, and notifies this
    /// one.
    pub(crate) every: Option<Duration>,
    /// The watch whose queues to check for frozen processes.
    pub(crate) watch: Option<Arc<FileWatch>>,
}

enum WorkerMode {
    Thread(Arc<mpsc::Sender<Job>>),
    /// In simulated time jobs run on the caller's thread. Otherwise the simulated clock would run ahead of the disk.
    Here(Box<Database>),
    Closed,
}

impl Worker {
    pub(crate) fn start(
        name: &str,
        database: Database,
        timers: Timers,
        limit: Duration,
        idle: Idle,
    ) -> Result<Self> {
        let how = if timers.clock() == Clock::Simulated {
            WorkerMode::Here(Box::new(database))
        } else {
            let alarm = Arc::clone(&database.setting.alarm);
            let jobs = Arc::new(thread(name, database, idle)?);
            let listener = Arc::downgrade(&jobs);
            alarm.add(move || {
                if let Some(jobs) = listener.upgrade() {
                    // An ended worker has already closed its connection.
                    let _ = jobs.send(Box::new(Database::leave_if_replaced));
                }
            });
            WorkerMode::Thread(jobs)
        };
        Ok(Self {
            how: Mutex::new(how),
            timers,
            limit,
        })
    }

    /// Runs a job, and stops waiting for it after the response timeout.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Database) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(&JobClaim::default(), job, |_, _| {}).await
    }

    /// Like [`call`](Self::call), but only for a caller that waits. If the caller has left when the job would start, or
    /// this future was dropped, the job is skipped; otherwise the attempts of callers that have gone would delay those that
    /// are still there. If this future is dropped later, `undo` gets the result.
    pub(crate) async fn call_or_undo<T: Send + 'static>(
        &self,
        liveness: &Liveness,
        job: impl FnOnce(&mut Database) -> Result<T> + Send + 'static,
        undo: impl FnOnce(&mut Database, T) + Send + 'static,
    ) -> Result<T> {
        let claim = TakenOnDrop(JobClaim::default());
        // After a timeout the job stays in the queue. The caller must not count as waiting for that long.
        let caller = Arc::new(liveness.clone());
        let known = Arc::downgrade(&caller);
        let job = move |database: &mut Database| {
            if known.upgrade().is_none_or(|caller| caller.has_left()) {
                return Err(unsent("the caller no longer waits for the reply"));
            }
            job(database)
        };
        let answer = self.run(&claim.0, job, undo).await;
        drop(caller);
        answer
    }

    async fn run<T: Send + 'static>(
        &self,
        claim: &JobClaim,
        job: impl FnOnce(&mut Database) -> Result<T> + Send + 'static,
        undo: impl FnOnce(&mut Database, T) + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let begun = claim.clone();
        let (timers, limit) = (self.timers.clone(), self.limit);
        let end = timers.now() + limit;
        self.submit(Box::new(move |database| {
            // The caller has gone, or has timed out with an error that promises "nothing was changed". So the job must not
            // start.
            if !begun.take() {
                return;
            }
            // The job stops a little before the caller's timeout, so that the caller gets "busy" instead of an unknown
            // outcome.
            let left = end.since(timers.now());
            be_patient_for(left.saturating_sub(limit / 10));
            database.leave_if_replaced();
            if let Err(Ok(value)) = answer.send(job(database)) {
                undo(database, value);
            }
        }))?;
        match self.timers.limit(limit, answered).await {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(Error::new(ErrorKind::OutcomeUnknown)
                .because("the thread of the lock file has ended")),
            None if claim.take() => Err(Error::new(ErrorKind::Unavailable)
                .because(format!("the lock file has been busy with earlier requests for {limit:?}; nothing was changed"))),
            None => Err(Error::new(ErrorKind::OutcomeUnknown)
                .because(format!("writing to the lock file took longer than {limit:?}"))),
        }
    }

    /// Refuses later calls. The thread ends after the jobs that are already queued.
    pub(crate) fn close(&self) {
        *self.how.lock() = WorkerMode::Closed;
    }

    fn submit(&self, job: Job) -> Result<()> {
        match &mut *self.how.lock() {
            WorkerMode::Here(database) => {
                job(database);
                Ok(())
            }
            WorkerMode::Thread(jobs) => jobs.send(job).map_err(|_| {
                Error::new(ErrorKind::Unavailable).because("the thread of the lock file has ended")
            }),
            WorkerMode::Closed => Err(Error::new(ErrorKind::Closed)),
        }
    }
}

fn thread(name: &str, mut database: Database, idle: Idle) -> Result<mpsc::Sender<Job>> {
    let (jobs, todo) = mpsc::channel::<Job>();
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let mut checked = Instant::now();
            while let Some(job) = next(&todo, &mut database, &idle, &mut checked) {
                job(&mut database);
            }
        })
        .map_err(|error| {
            Error::new(ErrorKind::Runtime)
                .because("the thread of the lock file could not be started")
                .caused_by(error)
        })?;
    Ok(jobs)
}

/// Returns the next job. `None`: the worker was dropped. `checked`: when the last background check was made.
fn next(
    todo: &mpsc::Receiver<Job>,
    database: &mut Database,
    idle: &Idle,
    checked: &mut Instant,
) -> Option<Job> {
    while let Some(every) = idle.every {
        // Also between jobs: a busy worker is never idle for so long, and its waiters would sleep behind frozen processes
        // until the holder's lease ends.
        let left = every.saturating_sub(checked.elapsed());
        if left.is_zero() {
            check(database, idle);
            *checked = Instant::now();
            continue;
        }
        match todo.recv_timeout(left) {
            Ok(job) => return Some(job),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
    }
    todo.recv().ok()
}

fn check(database: &mut Database, idle: &Idle) {
    be_patient_for(IDLE_PATIENCE);
    if database.is_open() {
        database.leave_if_replaced();
    } else {
        // Another connection of this client may be open and idle. If the file was replaced, it would block all processes
        // from opening it.
        database.setting.alarm.ring();
    }
    idle.watch.iter().for_each(|watch| watch.peek());
}

/// The claim on a queued job: either the thread claims it and starts, or the caller takes it back after the timeout.
#[derive(Clone, Default)]
struct JobClaim(Arc<AtomicBool>);

impl JobClaim {
    /// Returns true for the first call only.
    fn take(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

/// The caller of a job. It takes the job back when it leaves.
struct TakenOnDrop(JobClaim);

impl Drop for TakenOnDrop {
    fn drop(&mut self) {
        self.0.take();
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;
    use crate::store::Background;
    use crate::store::liveness::tests::TestCaller;
    use crate::store::sqlite::connection::{Durable, SharedConnectionState};
    use crate::store::sqlite::files::DatabasePaths;

    /// The response timeout of a worker whose requests end sooner.
    const LONG: Duration = Duration::from_secs(20);

    fn worker_of(paths: DatabasePaths, create: bool, limit: Duration) -> Worker {
        let setting = SharedConnectionState::of_one(Arc::new(paths), create);
        let (database, timers) = (Database::new(setting), Timers::new(Clock::Boot));
        Worker::start("test", database, timers, limit, Idle::default()).unwrap()
    }

    /// For jobs that do not use the file.
    fn worker(limit: Duration) -> Worker {
        worker_of(DatabasePaths::of("no such file".into()), false, limit)
    }

    /// Otherwise those who leave would delay those who stay. A release is carried out though nobody waits for it.
    #[tokio::test]
    async fn an_attempt_is_skipped_if_its_caller_leaves_before_it_starts() {
        let worker = worker(LONG);
        let (free, busy) = mpsc::channel::<()>();
        let (done, results) = mpsc::channel();
        let mut first = Box::pin(worker.call(move |_| Ok(busy.recv().is_err())));
        assert!(poll!(first.as_mut()).is_pending());
        let (attempted, released) = (done.clone(), done);
        let waits = Liveness::default();
        let attempt = move |_: &mut Database| Ok(attempted.send("attempt").is_ok());
        let mut attempt = Box::pin(worker.call_or_undo(&waits, attempt, |_, _| {}));
        let mut release = Box::pin(worker.call(move |_| Ok(released.send("release").is_ok())));
        assert!(poll!(attempt.as_mut()).is_pending());
        assert!(poll!(release.as_mut()).is_pending());
        drop((attempt, release));
        drop(free);
        assert!(first.await.unwrap());
        // The jobs before this one have run.
        worker.call(|_| Ok(())).await.unwrap();
        assert_eq!(results.try_iter().collect::<Vec<_>>(), ["release"]);
    }

    /// Otherwise attempts that nobody waits for would pile up on a busy machine, and the others would fail.
    #[tokio::test]
    async fn an_attempt_is_skipped_if_its_caller_has_left_when_it_would_start() {
        let worker = worker(LONG);
        for leaves in [false, true] {
            let caller = Arc::new(TestCaller::default());
            let liveness = Liveness::new(Arc::clone(&caller) as _);
            let (free, busy) = mpsc::channel::<()>();
            let mut first = Box::pin(worker.call(move |_| Ok(busy.recv().is_err())));
            assert!(poll!(first.as_mut()).is_pending());
            let mut attempt =
                Box::pin(worker.call_or_undo(&liveness, |_| Ok("granted"), |_, _| {}));
            assert!(poll!(attempt.as_mut()).is_pending());
            if leaves {
                caller.leave();
            }
            drop(free);
            assert!(first.await.unwrap());
            match attempt.await {
                Ok(granted) => assert!(!leaves && granted == "granted"),
                Err(error) => assert!(leaves && error.kind() == ErrorKind::Unavailable, "{error}"),
            }
        }
    }

    /// Otherwise a lock would be held that nobody knows of.
    #[tokio::test]
    async fn the_result_of_an_attempt_whose_caller_has_left_is_undone() {
        let worker = worker(LONG);
        let (free, busy) = mpsc::channel::<()>();
        let (begins, has_begun) = mpsc::channel();
        let (undone, results) = mpsc::channel();
        let waits = Liveness::default();
        let mut attempt = Box::pin(worker.call_or_undo(
            &waits,
            move |_| {
                let heard = begins.send(());
                let freed = busy.recv();
                Ok(heard.is_ok() && freed.is_err())
            },
            move |_, result| undone.send(result).unwrap(),
        ));
        assert!(poll!(attempt.as_mut()).is_pending());
        has_begun.recv().unwrap();
        drop(attempt);
        drop(free);
        assert_eq!(results.recv(), Ok(true));
    }

    /// A job that has begun may have changed the file.
    #[tokio::test]
    async fn a_caller_out_of_time_hears_whether_its_job_has_begun() {
        let worker = worker(Duration::from_millis(200));
        let (background, _stop) = Background::start(Clock::Boot).unwrap();
        background.spawn(worker.timers.clone().drive());
        let (free, busy) = mpsc::channel::<()>();
        let (begins, has_begun) = mpsc::channel();
        let mut running = Box::pin(worker.call(move |_| {
            let heard = begins.send(());
            let freed = busy.recv();
            Ok(heard.is_ok() && freed.is_err())
        }));
        assert!(poll!(running.as_mut()).is_pending());
        has_begun.recv().unwrap();
        let queued = worker.call(|_| Ok(())).await.unwrap_err();
        assert_eq!(queued.kind(), ErrorKind::Unavailable, "{queued}");
        let running = running.await.unwrap_err();
        assert_eq!(running.kind(), ErrorKind::OutcomeUnknown, "{running}");
        drop(free);
    }

    #[tokio::test]
    async fn a_job_waits_for_another_writer() {
        let folder = tempfile::tempdir().unwrap();
        let paths = DatabasePaths::of(folder.path().join("locks.db"));
        let worker = worker_of(paths.clone(), true, LONG);
        let opened = worker.call(|database| database.connected().map(drop));
        opened.await.unwrap();
        let other = rusqlite::Connection::open(&paths.main).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(other);
        });
        let written = worker.call(|database| database.write(Durable::No, |_| Ok(())));
        written.await.unwrap();
        ends.join().unwrap();
    }
}
