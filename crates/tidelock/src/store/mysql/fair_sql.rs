//! The queue of fair locks in SQL. Each change is one text that the server runs as one transaction. It locks the lock's
//! row first. So the changes of one queue come one after the other, and each statement sees all that those before it
//! have changed.
//!
//! The statements on the queue force an index that begins with the name. Another plan could wait for the rows of other
//! queues, whose transactions could wait for ours.

use std::time::Duration;

use crate::store::beats::ALIVE;
use crate::store::fair_waiters::{COUNTED, FairPosition};
use crate::store::mysql::sql::{
    NOW, SWEPT, hex, id, mark_withdrawn, micros, new_row, owner, release, withdrawn,
};
use crate::store::{Name, Ticket};

/// The name of the table of the waiters.
pub(crate) const WAITERS: &str = "tidelock_waiters";

/// The table of the waiters, in the order of their places.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS tidelock_waiters (\n\
    \x20 id BINARY(32) NOT NULL, -- SHA-256 of the name\n\
    \x20 place BIGINT NOT NULL,\n\
    \x20 owner VARBINARY(128) NOT NULL,\n\
    \x20 client VARBINARY(64) NOT NULL,\n\
    \x20 lease BIGINT UNSIGNED NOT NULL, -- microseconds\n\
    \x20 alive BIGINT NOT NULL, -- until then its process counts as alive: microseconds since 1970\n\
    \x20 PRIMARY KEY (id, place),\n\
    \x20 KEY mine (id, client, owner)\n\
    ) ENGINE = InnoDB";

/// How long the row of a dead waiter is kept in a queue that nobody uses, in microseconds.
const DEAD_TTL_MICROS: u64 = 3_600_000_000;

/// Locks the row of the lock, and makes it if there is none. Notes whether a grant may change the row now: a fence in a
/// user's transaction keeps out grants, but no release. We do not wait for the fence, because a release that waits for it
/// would come too late.
fn lock_row(name: &Name) -> String {
    format!(
        "{insert} ON DUPLICATE KEY UPDATE id = tidelock_locks.id; \
         SELECT COUNT(*) INTO @tidelock_open FROM tidelock_locks FORCE INDEX (granted) WHERE id = {id} FOR UPDATE SKIP LOCKED",
        insert = new_row(name, "''", NOW, 0, "''"),
        id = id(name),
    )
}

/// The next token of the row `l`. A raised counter is followed.
const NEXT_TOKEN: &str =
    "GREATEST(l.token + 1, (SELECT c.token + 1 FROM tidelock_counter AS c WHERE c.one = 1))";

/// Removes waiters that are not alive, and grants the lock to the first one if it is free. `@tidelock_next` is the owner
/// of that grant, or NULL.
fn hand_over(name: &Name) -> String {
    let (id, unconfirmed) = (id(name), micros(ALIVE));
    format!(
        "DELETE w FROM tidelock_waiters AS w FORCE INDEX (PRIMARY) WHERE w.id = {id} AND w.alive <= {NOW}; \
         SET @tidelock_place = (SELECT MIN(w.place) FROM tidelock_waiters AS w FORCE INDEX (PRIMARY) WHERE w.id = {id} \
           AND @tidelock_open AND EXISTS (SELECT 1 FROM tidelock_locks AS l WHERE l.id = {id} AND l.expires <= {NOW})); \
         SET @tidelock_next = (SELECT w.owner FROM tidelock_waiters AS w FORCE INDEX (PRIMARY) \
           WHERE w.id = {id} AND w.place = @tidelock_place); \
         UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) JOIN tidelock_waiters AS w FORCE INDEX (PRIMARY) \
           ON w.id = l.id AND w.place = @tidelock_place \
           SET l.token = {NEXT_TOKEN}, l.owner = w.owner, l.expires = {NOW} + LEAST(w.lease, {unconfirmed}) WHERE l.id = {id}; \
         DELETE w FROM tidelock_waiters AS w FORCE INDEX (PRIMARY) WHERE w.id = {id} AND w.place = @tidelock_place"
    )
}

/// An attempt. Answers as that of a lock without a queue; then the owner to which the lock was handed over, or an empty
/// text.
pub(crate) fn attempt(ticket: &Ticket, lease: Duration, position: FairPosition) -> String {
    let Ticket { name, .. } = ticket;
    let (id, me, lease) = (id(name), owner(&ticket.owner), micros(lease));
    let withdrawn = withdrawn(ticket);
    format!(
        "{lock}; {queue}; {hand_over}; \
         UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) SET l.expires = GREATEST(l.expires, {NOW} + {lease}) \
           WHERE l.id = {id} AND l.owner = {me} AND l.expires > {NOW} AND NOT {withdrawn}; \
         SELECT l.owner = {me} AND l.expires > {NOW}, GREATEST(l.expires - {NOW}, 0), l.token, {withdrawn}, \
           COALESCE(@tidelock_next, '') FROM tidelock_locks AS l WHERE l.id = {id}",
        lock = lock_row(name),
        queue = take_place(ticket, lease, position),
        hand_over = hand_over(name),
    )
}

