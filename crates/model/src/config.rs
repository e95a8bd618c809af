//! What a run is about: how many clients, which faults how often, and which old bug is put back.

use crate::parts::DRIFT;

/// A bug that this protocol, or one like it, has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bug {
    /// The same ticket asked again is counted again, as a re-entry.
    CountsTwice,
    /// A withdrawal leaves no tombstone.
    NoTombstone,
    /// A lease is counted from the answer that proved it, not from the request.
    CountsFromReply,
    /// A release removes whoever holds the lock.
    ReleasesAnyone,
    /// A waiter asks first, then subscribes, then sleeps.
    SubscribesAfterTry,
    /// A renewal counts though no replica has heard of it.
    BelievesIsolated,
    /// A grant counts though no replica has heard of it.
    BelievesUnacknowledgedGrant,
    /// A grant that was given back without an answer is asked for again under the same ticket.
    KeepsTicketAfterUndo,
    /// Nobody sets a timer for the end of a proved lease.
    NeverTells,
    /// The fencing counter goes with the lock.
    ForgetsCounter,
    /// A waiter relies on messages alone.
    NeverPolls,
}

/// How often each fault may happen in one run. Each may strike at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// A request, an answer or a wake-up is lost.
    pub losses: u8,
    /// A client stops waiting for an answer that is still on its way: request or answer is late.
    pub late: u8,
    /// A process is killed.
    pub crashes: u8,
    /// A process is stopped, and may go on later.
    pub freezes: u8,
    /// A caller leaves before it has the lock.
    pub leaves: u8,
    /// The server's clock is stepped, ahead or back.
    pub steps: u8,
    /// An operator frees the lock.
    pub forces: u8,
    /// A replica takes the primary's place; it has what was copied up to some moment.
    pub failovers: u8,
}

impl Faults {
    /// None.
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
    /// What it is called when it is printed.
    pub name: &'static str,
    /// How many clients.
    pub clients: u8,
    /// How many acquisitions each of them makes.
    pub turns: u8,
    /// The budget of faults.
    pub faults: Faults,
    /// How far a client's clock may fall behind the server's within one lease, in ticks.
    pub drift: u8,
    /// There is a replica, and grants and renewals are to be acknowledged by it.
    pub replica: bool,
    /// A primary that is replaced always answers on.
    pub only_cut_off: bool,
    /// A resource is written to with fencing tokens, at any later moment.
    pub writes: bool,
    /// The bug that is put back.
    pub bug: Option<Bug>,
}

impl Config {
    /// Clients that make that many acquisitions each, clocks that drift, and no faults.
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

    /// With that bug put back.
    #[must_use]
    pub fn bug(mut self, bug: Bug) -> Self {
        self.bug = Some(bug);
        self
    }

    /// With failovers of primaries that are cut off, and of no others.
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

    /// With clocks that go wrong by as much as that.
    #[must_use]
    pub fn drift(mut self, drift: u8) -> Self {
        self.drift = drift;
        self
    }

    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}
