//! What a worker tells the judge, as records of one size in one pipe.
//!
//! A write of up to 4096 bytes to a pipe is atomic, and the records of all processes are in the order in which their
//! writes were done. So a holder that tells of its entry after the grant, and of its leaving before the release, stands in
//! the pipe before the next holder. Both the judge and the workers of each build contain this file.

use std::time::Duration;

/// The size of a record in bytes.
pub(crate) const SIZE: usize = 48;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum What {
    /// A holder has been granted something.
    Enters,
    /// A holder is still sure of it, for longer now.
    Keeps,
    /// A holder is about to give it back.
    Leaves,
    /// A writer is about to become a reader.
    Downgrades,
    /// A reader has become a writer.
    Upgrades,
    /// An acquisition was dropped at a random moment.
    Drops,
    /// A wait ended at its time limit.
    TimesOut,
    /// A holder has been told that it has lost its hold.
    Loses,
    /// The store has no locks of this kind.
    Refuses,
    /// A member is about to come to a barrier.
    Comes,
    /// A member of a barrier has gone.
    Goes,
    /// A latch has got a new count.
    Sets,
    /// A latch is about to be counted down `amount` times at most.
    Counts,
    /// A waiter at a latch goes on.
    Passes,
    /// A job has ended well. `mark` is its slot.
    Succeeds,
    /// A job has not ended well, so its slot may be run again.
    Fails,
    /// The number of tasks of the process (`token`), and its longest wait in microseconds (`mark`) for a
    /// lock of that kind.
    Reports,
    /// The driver is about to kill this process: from now on it claims nothing.
    Dooms,
    /// The driver has seen the process end by itself: it should claim nothing.
    Ends,
}

/// All of them, by their numbers.
const WHAT: [What; 19] = [
    What::Enters,
    What::Keeps,
    What::Leaves,
    What::Downgrades,
    What::Upgrades,
    What::Drops,
    What::TimesOut,
    What::Loses,
    What::Refuses,
    What::Comes,
    What::Goes,
    What::Sets,
    What::Counts,
    What::Passes,
    What::Succeeds,
    What::Fails,
    What::Reports,
    What::Dooms,
    What::Ends,
];

/// How a holder shares its name with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// Nobody else.
    Alone,
    /// Other readers.
    Reads,
    /// Other readers, but none that may be upgraded.
    ReadsUpgradeably,
    /// Others, while all amounts together are not more than there are.
    Permits,
}

const MODES: [Mode; 4] = [
    Mode::Alone,
    Mode::Reads,
    Mode::ReadsUpgradeably,
    Mode::Permits,
];

/// What a task of a worker does again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    Lock,
    Fenced,
    Plain,
    Fair,
    Spin,
    Multi,
    Read,
    Write,
    Upgradeable,
    Permits,
    Counted,
    Latch,
    Barrier,
    Election,
    Once,
    Long,
}

impl Kind {
    pub(crate) const ALL: [Self; 16] = [
        Self::Lock,
        Self::Fenced,
        Self::Plain,
        Self::Fair,
        Self::Spin,
        Self::Multi,
        Self::Read,
        Self::Write,
        Self::Upgradeable,
        Self::Permits,
        Self::Counted,
        Self::Latch,
        Self::Barrier,
        Self::Election,
        Self::Once,
        Self::Long,
    ];

