//! The clients that poll for a lock: rows of the table of waiters, under an id that no lock has.
//!
//! Their transactions are single statements that lock nothing but their own row, and no attempt looks at them. An older
//! tidelock takes no notice of them, except that it sweeps those whose time is long over.

use crate::error::Result;
use crate::store::fair_waiters::COUNTED;
use crate::store::mysql::Mysql;
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::raw_connection::{TextRow, first, number};
use crate::store::mysql::sql::{NOW, hex, id, micros, owner};
use crate::store::{BoxFuture, Name, POLLER_BEAT, PollerBeat, Pollers, Ticket};

/// How long a poller counts after it has shown that it is alive. One of its beats may be lost: they come up to six seconds apart.
const ALIVE_BEATS: u32 = 3;

impl Pollers for Mysql {
    fn ahead<'a>(
        &'a self,
        ticket: &'a Ticket,
        beat: PollerBeat,
    ) -> BoxFuture<'a, Result<Option<u32>>> {
        Box::pin(async move {
            let text = count(ticket, beat);
            let rows = self.pool.ask(text, self.pool.deadline()).await;
            let rows = rows.map_err(RequestError::error)?;
            read_count(&rows)
        })
    }

    fn leave(&self, ticket: &Ticket) {
        self.pool.send(leave(ticket));
    }
}

/// Reads the answer to [`count`].
fn read_count(rows: &[TextRow]) -> Result<Option<u32>> {
    let row = first(rows)?;
    let ahead = u32::try_from(number(row, 0)?).unwrap_or(COUNTED);
    Ok((number(row, 1)? != 0).then_some(ahead))
}

/// The id of the pollers of a name. The byte in front is in no UTF-8, so it is the hash of no name.
fn pollers_id(name: &Name) -> String {
    format!("UNHEX(SHA2(CONCAT(x'ff', {}), 256))", id(name))
}

fn is_mine(row: &str, ticket: &Ticket) -> String {
    format!(
        "{row}.id = {} AND {row}.client = {} AND {row}.owner = {}",
        pollers_id(&ticket.name),
        hex(ticket.owner.client()),
        owner(&ticket.owner)
    )
}

/// Answers: how many are ahead, and how many rows the ticket has. Places are times: of two clients that join in the same
/// microsecond the second one has no row, and joins again with its next poll.
fn count(ticket: &Ticket, beat: PollerBeat) -> String {
    let (id, alive) = (pollers_id(&ticket.name), micros(POLLER_BEAT * ALIVE_BEATS));
    let shows = match beat {
        PollerBeat::Join => format!(
            "INSERT IGNORE INTO tidelock_waiters (id, place, owner, client, lease, alive) \
             VALUES ({id}, {NOW}, {me}, {client}, 0, {NOW} + {alive}); ",
            me = owner(&ticket.owner),
            client = hex(ticket.owner.client()),
        ),
        PollerBeat::Stay => format!(
            "UPDATE tidelock_waiters AS w FORCE INDEX (mine) SET w.alive = {NOW} + {alive} WHERE {}; ",
            is_mine("w", ticket)
        ),
        PollerBeat::Skip => String::new(),
    };
    let mine = format!(
        "tidelock_waiters AS m FORCE INDEX (mine) WHERE {}",
        is_mine("m", ticket)
    );
    format!(
        "{shows}SELECT COUNT(*), (SELECT COUNT(*) FROM {mine}) FROM (\
           SELECT 1 FROM tidelock_waiters AS w FORCE INDEX (PRIMARY) WHERE w.id = {id} AND w.alive > {NOW} \
             AND w.place < (SELECT MIN(m.place) FROM {mine}) LIMIT {COUNTED}) AS ahead"
    )
}

fn leave(ticket: &Ticket) -> String {
    format!(
        "DELETE w FROM tidelock_waiters AS w FORCE INDEX (mine) WHERE {}",
        is_mine("w", ticket)
    )
}
