//! T69 and T76: the two processes that supervise a command, and a store that refuses connections.

use super::{Answer, NO_SERVER, ONE_PROCESS, Row, SAME_SERVER, row};
use crate::store::Store::{Memory, Plain, Redlock, Replicas, Sqlite};

pub(super) const ROWS: [Row; 2] = [
    row(
        69,
        "tidelock run: the supervisor frozen alone, both killed by name",
        |store| match store {
            Memory => Answer::no(ONE_PROCESS),
            Sqlite => Answer::own(),
            _ => Answer::no("the command does not know its store; shown on sqlite, its default"),
        },
    ),
    row(
        76,
        "a server full of clients, busy, slow or not there yet at connect",
        |store| match store {
            Memory | Sqlite => Answer::no(NO_SERVER),
            Plain | Replicas | Redlock => Answer::no(SAME_SERVER),
            _ => Answer::own(),
        },
    ),
];
