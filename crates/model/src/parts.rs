//! What there is: servers, clients, messages. Times are relative, so that what is equal but for the date is one state.

/// How long the store keeps a lock without news, in ticks.
pub(crate) const LEASE: u8 = 4;
/// What a clock may really go wrong by within a lease.
pub(crate) const DRIFT: u8 = 1;
/// How long a request proves the lock, counted from its sending: the lease less 2. One tick of that is the drift, the other the
/// time that a thread may take to wake up and tell.
pub(crate) const PROVED: u8 = 2;
/// From that age of the proof on a renewal may be sent.
pub(crate) const RENEW: u8 = 1;
/// What a clock that is stepped jumps by.
pub(crate) const JUMP: u8 = 2;
/// A timer that is never due.
pub(crate) const NEVER: u8 = u8::MAX;
/// How many releases and withdrawals a client may have under way.
pub(crate) const CHORES: usize = 2;

/// One acquisition: whose, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) client: u8,
    pub(crate) number: u8,
}

/// When something was sent, seen from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Stamp {
    /// Ticks of the client's clock since; counted up to `PROVED`, when it proves nothing any more.
    pub(crate) age: u8,
    /// Ticks of the server's clock since that the client's has not seen.
    pub(crate) skew: u8,
    /// A clock was stepped or the lock was freed by force since: no promise holds until the next renewal.
    pub(crate) excused: bool,
}

impl Stamp {
    pub(crate) fn proves(self) -> bool {
        self.age < PROVED
    }
}

/// What a server knows of the lock. `left` = 0: it has expired.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) owner: Ticket,
    pub(crate) left: u8,
    pub(crate) count: u8,
    pub(crate) serial: u8,
}

/// A server's data.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Server {
    pub(crate) record: Option<Record>,
    pub(crate) tombstones: Vec<Ticket>,
    pub(crate) token: u8,
}

impl Server {
    /// The record, unless it has expired.
    pub(crate) fn live(&self) -> Option<&Record> {
        self.record.as_ref().filter(|record| record.left > 0)
    }
}

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Body {
    Attempt,
    Renew,
    Release {
        tombstone: bool,
    },
    Undo,
    Granted {
        token: u8,
        serial: u8,
        acknowledged: bool,
    },
    Held {
        left: u8,
    },
    Withdrawn,
    Kept {
        acknowledged: bool,
    },
    Gone,
    Ended,
    Undone,
}

impl Body {
    pub(crate) fn is_request(self) -> bool {
        matches!(
            self,
            Self::Attempt | Self::Renew | Self::Release { .. } | Self::Undo
        )
    }

    /// It proves, or may come to prove, a lease.
    pub(crate) fn counts(self) -> bool {
        matches!(
            self,
            Self::Attempt | Self::Renew | Self::Granted { .. } | Self::Kept { .. }
        )
    }
}

/// A message on its way. In no order: connections are lost and made anew, and there are several.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Message {
    pub(crate) ticket: Ticket,
    pub(crate) body: Body,
    pub(crate) stamp: Stamp,
    /// Nobody waits for the answer any more.
    pub(crate) deaf: bool,
    /// It goes to, or comes from, the primary that was cut off.
    pub(crate) old: bool,
}

/// Where a client is in its acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    Idle,
    /// `gone`: the caller has left, and what comes of it is given back.
    Asking {
        gone: bool,
    },
    Undoing {
        gone: bool,
    },
    Refused {
        recheck: u8,
    },
    Sleeping {
        recheck: u8,
    },
    Paused,
    Holding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Life {
    Up,
    Frozen,
    Dead,
}

/// What a grant turned into.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Hold {
    pub(crate) proof: Stamp,
    pub(crate) told: bool,
}

/// A release or a withdrawal that goes on until it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Chore {
    pub(crate) ticket: Ticket,
    pub(crate) tombstone: bool,
}

/// What a holder may write to the resource, then or ever after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Pen {
    pub(crate) token: u8,
    /// Which grant it was, in the order in which they were decided: what tokens have to agree with.
    pub(crate) serial: u8,
}

#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts, each by itself"
)]
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) life: Life,
    pub(crate) phase: Phase,
    /// The number of the ticket in use.
    pub(crate) number: u8,
    /// A request of that ticket brought no answer.
    pub(crate) unclear: bool,
    pub(crate) hold: Option<Hold>,
    pub(crate) chores: Vec<Chore>,
    pub(crate) subscribed: bool,
    /// A wake-up is on its way.
    pub(crate) wake: bool,
    /// A wake-up has come and was not used yet.
    pub(crate) woken: bool,
    /// A wake-up was lost since the last question.
    pub(crate) missed: bool,
    /// It talks to the primary that was cut off.
    pub(crate) at_old: bool,
    pub(crate) pen: Option<Pen>,
}

impl Client {
    pub(crate) fn is_up(&self) -> bool {
        self.life == Life::Up
    }

    /// Its code may believe that it holds the lock.
    pub(crate) fn is_valid(&self) -> bool {
        let hold = self.hold.as_ref();
        self.life != Life::Dead && hold.is_some_and(|hold| !hold.told && hold.proof.proves())
    }

    /// Its deadline has passed and nobody has said so.
    pub(crate) fn is_overdue(&self) -> bool {
        let hold = self.hold.as_ref();
        hold.is_some_and(|hold| !hold.told && !hold.proof.proves())
    }
}
