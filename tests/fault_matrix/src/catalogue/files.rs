//! T66, T67 and T74: the lock file, its paths and the files beside it, and many processes that wait.

use super::{Answer, ELSEWHERE, ONE_PROCESS, Row, only, row};
use crate::store::Store::{self, Memory, Sqlite};

pub(super) const ROWS: [Row; 3] = [
    row(
        66,
        "the lock file has two paths: hard links, mounts, a new name",
        of_the_file,
    ),
    row(
        67,
        "-wal, -shm or -lock removed or replaced under a holder",
        of_the_file,
    ),
    row(
        74,
        "hundreds of processes wait for one name of a lock file",
        |store| match store {
            Memory => Answer::no(ONE_PROCESS),
            Sqlite => Answer::own(),
            _ => Answer::no("its server queues the requests; a crowd of waiters is T48"),
        },
    ),
];

fn of_the_file(store: Store) -> Answer {
    only(store, &[Sqlite], ELSEWHERE)
}
