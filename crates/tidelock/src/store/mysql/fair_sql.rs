//! Fair locks in SQL: see [`queue_sql`](crate::store::mysql::queue_sql).

use std::time::Duration;

use crate::store::Ticket;
use crate::store::beats::ALIVE;
use crate::store::fair_waiters::FairPosition;
use crate::store::mysql::queue_sql::{end_ticket, next_place, serve};
use crate::store::mysql::sql::{
    NEXT_TOKEN, NOW, free, hex, id, lock_row, micros, owner, release, rest, withdrawn,
};

/// An attempt. Answers as that of a lock without a queue; then the owners that the lock was handed over to, or an empty
/// text.
pub(crate) fn attempt(ticket: &Ticket, lease: Duration, position: FairPosition) -> String {
    let Ticket { name, .. } = ticket;
    let (id, me, lease) = (id(name), owner(&ticket.owner), micros(lease));
    let withdrawn = withdrawn(ticket);
    format!(
        "{lock}; {queue}; {serve}; \
         UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) SET l.expires = GREATEST(l.expires, {NOW} + {lease}) \
           WHERE l.id = {id} AND l.owner = {me} AND l.expires > {NOW} AND NOT {withdrawn}; \
         SELECT l.owner = {me} AND l.expires > {NOW}, {rest}, l.token, {withdrawn}, \
           COALESCE(@tidelock_next, '') FROM tidelock_locks AS l WHERE l.id = {id}",
        lock = lock_row(name),
        queue = take_place(ticket, lease, position),
        serve = serve(name),
        rest = rest("l"),
    )
}

/// Puts the waiter into the queue, unless it has a place. Without a place it gets a free lock only if nobody waits.
fn take_place(ticket: &Ticket, lease: u64, position: FairPosition) -> String {
    let (id, me) = (id(&ticket.name), owner(&ticket.owner));
    let withdrawn = withdrawn(ticket);
    if position == FairPosition::None {
        return format!(
            "UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) \
                 SET l.token = {NEXT_TOKEN}, l.owner = {me}, l.expires = {NOW} + {lease} \
                 WHERE l.id = {id} AND @tidelock_open AND {free} AND NOT {withdrawn} \
                   AND NOT EXISTS (SELECT 1 FROM tidelock_waiters AS w WHERE w.id = {id} AND w.alive > {NOW}) \
                   AND NOT EXISTS (SELECT 1 FROM tidelock_sides AS s WHERE s.id = {id} AND s.held_as IS NULL AND s.ends > {NOW})",
            free = free("l"),
        );
    }
    let next = next_place(&ticket.name, position);
    let client = hex(ticket.owner.client());
    let alive = micros(ALIVE);
    let mine = format!("w.id = {id} AND w.client = {client} AND w.owner = {me}");
    format!(
        "UPDATE tidelock_waiters AS w FORCE INDEX (mine) SET w.alive = {NOW} + {alive} WHERE {mine}; \
         SET @tidelock_placed = (SELECT COUNT(*) FROM tidelock_waiters AS w FORCE INDEX (mine) WHERE {mine}); \
         SET @tidelock_place = {next}; \
         INSERT INTO tidelock_waiters (id, place, owner, client, lease, alive) \
         SELECT {id}, @tidelock_place, {me}, {client}, {lease}, {NOW} + {alive} FROM tidelock_locks AS l FORCE INDEX (PRIMARY) \
         WHERE l.id = {id} AND @tidelock_placed = 0 AND NOT {withdrawn} AND NOT (l.owner = {me} AND l.expires > {NOW})"
    )
}

/// Releases the lock of the ticket, and hands it over. Answers as [`end_ticket`].
pub(crate) fn release_and_hand_over(ticket: &Ticket) -> String {
    end_ticket(ticket, &release_and_count(ticket), false, true)
}

/// Releases the lock of the ticket, and gives up its place. `may_arrive`, `serves` and the answer: see
/// [`end_ticket`].
pub(crate) fn withdraw(ticket: &Ticket, may_arrive: bool, serves: bool) -> String {
    let ends = format!(
        "DELETE w FROM tidelock_waiters AS w FORCE INDEX (mine) \
         WHERE w.id = {id} AND w.client = {client} AND w.owner = {me}; {release}",
        id = id(&ticket.name),
        client = hex(ticket.owner.client()),
        me = owner(&ticket.owner),
        release = release_and_count(ticket),
    );
    end_ticket(ticket, &ends, may_arrive, serves)
}

fn release_and_count(ticket: &Ticket) -> String {
    format!("{} INTO @tidelock_freed", release(ticket))
}
