//! The turn to write: which connection asks SQLite for its write lock next.
//!
//! SQLite gives that lock to whoever asks while it is free. A process that has one request after another asks again right
//! after each commit, and the others ask once in a millisecond. On a busy machine they could ask in vain until their
//! requests failed and their leases ended. So a connection takes the turn before it asks, and keeps it until it may
//! write. The one that has just written waits meanwhile.

use std::path::Path;
use std::time::Instant;

use crate::store::sqlite::busy;
use crate::store::sqlite::byte_locks::ByteLocks;

/// The byte of `-lock` that stands for the turn. The bytes of a name are never the fourth of four.
const TURN: i64 = 3;

#[derive(Debug)]
pub(crate) struct WriteTurn {
    /// `None`: this system has no such locks. Its processes compete.
    bytes: Option<ByteLocks>,
    /// The last wait was in vain: the process that has the turn may be frozen. We wait again once the turn was free.
    is_stuck: bool,
}

impl WriteTurn {
    /// For a connection to the file with this `-lock`.
    pub(crate) fn beside(lock: &Path) -> Self {
        Self {
            bytes: ByteLocks::on(lock).ok(),
            is_stuck: false,
        }
    }

    /// Waits for the turn, at most for a quarter of the time that the request has left. Afterwards the caller asks SQLite
    /// with or without the turn: it is fair to others, but no right to write.
    pub(crate) fn take(&mut self) -> Option<TakenTurn<'_>> {
        let bytes = self.bytes.as_ref()?;
        let end = busy::left().and_then(|left| Instant::now().checked_add(left / 4));
        let may_wait = || end.is_some_and(|end| Instant::now() < end);
        let mut tries = 0;
        // An error of the kernel is no reason to wait.
        while !bytes.try_lock(TURN).unwrap_or(true) {
            if self.is_stuck || !may_wait() || !busy::still_busy(tries) {
                self.is_stuck = true;
                return None;
            }
            tries += 1;
        }
        self.is_stuck = false;
        Some(TakenTurn(bytes))
    }
}

/// The turn of this connection. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct TakenTurn<'a>(&'a ByteLocks);

impl Drop for TakenTurn<'_> {
    fn drop(&mut self) {
        self.0.unlock(TURN);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a helper that fails ends the test")]

    use std::time::Duration;

    use super::*;
    use crate::store::sqlite::queue_place::NameBytes;

    /// A new file for the locks on bytes.
    fn file() -> tempfile::NamedTempFile {
        tempfile::NamedTempFile::new().unwrap()
    }

    #[test]
    fn a_frozen_process_with_the_turn_delays_a_writer_once() {
        let file = file();
        let frozen = ByteLocks::on(file.path()).unwrap();
        assert!(frozen.try_lock(TURN).unwrap());
        let mut own = WriteTurn::beside(file.path());
        let patience = Duration::from_millis(200);
        for is_first in [true, false] {
            busy::be_patient_for(patience);
            let begun = Instant::now();
            assert!(own.take().is_none());
            assert!(!is_first || begun.elapsed() >= patience / 4);
            assert!(busy::left().is_some() || begun.elapsed() > patience);
            assert!(own.is_stuck);
        }
        frozen.unlock(TURN);
        assert!(own.take().is_some());
        assert!(!own.is_stuck, "it waits again");
    }

    #[test]
    fn a_turn_that_has_ended_is_free_for_the_next_writer() {
        let file = file();
        let [mut one, mut other] = [(); 2].map(|()| WriteTurn::beside(file.path()));
        busy::be_patient_for(Duration::ZERO);
        let taken = one.take();
        assert!(taken.is_some() && other.take().is_none());
        drop(taken);
        assert!(other.take().is_some());
    }

    /// Otherwise a waiter for a lock of that name would keep all writers waiting.
    #[test]
    fn no_name_has_the_byte_of_the_turn() {
        for name in ["", "stock", "a", "till", "migration"] {
            let NameBytes {
                held,
                first,
                second,
            } = NameBytes::of(name);
            assert!([held, first, second].iter().all(|byte| byte % 4 != TURN));
        }
    }

    #[test]
    fn without_a_file_for_the_turns_writers_compete() {
        assert!(
            WriteTurn::beside(Path::new("no such file"))
                .take()
                .is_none()
        );
    }
}
