//! The ways in which the tasks of a run use their locks.

use std::time::Duration;

use fastrand::Rng;
use tidelock::Client;
use tidelock::testing::AnyLock;

/// The way in which a task uses its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Holds for a moment, again and again; several tasks compete.
    Trader,
    /// Holds for about a lease, so that it needs renewals, then lets another task have it.
    Relay,
    /// Holds all the time; no other task wants this lock.
    Keeper,
    /// Holds for a moment; very many tasks compete.
    Crowd,
    /// Holds for some leases. In a storm each process has many of them, so that one fault takes many locks; another process
    /// waits for each lock.
    Holder,
    /// Campaigns, leads for a part of a lease, and resigns.
    Candidate,
    /// Runs a job that takes a part of a lease, if its slot has not been run.
    Ticker,
}

impl Role {
    /// The name of the lock of this role. A keeper has its own lock, and a holder shares one with a holder elsewhere.
    pub(crate) fn name(self, base: &str, owner: &str) -> String {
        match self {
            Self::Trader => format!("{base}-trade"),
            Self::Relay => format!("{base}-relay"),
            Self::Keeper => format!("{base}-keep-{owner}"),
            Self::Crowd => format!("{base}-crowd"),
            Self::Holder => format!("{base}-hold-{owner}"),
            Self::Candidate => format!("{base}-elect"),
            Self::Ticker => format!("{base}-job"),
        }
    }

    pub(crate) fn lock(self, client: &Client, name: &str, id: &str, fenced: bool) -> AnyLock {
        match self {
            Self::Candidate => AnyLock::election(client, name, id),
            Self::Ticker => AnyLock::job(client, name, SLOT),
            _ => AnyLock::new(client.lock(name), fenced),
        }
    }

    pub(crate) fn hold(self, lease: Duration, rng: &mut Rng) -> Duration {
        match self {
            Self::Trader => Duration::from_millis(rng.u64(1..30)),
            Self::Relay => lease.mul_f64(0.2 + rng.f64() * 0.6),
            Self::Candidate | Self::Ticker => lease.mul_f64(0.1 + rng.f64() * 0.2),
            Self::Keeper => Duration::from_secs(3600),
            Self::Crowd => Duration::from_millis(10),
            Self::Holder => lease.mul_f64(2.0 + rng.f64() * 4.0),
        }
    }

    /// The pause from the release to the next request. Without it, the same task would get the lock again and again,
    /// and a missed wake of the others would go unnoticed.
    pub(crate) fn rest(self, lease: Duration, storm: bool, rng: &mut Rng) -> Duration {
        match self {
            // In a storm a rare trade leaves more of the cores to the faults of all stores.
            Self::Trader if storm => lease.mul_f64(rng.f64() / 4.0),
            Self::Trader => Duration::from_millis(rng.u64(1..20)),
            Self::Relay | Self::Candidate | Self::Holder => lease / 3,
            // The tickers are shifted against each other.
            Self::Ticker => SLOT.mul_f64(rng.f64()),
            Self::Keeper => Duration::ZERO,
            Self::Crowd => Duration::from_millis(50),
        }
    }

    /// The interval between two checks of the guard. Each check is a line of the history, and a storm has many tasks.
    pub(crate) fn pace(self, storm: bool) -> Duration {
        let always = matches!(self, Self::Keeper | Self::Holder);
        Duration::from_millis(match (storm, always) {
            (true, true) => 100,
            (false, true) => 20,
            (true, false) => 25,
            (false, false) => 4,
        })
    }
}

/// The length of the slots of a [`Role::Ticker`].
const SLOT: Duration = Duration::from_secs(1);

/// Whether this is the name of an election or of a job, which keep marks beside the lock.
pub(crate) fn is_marked(name: &str) -> bool {
    [Role::Candidate, Role::Ticker]
        .iter()
        .any(|role| name.ends_with(&role.name("", "")))
}
