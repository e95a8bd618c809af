//! What the rows of the screen are about, and which of them comes first.

use std::cmp::Reverse;

use crate::top::picture::{LockRow, ProcessRow};

/// What the rows are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Locks,
    /// The contended locks, each with who waits for it.
    Queues,
    Processes,
    /// Elections, and jobs that run once.
    Leaders,
    /// What has changed from picture to picture.
    Events,
}

impl View {
    pub(super) const ALL: [Self; 5] = [
        Self::Locks,
        Self::Queues,
        Self::Processes,
        Self::Leaders,
        Self::Events,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Locks => "Locks",
            Self::Queues => "Queues",
            Self::Processes => "Processes",
            Self::Leaders => "Leaders+once",
            Self::Events => "Events",
        }
    }

    pub(super) fn next(self) -> Self {
        match self {
            Self::Locks => Self::Queues,
            Self::Queues => Self::Processes,
            Self::Processes => Self::Leaders,
            Self::Leaders => Self::Events,
            Self::Events => Self::Locks,
        }
    }
}

/// Which row comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Wait,
    Held,
    Name,
}

impl Order {
    /// What it is of a lock, and what it is of a process: nobody tells how long a process as a whole has waited.
    pub(super) fn title(self, view: View) -> &'static str {
        match (self, view) {
            (_, View::Events) => "time, the newest first",
            (_, View::Leaders) => "name, leaders first",
            (Self::Wait, View::Processes) => "most waits",
            (Self::Held, View::Processes) => "most holds",
            (Self::Wait, _) => "longest wait",
            (Self::Held, _) => "longest held",
            (Self::Name, _) => "name",
        }
    }

    pub(super) fn next(self) -> Self {
        match self {
            Self::Wait => Self::Held,
            Self::Held => Self::Name,
            Self::Name => Self::Wait,
        }
    }

    pub(super) fn sort_locks(self, locks: &mut [&LockRow]) {
        match self {
            Self::Wait => {
                locks.sort_by_key(|lock| Reverse((lock.longest, lock.waiters, lock.held_for)));
            }
            Self::Held => locks.sort_by_key(|lock| Reverse(lock.held_for)),
            Self::Name => locks.sort_by(|a, b| a.name.cmp(&b.name)),
        }
    }

    pub(super) fn sort_processes(self, processes: &mut [&ProcessRow]) {
        match self {
            Self::Wait => processes.sort_by_key(|process| Reverse(process.waiting)),
            Self::Held => processes.sort_by_key(|process| Reverse(process.held)),
            Self::Name => processes.sort_by(|a, b| a.who.cmp(&b.who)),
        }
    }
}
