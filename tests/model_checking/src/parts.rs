//! The parts of a state: servers, clients, messages. All times are relative to now, so that states that differ only in
//! their date are one state.

/// How long the store keeps a lock without a renewal, in ticks.
pub(crate) const LEASE: u8 = 4;
/// How far a clock may really fall behind within one lease, in ticks.
pub(crate) const DRIFT: u8 = 1;
/// How long a request proves the lock, counted from its sending: the lease minus 2 ticks. One tick is for clock drift,
/// the other for the time that a thread may take to wake up and report the loss.
pub(crate) const PROVED: u8 = 2;
/// The age of the proof from which a renewal may be sent.
pub(crate) const RENEW: u8 = 1;
/// How far a step moves the clock.
pub(crate) const JUMP: u8 = 2;
/// The value of a timer that never expires.
pub(crate) const NEVER: u8 = u8::MAX;
/// Bounds the background releases and withdrawals of a client. Steps that would exceed it are not explored.
pub(crate) const CHORES: usize = 2;

/// One acquisition: its client and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) client: u8,
    pub(crate) number: u8,
}

/// When a message was sent, relative to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Stamp {
    /// Ticks of the client's clock since then. It stops at `PROVED`: from there on the message proves nothing.
    pub(crate) age: u8,
    /// Ticks of the server's clock since then that the client's clock missed.
    pub(crate) skew: u8,
    /// The server's clock was stepped ahead, or the lock was freed by force, since then. The guarantees do not cover
    /// the lease until its next renewal.
    pub(crate) excused: bool,
}

impl Stamp {
    pub(crate) fn proves(self) -> bool {
        self.age < PROVED
    }
}

/// A server's record of the lock. `left` = 0: it has expired.
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

/// The content of a message.
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

    /// The message proves a lease, or its answer may.
    pub(crate) fn counts(self) -> bool {
        matches!(
            self,
            Self::Attempt | Self::Renew | Self::Granted { .. } | Self::Kept { .. }
        )
    }
}

/// A message in flight. Messages arrive in any order: connections break and reconnect, and a client has several.
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

/// The phase of a client's acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Phase {
    Idle,
    /// `gone`: the caller has left, so a grant is released at once.
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

/// A grant in use: its newest proof, and whether the holder was told of the loss.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Hold {
    pub(crate) proof: Stamp,
    pub(crate) told: bool,
}

/// A background release or withdrawal, repeated until it is answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Chore {
    pub(crate) ticket: Ticket,
    pub(crate) tombstone: bool,
}

/// The right of a holder to write to the resource. It never ends: a holder may write long after it lost the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Pen {
    pub(crate) token: u8,
    /// The number of the grant, in the order in which the server decided them. Tokens must have the same order.
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
    /// A request with this ticket got no answer.
    pub(crate) unclear: bool,
    pub(crate) hold: Option<Hold>,
    pub(crate) chores: Vec<Chore>,
    pub(crate) subscribed: bool,
    /// A wake is in flight.
    pub(crate) wake: bool,
    /// A wake has arrived and was not used yet.
    pub(crate) woken: bool,
    /// A wake was lost since the last attempt.
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

    /// Its deadline has passed and it was not told.
    pub(crate) fn is_overdue(&self) -> bool {
        let hold = self.hold.as_ref();
        hold.is_some_and(|hold| !hold.told && !hold.proof.proves())
    }
}