/// Puts the waiter into the queue, unless it has a place. Without a place it gets a free lock only if nobody waits.
fn take_place(ticket: &Ticket, lease: u64, position: FairPosition) -> String {
    let (id, me) = (id(&ticket.name), owner(&ticket.owner));
    let withdrawn = withdrawn(ticket);
    let next = match position {
        FairPosition::None => {
            return format!(
                "UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) \
                 SET l.token = {NEXT_TOKEN}, l.owner = {me}, l.expires = {NOW} + {lease} \
                 WHERE l.id = {id} AND @tidelock_open AND l.expires <= {NOW} AND NOT {withdrawn} \
                   AND NOT EXISTS (SELECT 1 FROM tidelock_waiters AS w WHERE w.id = {id} AND w.alive > {NOW})"
            );
        }
        FairPosition::Last => "COALESCE(MAX(w.place), 0) + 1",
        FairPosition::First => "COALESCE(MIN(w.place), 0) - 1",
    };
    let client = hex(ticket.owner.client());
    let alive = micros(ALIVE);
    let mine = format!("w.id = {id} AND w.client = {client} AND w.owner = {me}");
    format!(
        "UPDATE tidelock_waiters AS w FORCE INDEX (mine) SET w.alive = {NOW} + {alive} WHERE {mine}; \
         SET @tidelock_placed = (SELECT COUNT(*) FROM tidelock_waiters AS w FORCE INDEX (mine) WHERE {mine}); \
         SET @tidelock_place = (SELECT {next} FROM tidelock_waiters AS w FORCE INDEX (PRIMARY) WHERE w.id = {id}); \
         INSERT INTO tidelock_waiters (id, place, owner, client, lease, alive) \
         SELECT {id}, @tidelock_place, {me}, {client}, {lease}, {NOW} + {alive} FROM tidelock_locks AS l FORCE INDEX (PRIMARY) \
         WHERE l.id = {id} AND @tidelock_placed = 0 AND NOT {withdrawn} AND NOT (l.owner = {me} AND l.expires > {NOW})"
    )
}

/// Releases the lock of the ticket, and hands it over. Answers: 1 if the ticket held it, and the owner to which it was
/// handed over, or an empty text.
pub(crate) fn release_and_hand_over(ticket: &Ticket) -> String {
    end(ticket, "")
}

/// As [`release_and_hand_over`]. The ticket also gives up its place, and later attempts of it take no effect.
pub(crate) fn withdraw_and_hand_over(ticket: &Ticket) -> String {
    let leave = format!(
        "{mark}; DELETE w FROM tidelock_waiters AS w FORCE INDEX (mine) \
         WHERE w.id = {id} AND w.client = {client} AND w.owner = {me}; ",
        mark = mark_withdrawn(ticket),
        id = id(&ticket.name),
        client = hex(ticket.owner.client()),
        me = owner(&ticket.owner),
    );
    end(ticket, &leave)
}

fn end(ticket: &Ticket, leave: &str) -> String {
    format!(
        "{lock}; {leave}{release} INTO @tidelock_freed; {hand_over}; \
         SELECT @tidelock_freed, COALESCE(@tidelock_next, ''), (SELECT COUNT(*) FROM tidelock_counter WHERE one = 1)",
        lock = lock_row(&ticket.name),
        release = release(ticket),
        hand_over = hand_over(&ticket.name),
    )
}

/// Hands the lock over, and looks. `beat`: also shows that this client is alive.
pub(crate) fn hand_over_and_look(name: &Name, client: &str, beat: bool) -> String {
    let beat = if beat {
        format!(
            "UPDATE tidelock_waiters AS w FORCE INDEX (mine) SET w.alive = {NOW} + {alive} WHERE w.id = {id} AND w.client = {client}; ",
            alive = micros(ALIVE),
            id = id(name),
            client = hex(client),
        )
    } else {
        String::new()
    };
    format!(
        "{lock}; {beat}{hand_over}; {look}",
        lock = lock_row(name),
        hand_over = hand_over(name),
        look = look(name, client),
    )
}

/// A look at the queue, which locks nothing. Answers, in a row for each waiter of this client, or in one row: the rest
/// of the holder's lease, how many are ahead of its waiters, and the waiter.
pub(crate) fn look(name: &Name, client: &str) -> String {
    let (id, client) = (id(name), hex(client));
    format!(
        "SELECT GREATEST(l.expires - {NOW}, 0), \
           (SELECT COUNT(*) FROM (SELECT 1 FROM tidelock_waiters AS w FORCE INDEX (PRIMARY) WHERE w.id = {id} AND w.place < \
             (SELECT MIN(m.place) FROM tidelock_waiters AS m FORCE INDEX (mine) WHERE m.id = {id} AND m.client = {client}) \
             LIMIT {COUNTED}) AS ahead), \
           COALESCE(w.owner, '') \
         FROM tidelock_locks AS l LEFT JOIN tidelock_waiters AS w FORCE INDEX (mine) ON w.id = l.id AND w.client = {client} \
         WHERE l.id = {id}"
    )
}

/// Deletes dead waiters of queues that nobody uses. It chooses them without a lock, and locks only their rows.
pub(crate) fn sweep() -> String {
    let dead = format!("alive <= {NOW} - {DEAD_TTL_MICROS}");
    format!(
        "DELETE w FROM (SELECT id, place FROM tidelock_waiters WHERE {dead} LIMIT {SWEPT}) AS old \
         STRAIGHT_JOIN tidelock_waiters AS w FORCE INDEX (PRIMARY) ON w.id = old.id AND w.place = old.place WHERE w.{dead}"
    )
}
