//! Fair locks in SQL: see [`queue_sql`](crate::store::mysql::queue_sql).

use std::time::Duration;

use crate::store::Ticket;
use crate::store::beats::ALIVE;
use crate::store::fair_waiters::FairPosition;
use crate::store::mysql::queue_sql::{next_place, serve};
use crate::store::mysql::sql::{
    NEXT_TOKEN, NOW, free, hex, id, lock_row, mark_withdrawn, micros, owner, release, rest,
    withdrawn,
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

/// Releases the lock of the ticket, and hands it over. Answers: 1 if the ticket held it, and the owners that it was
/// handed over to, or an empty text.
pub(crate) fn release_and_hand_over(ticket: &Ticket) -> String {
    end(ticket, "")
}

/// As [`release_and_hand_over`]. The ticket also gives up its place. `may_arrive`: an attempt of it may still arrive, and
/// takes no effect then. Also answers 1 if a mark could be set.
pub(crate) fn withdraw_and_hand_over(ticket: &Ticket, may_arrive: bool) -> String {
    let mark = if may_arrive {
        format!("{}; ", mark_withdrawn(ticket))
    } else {
        String::new()
    };
    let leave = format!(
        "{mark}DELETE w FROM tidelock_waiters AS w FORCE INDEX (mine) \
         WHERE w.id = {id} AND w.client = {client} AND w.owner = {me}; ",
        id = id(&ticket.name),
        client = hex(ticket.owner.client()),
        me = owner(&ticket.owner),
    );
    end(ticket, &leave)
}

fn end(ticket: &Ticket, leave: &str) -> String {
    format!(
        "{lock}; {leave}{release} INTO @tidelock_freed; {serve}; \
         SELECT @tidelock_freed, COALESCE(@tidelock_next, ''), (SELECT COUNT(*) FROM tidelock_counter WHERE one = 1)",
        lock = lock_row(&ticket.name),
        release = release(ticket),
        serve = serve(&ticket.name),
    )
}
