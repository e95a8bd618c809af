//! The cursor of a list: where it goes on, and when it has to start again.
//!
//! The cursor of a server is a position in the memory of one process, and the number of a server one in the list of servers. After a
//! failover or a restart, either may stand for something else, and the list would leave out locks.

use std::fmt;
use std::sync::Arc;

use crate::store::redis::topology::live_connection::LiveConnection;

/// Where a list goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ListCursor {
    /// How many scans are done: of each server one for each type of key.
    pub(super) scan: usize,
    /// The server's own cursor.
    position: u64,
    /// The connection on which the server gave it: another one may lead to another process.
    connection: u64,
    /// The servers of the list.
    map: u64,
}

impl ListCursor {
    /// The cursor behind this page of a list that goes through these servers. With other servers than before the list starts
    /// again. `None`: it is no cursor.
    pub(super) fn of(after: Option<&str>, map: u64) -> Option<Self> {
        let start = Self {
            map,
            ..Self::default()
        };
        let cursor = after.map_or(Some(start), parse)?;
        Some(if cursor.map == map { cursor } else { start })
    }

    /// The cursor to send on this connection. With another one than before the scan of the server starts again.
    pub(super) fn of_server(self, conn: &Arc<LiveConnection>) -> u64 {
        if self.connection == conn.server.number.0 {
            self.position
        } else {
            0
        }
    }

    /// The cursor after the answer of the server on this connection.
    pub(super) fn at(self, position: u64, conn: &Arc<LiveConnection>) -> Self {
        Self {
            position,
            connection: conn.server.number.0,
            ..self
        }
    }

    pub(super) fn next_scan(self) -> Self {
        Self {
            scan: self.scan + 1,
            position: 0,
            connection: 0,
            ..self
        }
    }
}

impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            scan,
            position,
            connection,
            map,
        } = self;
        write!(f, "{scan}.{position}.{connection}.{map}")
    }
}

fn parse(text: &str) -> Option<ListCursor> {
    let mut parts = text.split('.');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (scan, position, connection, map) = (number()?, number()?, number()?, number()?);
    Some(ListCursor {
        scan: usize::try_from(scan).ok()?,
        position,
        connection,
        map,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_starts_again_with_other_servers_and_ends_after_what_is_no_cursor() {
        let cursor = ListCursor {
            scan: 3,
            position: u64::MAX,
            connection: 5,
            map: 7,
        };
        let text = cursor.to_string();
        let start = |map| ListCursor {
            map,
            ..ListCursor::default()
        };
        assert_eq!(ListCursor::of(Some(&text), 7), Some(cursor));
        assert_eq!(ListCursor::of(Some(&text), 8), Some(start(8)));
        assert_eq!(ListCursor::of(None, 7), Some(start(7)));
        for text in ["", "17", "x", "1.2.3", "1.2.3.x", "-1.2.3.4"] {
            assert_eq!(ListCursor::of(Some(text), 7), None, "{text}");
        }
    }
}
