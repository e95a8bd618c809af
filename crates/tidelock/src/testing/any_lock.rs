//! A lock with or without fencing tokens, an election, a job that runs once per slot, or permits of a semaphore, chosen at
//! run time: for tests and tools that do the same with all of them.

use std::ops::Deref;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::client::Client;
use crate::election::{Election, Leadership};
use crate::error::{Error, ErrorKind, Result};
use crate::fenced::FencedGuard;
use crate::guard::Guard;
use crate::lock::{FencedLock, Lock};
use crate::once::{Begun, OnceAttempt, OnceJob, Retry, Slot};
use crate::options::AcquireOptions;
use crate::permits::Permits;
use crate::snapshot::Snapshot;
use crate::types::FencingToken;

/// How long the mark of a slot is kept: for longer than a test takes.
const KEEP: Duration = Duration::from_secs(600);

/// A [`Lock`], a [`FencedLock`], permits, or what is built on a lock.
#[derive(Debug, Clone)]
pub enum AnyLock {
    /// Without tokens.
    Plain(Lock),
    /// With tokens.
    Fenced(FencedLock),
    /// An election: to acquire it is to campaign, to release it is to resign.
    Election(Election, FencedLock),
    /// A job: to acquire it is to begin an attempt of the current slot, to release it is to mark the slot as done.
    Job(OnceJob, FencedLock),
    /// Some permits of a semaphore.
    Permits(Lock<Permits>),
}

impl AnyLock {
    /// The lock, with tokens if `fenced`.
    pub fn new(lock: Lock, fenced: bool) -> Self {
        if fenced {
            Self::Fenced(lock.fenced())
        } else {
            Self::Plain(lock)
        }
    }

    /// The election of this name.
    pub fn election(client: &Client, name: &str, identity: &str) -> Self {
        let election = client.election(name).identity(identity);
        Self::Election(election, client.lock(name).fenced())
    }

    /// The job of this name, with slots of this length.
    pub fn job(client: &Client, name: &str, slot: Duration) -> Self {
        let job = client.once(name).slot(Slot::every(slot)).keep(KEEP);
        let job = job.if_crashed(Retry::InSlot(u32::MAX - 1));
        Self::Job(job, client.lock(name).fenced())
    }

    /// The name, prefix included.
    pub fn name(&self) -> &str {
        match self {
            Self::Plain(lock) => lock.name(),
            Self::Permits(permits) => permits.name(),
            Self::Fenced(lock) | Self::Election(_, lock) | Self::Job(_, lock) => lock.name(),
        }
    }

    /// See [`Lock::acquire`].
    ///
    /// # Errors
    /// As the lock.
    pub async fn acquire(&self) -> Result<AnyGuard> {
        self.acquire_with(AcquireOptions::new()).await
    }

    /// See [`Lock::acquire_with`]. Of the options, an election and a job use only the wait limit.
    ///
    /// # Errors
    /// As the lock. [`ErrorKind::TimedOut`] also if the slot of a job has been run.
    pub async fn acquire_with(&self, options: AcquireOptions) -> Result<AnyGuard> {
        match self {
            Self::Plain(lock) => lock.acquire_with(options).await.map(AnyGuard::from),
            Self::Fenced(lock) => lock.acquire_with(options).await.map(AnyGuard::from),
            Self::Election(election, _) => campaign(election, options.wait).await,
            Self::Permits(permits) => permits.acquire_with(options).await.map(AnyGuard::from),
            Self::Job(job, _) => begin(job.clone().wait(options.wait.unwrap_or(KEEP))).await,
        }
    }

    /// See [`Lock::try_acquire`]. An election cannot be tried: this campaigns until the first timer fires.
    ///
    /// # Errors
    /// As the lock.
    pub async fn try_acquire(&self) -> Result<Option<AnyGuard>> {
        Ok(match self {
            Self::Plain(lock) => lock.try_acquire().await?.map(AnyGuard::from),
            Self::Fenced(lock) => lock.try_acquire().await?.map(AnyGuard::from),
            Self::Permits(permits) => permits.try_acquire().await?.map(AnyGuard::from),
            Self::Election(..) | Self::Job(..) => {
                let tried = self.acquire_with(AcquireOptions::new().wait(Duration::ZERO));
                match tried.await {
                    Err(error) if error.is_timeout() => None,
                    tried => Some(tried?),
                }
            }
        })
    }

    /// See [`Lock::inspect`].
    ///
    /// # Errors
    /// As the lock.
    pub async fn inspect(&self) -> Result<Snapshot> {
        match self {
            Self::Plain(lock) => lock.inspect().await,
            Self::Permits(permits) => permits.inspect().await,
            Self::Fenced(lock) | Self::Election(_, lock) | Self::Job(_, lock) => {
                lock.inspect().await
            }
        }
    }