    /// The kinds of one group use the same names and exclude each other.
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Lock | Self::Fenced | Self::Spin | Self::Multi => "lock",
            Self::Plain => "plain",
            Self::Fair => "fair",
            Self::Read | Self::Write | Self::Upgradeable => "sides",
            Self::Permits => "permits",
            Self::Counted => "counted",
            Self::Latch => "latch",
            Self::Barrier => "barrier",
            Self::Election => "election",
            Self::Once => "once",
            Self::Long => "long",
        }
    }

    /// The number of names of this group in a store.
    #[allow(dead_code, reason = "only the workers choose")]
    pub(crate) fn names(self) -> u16 {
        match self {
            Self::Lock | Self::Fenced | Self::Spin | Self::Multi => 6,
            Self::Read | Self::Write | Self::Upgradeable => 4,
            Self::Fair | Self::Plain | Self::Permits | Self::Long => 2,
            // They take turns.
            Self::Latch => 16,
            _ => 1,
        }
    }

    /// As the column of a table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Fenced => "fenced",
            Self::Plain => "plain",
            Self::Fair => "fair",
            Self::Spin => "spin",
            Self::Multi => "multi",
            Self::Read => "read",
            Self::Write => "write",
            Self::Upgradeable => "upgradeable",
            Self::Permits => "permits",
            Self::Counted => "counted",
            Self::Latch => "latch",
            Self::Barrier => "barrier",
            Self::Election => "election",
            Self::Once => "once",
            Self::Long => "long",
        }
    }
}

/// All permits of a semaphore, the members of a barrier, and the count of a latch.
pub(crate) const PERMITS: u32 = 5;
#[allow(dead_code, reason = "a worker of an older build may have no barriers")]
pub(crate) const MEMBERS: u32 = 2;
pub(crate) const COUNT: u32 = 3;

/// How long the mark of a job's slot is kept, in seconds. A call that comes so late finds no mark and runs its slot again.
pub(crate) const MARKS_STAY: u64 = 300;

/// One record. Fields that do not apply are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) what: What,
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    /// False for a second or later part of one acquisition.
    pub(crate) counted: bool,
    /// The process: its place, and its number in that place.
    pub(crate) slot: u16,
    pub(crate) generation: u32,
    pub(crate) name: u16,
    pub(crate) amount: u32,
    /// The claim's number in its process.
    pub(crate) claim: u32,
    /// The fencing token; 0: none.
    pub(crate) token: u64,
    /// Microseconds of the boot clock: the moment, and the end of the time for which the guard is sure of its hold.
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// The slot of a job, the turn of a latch's name, or another number.
    pub(crate) mark: u64,
}

impl Record {
    pub(crate) fn new(what: What, kind: Kind) -> Self {
        Self {
            what,
            kind,
            mode: Mode::Alone,
            counted: true,
            slot: 0,
            generation: 0,
            name: 0,
            amount: 0,
            claim: 0,
            token: 0,
            from: 0,
            until: 0,
            mark: 0,
        }
    }

    pub(crate) fn bytes(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[0] = self.what as u8;
        bytes[1] = self.kind as u8;
        bytes[2] = self.mode as u8 | u8::from(self.counted) << 7;
        // An amount is a few permits.
        bytes[3] = u8::try_from(self.amount).unwrap_or(u8::MAX);
        bytes[4..6].copy_from_slice(&self.slot.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.name.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.generation.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.claim.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.token.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.from.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.until.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.mark.to_le_bytes());
        bytes
    }

    /// `None`: these bytes are no record.
    #[allow(dead_code, reason = "only the judge reads")]
    pub(crate) fn read(bytes: &[u8; SIZE]) -> Option<Self> {
        let number = |from: usize, till: usize| {
            let mut wide = [0; 8];
            wide[..till - from].copy_from_slice(&bytes[from..till]);
            u64::from_le_bytes(wide)
        };
        let [what, kind, mode, amount, ..] = *bytes;
        Some(Self {
            what: *WHAT.get(usize::from(what))?,
            kind: *Kind::ALL.get(usize::from(kind))?,
            mode: *MODES.get(usize::from(mode & 0x7f))?,
            counted: mode & 0x80 != 0,
            amount: u32::from(amount),
            slot: u16::try_from(number(4, 6)).ok()?,
            name: u16::try_from(number(6, 8)).ok()?,
            generation: u32::try_from(number(8, 12)).ok()?,
            claim: u32::try_from(number(12, 16)).ok()?,
            token: number(16, 24),
            from: number(24, 32),
            until: number(32, 40),
            mark: number(40, 48),
        })
    }
}

/// The current time in microseconds, on a clock that all processes share.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
