//! T69: the two processes that watch over a command.

use super::{Answer, ONE_PROCESS, Row, row};
use crate::store::Store::{Memory, Sqlite};

pub(super) const ROWS: [Row; 1] = [row(
    69,
    "tidelock run: the supervisor frozen alone, both killed by name",
    |store| match store {
        Memory => Answer::no(ONE_PROCESS),
        Sqlite => Answer::own(),
        _ => Answer::no("the command does not know its store; shown on sqlite, its default"),
    },
)];
