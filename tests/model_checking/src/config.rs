//! The configuration of a run: how many clients, how many faults of each kind, and which known bug is put back.

use crate::parts::DRIFT;

/// A bug that this protocol, or a similar one, once had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A repeated attempt with the same ticket counts as a re-entry.
    CountsTwice,
    /// A withdrawal leaves no tombstone.
    NoTombstone,
    /// A lease is counted from the answer that proves it, not from the request.
    CountsFromReply,
    /// A release removes the lock without a check of the owner.
    ReleasesAnyone,
    /// A waiter tries first, then subscribes, then sleeps.
    SubscribesAfterTry,
    /// A renewal counts although no replica has acknowledged it.
    BelievesIsolated,
    /// A grant counts although no replica has acknowledged it.
    BelievesUnacknowledgedGrant,
    /// After an undo without an answer, the client tries again with the same ticket.
    KeepsTicketAfterUndo,
    /// No timer is set for the end of a proved lease.
    NeverTells,
    /// The fencing counter is deleted with the lock.
    ForgetsCounter,
    /// A waiter relies on wakes alone.
    NeverPolls,
}

/// How often each fault may happen in one run. Each may happen at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// A request, an answer or a wake is lost.
    pub losses: u8,
    /// A client stops waiting for an answer while the request or the answer is still in flight.
    pub late: u8,
    /// A process is killed.
    pub crashes: u8,
    /// A process is frozen, and may thaw later.
    pub freezes: u8,
    /// A caller leaves before it has acquired the lock.
    pub leaves: u8,
    /// The server's clock is stepped, ahead or back.
    pub steps: u8,
    /// An operator frees the lock by force.
    pub forces: u8,
    /// A replica takes over from the primary. It has the data up to the last copy.
    pub failovers: u8,
}

impl Faults {
    /// No faults.
    pub const NONE: Self = Self {
        losses: 0,
        late: 0,
        crashes: 0,
        freezes: 0,
        leaves: 0,
        steps: 0,
        forces: 0,
        failovers: 0,
    };
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name in the output.
    pub name: &'static str,
    /// The number of clients.
    pub clients: u8,
    /// The number of acquisitions of each client.
    pub turns: u8,
    /// How many faults of each kind may happen.
    pub faults: Faults,
    /// How far a client's clock may fall behind the server's within one lease, in ticks.
    pub drift: u8,
    /// There is a replica, and it must acknowledge grants and renewals.
    pub replica: bool,
    /// A replaced primary is always cut off and continues to answer; it is never dead.
    pub only_cut_off: bool,
    /// Holders write to a resource with fencing tokens, at any later moment.
    pub writes: bool,
    /// The bug that is put back.
    pub bug: Option<Bug>,
}

impl Config {
    /// Clients that make `turns` acquisitions each, with clock drift and without faults.
    pub fn new(name: &'static str, clients: u8, turns: u8) -> Self {
        Self {
            name,
            clients,
            turns,
            faults: Faults::NONE,
            drift: DRIFT,
            replica: false,
            only_cut_off: false,
            writes: false,
            bug: None,
        }
    }

    /// With these faults.
    #[must_use]
    pub fn faults(mut self, faults: Faults) -> Self {
        self.replica = faults.failovers > 0;
        self.faults = faults;
        self
    }

    /// With this bug put back.
    #[must_use]
    pub fn bug(mut self, bug: Bug) -> Self {
        self.bug = Some(bug);
        self
    }

    /// Failovers only cut primaries off; no primary dies.
    #[must_use]
    pub fn cut_off(mut self) -> Self {
        self.only_cut_off = true;
        self
    }

    /// With a resource that checks fencing tokens.
    #[must_use]
    pub fn writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// With clocks that fall behind by at most this many ticks within a lease.
    #[must_use]
    pub fn drift(mut self, drift: u8) -> Self {
        self.drift = drift;
        self
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}