    /// See [`Lock::force_release`].
    ///
    /// # Errors
    /// As the lock.
    pub async fn force_release(&self) -> Result<bool> {
        match self {
            Self::Plain(lock) => lock.force_release().await,
            Self::Permits(permits) => permits.force_release().await,
            Self::Fenced(lock) | Self::Election(_, lock) | Self::Job(_, lock) => {
                lock.force_release().await
            }
        }
    }
}

async fn campaign(election: &Election, limit: Option<Duration>) -> Result<AnyGuard> {
    let campaign = election.campaign();
    let won = match limit {
        None => campaign.await,
        Some(limit) => match select(pin!(campaign), election.timers().after(limit)).await {
            Either::Left((won, _)) => won,
            Either::Right(_) => Err(Error::new(ErrorKind::TimedOut)),
        },
    };
    won.map(|leadership| AnyGuard {
        token: Some(leadership.token()),
        held: AnyHold::Leadership(leadership),
    })
}

async fn begin(job: OnceJob) -> Result<AnyGuard> {
    match job.begin().await? {
        Begun::Attempt(attempt) => Ok(AnyGuard {
            token: Some(attempt.run().token()),
            held: AnyHold::Attempt(Box::new(attempt)),
        }),
        Begun::Done(_) | Begun::Running(_) => Err(Error::new(ErrorKind::TimedOut)),
    }
}

impl From<Lock> for AnyLock {
    fn from(lock: Lock) -> Self {
        Self::Plain(lock)
    }
}

impl From<FencedLock> for AnyLock {
    fn from(lock: FencedLock) -> Self {
        Self::Fenced(lock)
    }
}

impl From<Lock<Permits>> for AnyLock {
    fn from(permits: Lock<Permits>) -> Self {
        Self::Permits(permits)
    }
}

/// A held [`AnyLock`]: the guard, and its token if it has one.
#[derive(Debug)]
pub struct AnyGuard {
    held: AnyHold,
    token: Option<FencingToken>,
}

#[derive(Debug)]
enum AnyHold {
    Guard(Guard),
    Leadership(Leadership),
    Attempt(Box<OnceAttempt>),
}

impl AnyGuard {
    /// The token of a fenced lock, the term of an election.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The token as a number, zero without one.
    pub fn number(&self) -> u64 {
        self.token.map_or(0, FencingToken::get)
    }

    /// The slot that this attempt of a job runs.
    pub fn slot(&self) -> Option<&str> {
        match &self.held {
            AnyHold::Attempt(attempt) => Some(attempt.run().slot()),
            _ => None,
        }
    }

    /// See [`Guard::reenter`].
    #[must_use]
    pub fn reenter(&self) -> Self {
        Self {
            held: AnyHold::Guard(Guard::reenter(self)),
            token: self.token,
        }
    }

    /// See [`Guard::release`].
    ///
    /// # Errors
    /// As the guard; of a job, also if its slot is not marked as done.
    pub async fn release(self) -> Result<()> {
        match self.held {
            AnyHold::Guard(guard) => guard.release().await,
            AnyHold::Leadership(leadership) => leadership.resign().await,
            AnyHold::Attempt(attempt) => attempt.succeed().await,
        }
    }

    /// See [`Leadership::transfer_to`]; any other guard is released.
    ///
    /// # Errors
    /// As [`Leadership::transfer_to`], with what is still held.
    pub async fn transfer_to(
        self,
        identity: &str,
    ) -> std::result::Result<(), (Error, Option<Self>)> {
        let AnyHold::Leadership(leadership) = self.held else {
            return self.release().await.map_err(|error| (error, None));
        };
        let transferred = leadership.transfer_to(identity).await;
        transferred.map_err(|failed| {
            let left = failed.leadership.map(|leadership| Self {
                token: self.token,
                held: AnyHold::Leadership(*leadership),
            });
            (failed.error, left)
        })
    }
}

impl Deref for AnyGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match &self.held {
            AnyHold::Guard(guard) => guard,
            AnyHold::Leadership(leadership) => leadership.guard(),
            AnyHold::Attempt(attempt) => attempt.guard(),
        }
    }
}

impl From<Guard> for AnyGuard {
    fn from(guard: Guard) -> Self {
        Self {
            held: AnyHold::Guard(guard),
            token: None,
        }
    }
}

impl From<Permits> for AnyGuard {
    fn from(permits: Permits) -> Self {
        Guard::from(permits).into()
    }
}

impl From<FencedGuard> for AnyGuard {
    fn from(guard: FencedGuard) -> Self {
        Self {
            token: Some(guard.token()),
            held: AnyHold::Guard(guard.into()),
        }
    }
}
