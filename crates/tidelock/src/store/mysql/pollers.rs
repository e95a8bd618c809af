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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::LockKind;
    use crate::store::mysql::tests::{row, ticket};

    #[test]
    fn a_ticket_that_is_not_among_the_pollers_is_behind_nobody() {
        for (answer, ahead) in [
            ("0 1", Some(0)),
            ("3 1", Some(3)),
            ("3 2", Some(3)),
            ("3 0", None),
            ("99999999999 1", Some(COUNTED)),
        ] {
            assert_eq!(read_count(&[row(answer)]).unwrap(), ahead, "{answer}");
        }
        assert!(read_count(&[]).unwrap_err().outcome_unknown());
    }

    #[test]
    fn a_poller_writes_only_what_its_beat_shows() {
        let ticket = ticket(LockKind::Mutex);
        let mine = [hex(ticket.name.as_str()), owner(&ticket.owner)];
        for (beat, inserts, updates) in [
            (PollerBeat::Join, true, false),
            (PollerBeat::Stay, false, true),
            (PollerBeat::Skip, false, false),
        ] {
            let text = count(&ticket, beat);
            assert_eq!(text.contains("INSERT IGNORE INTO"), inserts, "{text}");
            assert_eq!(text.contains("UPDATE"), updates, "{text}");
            assert!(mine.iter().all(|mine| text.contains(mine)), "{text}");
            assert!(text.contains("w.place < "), "{text}");
            // It need not count more than the others of a crowd.
            assert!(text.contains(&format!("LIMIT {COUNTED})")), "{text}");
        }
        let text = leave(&ticket);
        assert!(mine.iter().all(|mine| text.contains(mine)), "{text}");
    }

    /// They come up to six seconds apart.
    #[test]
    fn a_poller_may_lose_one_of_its_beats() {
        let alive = micros(Duration::from_secs(6) * 2);
        let ticket = ticket(LockKind::Mutex);
        for beat in [PollerBeat::Join, PollerBeat::Stay] {
            let text = count(&ticket, beat);
            assert!(text.contains(&format!("{NOW} + {alive}")), "{text}");
        }
    }

    /// Otherwise an attempt would take the pollers of a fair lock for waiters.
    #[test]
    fn the_pollers_of_a_name_have_an_id_that_no_lock_has() {
        let ticket = ticket(LockKind::Mutex);
        let (own, of_lock) = (pollers_id(&ticket.name), id(&ticket.name));
        assert!(own.contains("x'ff'") && own.contains(&of_lock), "{own}");
        for text in [count(&ticket, PollerBeat::Stay), leave(&ticket)] {
            assert!(text.contains(&format!("w.id = {own} ")), "{text}");
            assert!(!text.contains(&format!("w.id = {of_lock}")), "{text}");
        }
    }
}
