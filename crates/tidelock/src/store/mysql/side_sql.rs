//! Read-write locks in SQL: see [`queue_sql`](crate::store::mysql::queue_sql).

use std::time::Duration;

use crate::snapshot::Snapshot;
use crate::store::beats::ALIVE;
use crate::store::fair_waiters::FairPosition;
use crate::store::mysql::queue_sql::{end_ticket, is_upgradeable, next_place, remove_dead, serve};
use crate::store::mysql::sql::{
    NEXT_TOKEN, NOW, hex, id, lock_row, micros, owner, rest, withdrawn,
};
use crate::store::side_order::Follows;
use crate::store::{Name, OwnerId, Renewal, Ticket};

/// The row `s` of a holder or waiter, as a condition.
fn is_row_of(name: &Name, of: &OwnerId) -> String {
    format!(
        "s.id = {} AND s.client = {} AND s.owner = {}",
        id(name),
        hex(of.client()),
        owner(of)
    )
}

/// Joins the row `l` of the lock that a holder has entered under.
const HOLDS: &str =
    "JOIN tidelock_locks AS l FORCE INDEX (PRIMARY) ON l.id = s.id AND l.owner = s.held_as";

/// Frees the lock if its holders read or write, and are in `seen`. Answers: 1 if it was freed.
pub(crate) fn force_if(name: &Name, seen: &Snapshot) -> String {
    let id = id(name);
    let owners = seen.owners().map(hex).collect::<Vec<_>>().join(", ");
    let token = seen
        .token
        .map_or_else(String::new, |token| format!(" AND l.token = {token}"));
    let inside = format!(
        "SELECT 1 FROM tidelock_sides AS s FORCE INDEX (PRIMARY) WHERE s.id = {id} AND s.held_as = l.owner AND s.ends > {NOW}"
    );
    // Nobody enters while the row is locked.
    format!(
        "{lock}; UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) SET l.owner = '', l.expires = {NOW} \
           WHERE l.id = {id} AND l.expires > {NOW} AND EXISTS ({inside}) AND NOT EXISTS ({inside} AND s.owner NOT IN ({owners})){token}; \
         SELECT ROW_COUNT()",
        lock = lock_row(name),
    )
}

/// Whether the row `u` is that of an upgradeable reader that holds the lock.
fn reads_upgradeably(name: &Name, reader: &OwnerId) -> String {
    format!(
        "EXISTS (SELECT 1 FROM tidelock_sides AS u FORCE INDEX (mine) WHERE u.id = {id} AND u.client = {client} \
           AND u.owner = {reader} AND {is} AND u.held_as = l.owner AND u.ends > {NOW} AND l.expires > {NOW})",
        id = id(name),
        client = hex(reader.client()),
        reader = owner(reader),
        is = is_upgradeable("u"),
    )
}

/// An attempt. Answers as that for a fair lock; then 1 if no fence keeps out a grant; then, for an upgrade, 1 if its reader
/// holds the lock.
pub(crate) fn attempt(
    ticket: &Ticket,
    lease: Duration,
    position: FairPosition,
    follows: Follows<'_>,
) -> String {
    let (name, lease) = (&ticket.name, micros(lease));
    let (id, mine) = (id(name), is_row_of(name, &ticket.owner));
    let (place, allowed) = match follows {
        Follows::Upgradeable(reader) => (FairPosition::First, reads_upgradeably(name, reader)),
        Follows::Nobody | Follows::Writer(_) => (position, "1".to_owned()),
    };
    let enters = match follows {
        Follows::Writer(writer) => {
            format!("SET @tidelock_next = NULL; {}", join(ticket, lease, writer))
        }
        Follows::Nobody | Follows::Upgradeable(_) => {
            let takes_place = take_place(ticket, lease, place, &allowed);
            format!("{takes_place}; {}", serve(name))
        }
    };
    // Without patience the ticket takes a place only for the decision.
    let leaves = if position == FairPosition::None {
        format!(
            "DELETE s FROM tidelock_sides AS s FORCE INDEX (mine) WHERE {mine} AND s.held_as IS NULL; "
        )
    } else {
        String::new()
    };
    format!(
        "{lock}; {dead}; {enters}; {leaves}\
         UPDATE tidelock_sides AS s FORCE INDEX (mine) {HOLDS} SET s.ends = GREATEST(s.ends, {NOW} + {lease}) \
           WHERE {mine} AND l.expires > {NOW}; \
         UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) JOIN tidelock_sides AS s FORCE INDEX (mine) ON s.id = l.id AND s.held_as = l.owner \
           SET l.expires = GREATEST(l.expires, s.ends) WHERE l.id = {id} AND {mine} AND l.expires > {NOW}; \
         SELECT s.owner IS NOT NULL, {rest}, COALESCE(s.token, 0), {withdrawn}, \
           COALESCE(@tidelock_next, ''), @tidelock_open, @tidelock_allowed \
         FROM tidelock_locks AS l LEFT JOIN tidelock_sides AS s FORCE INDEX (mine) \
           ON {mine} AND s.held_as = l.owner AND l.expires > {NOW} WHERE l.id = {id}",
        lock = lock_row(name),
        dead = remove_dead(name),
        rest = rest("l"),
        withdrawn = withdrawn(ticket),
    )
}

/// Puts the ticket into the queue, unless it has a place or holds the lock, and if it may: `allowed`.
fn take_place(ticket: &Ticket, lease: u64, position: FairPosition, allowed: &str) -> String {
    let Ticket { kind, name, .. } = ticket;
    let mine = is_row_of(name, &ticket.owner);
    format!(
        "UPDATE tidelock_sides AS s FORCE INDEX (mine) SET s.ends = {NOW} + {alive} WHERE {mine} AND s.held_as IS NULL; \
         SET @tidelock_placed = (SELECT COUNT(*) FROM tidelock_sides AS s FORCE INDEX (mine) WHERE {mine}), \
           @tidelock_place = {next}, \
           @tidelock_allowed = (SELECT {allowed} FROM tidelock_locks AS l FORCE INDEX (PRIMARY) WHERE l.id = {id}); \
         INSERT INTO tidelock_sides (id, place, owner, client, shares, lease, ends, token) \
         SELECT {id}, @tidelock_place, {me}, {client}, {shares}, {lease}, {NOW} + {alive}, 0 \
         FROM tidelock_locks AS l FORCE INDEX (PRIMARY) WHERE l.id = {id} AND @tidelock_placed = 0 AND NOT {withdrawn} AND @tidelock_allowed",
        alive = micros(ALIVE),
        next = next_place(name, position),
        id = id(name),
        me = owner(&ticket.owner),
        client = hex(ticket.owner.client()),
        shares = u8::from(kind.is_read()),
        withdrawn = withdrawn(ticket),
    )
}

/// Lets a reader in beside the writer that it follows, unless a fence keeps out grants. Its token is a new one, larger
/// than that of the writer.
fn join(ticket: &Ticket, lease: u64, writer: &OwnerId) -> String {
    let name = &ticket.name;
    format!(
        "SET @tidelock_placed = (SELECT COUNT(*) FROM tidelock_sides AS s FORCE INDEX (mine) WHERE {mine}), \
           @tidelock_place = {next}, \
           @tidelock_as = (SELECT s.held_as FROM tidelock_sides AS s FORCE INDEX (mine) {HOLDS} \
             WHERE {of_writer} AND s.shares = 0 AND NOT {upgradeable} AND s.ends > {NOW} AND l.expires > {NOW} AND NOT {withdrawn}), \
           @tidelock_token = (SELECT {NEXT_TOKEN} FROM tidelock_locks AS l WHERE l.id = {id}); \
         SET @tidelock_joins = @tidelock_open AND @tidelock_placed = 0 AND @tidelock_as IS NOT NULL; \
         INSERT INTO tidelock_sides (id, place, owner, client, shares, lease, ends, held_as, token) \
         SELECT l.id, @tidelock_place, {me}, {client}, 1, {lease}, {NOW} + {lease}, @tidelock_as, @tidelock_token \
         FROM tidelock_locks AS l FORCE INDEX (PRIMARY) WHERE l.id = {id} AND @tidelock_joins; \
         UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) SET l.token = @tidelock_token WHERE l.id = {id} AND @tidelock_joins",
        mine = is_row_of(name, &ticket.owner),
        of_writer = is_row_of(name, writer),
        upgradeable = is_upgradeable("s"),
        next = next_place(name, FairPosition::First),
        id = id(name),
        me = owner(&ticket.owner),
        client = hex(ticket.owner.client()),
        withdrawn = withdrawn(ticket),
    )
}

/// Releases the lock of the ticket, or gives up its place. `may_arrive`, `serves` and the answer: see [`end_ticket`].
///
/// The row of the lock then lasts as long as the longest lease of those that stay. Its token stays too: only a grant may
/// change it, or the release would wait for fences.
pub(crate) fn end(ticket: &Ticket, may_arrive: bool, serves: bool) -> String {
    let (id, mine) = (id(&ticket.name), is_row_of(&ticket.name, &ticket.owner));
    let ends = format!(
        "SET @tidelock_freed = (SELECT COUNT(*) FROM tidelock_sides AS s FORCE INDEX (mine) {HOLDS} \
           WHERE {mine} AND s.ends > {NOW} AND l.expires > {NOW}); \
         DELETE s FROM tidelock_sides AS s FORCE INDEX (mine) WHERE {mine}; \
         SET @tidelock_ends = (SELECT MAX(s.ends) FROM tidelock_sides AS s FORCE INDEX (PRIMARY) {HOLDS} \
           WHERE s.id = {id} AND s.ends > {NOW}); \
         UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) SET l.owner = IF(@tidelock_ends IS NULL, '', l.owner), \
           l.expires = COALESCE(@tidelock_ends, {NOW}) WHERE l.id = {id} AND @tidelock_freed"
    );
    end_ticket(ticket, &ends, may_arrive, serves)
}

/// Renews the holds of sides. Answers the owners of those that were kept.
///
/// Readers of several processes hold the same names, so the rows are locked in one order; otherwise two renewals could
/// wait for each other.
pub(crate) fn renew(batch: &[&Renewal]) -> String {
    let ids = batch.iter().map(|one| id(&one.ticket.name));
    let ids: Vec<String> = ids.collect();
    let asked = batch.iter().map(|one| {
        let Ticket {
            name, owner: of, ..
        } = &one.ticket;
        format!(
            "SELECT {} AS id, {} AS client, {} AS owner, {} AS lease",
            id(name),
            hex(of.client()),
            owner(of),
            micros(one.lease)
        )
    });
    let asked: Vec<String> = asked.collect();
    let sides = format!(
        "({asked}) AS a STRAIGHT_JOIN tidelock_sides AS s FORCE INDEX (mine) \
           ON s.id = a.id AND s.client = a.client AND s.owner = a.owner",
        asked = asked.join(" UNION ALL ")
    );
    let holds = format!(
        "{sides} STRAIGHT_JOIN tidelock_locks AS l FORCE INDEX (PRIMARY) ON l.id = s.id AND l.owner = s.held_as"
    );
    let held = format!("s.ends > {NOW} AND l.expires > {NOW}");
    format!(
        "SELECT id FROM tidelock_locks FORCE INDEX (PRIMARY) WHERE id IN ({ids}) ORDER BY id FOR UPDATE; \
         UPDATE {holds} SET s.ends = GREATEST(s.ends, {NOW} + a.lease) WHERE {held}; \
         UPDATE (SELECT s.id, s.held_as, MAX(s.ends) AS ends FROM {sides} WHERE s.ends > {NOW} GROUP BY s.id, s.held_as) AS k \
           STRAIGHT_JOIN tidelock_locks AS l FORCE INDEX (PRIMARY) ON l.id = k.id AND l.owner = k.held_as \
           SET l.expires = GREATEST(l.expires, k.ends) WHERE l.expires > {NOW}; \
         SELECT s.owner FROM {holds} WHERE {held}",
        ids = ids.join(", ")
    )
}

/// Answers, in a row for each holder of a side, in the order of their arrival: the owner, 1 if it reads, and the holder's
/// details.
pub(crate) fn holders(name: &Name) -> String {
    format!(
        "SELECT s.owner, s.shares, c.* FROM tidelock_sides AS s {HOLDS} \
         LEFT JOIN tidelock_clients AS c ON c.client = s.client \
         WHERE s.id = {} AND s.ends > {NOW} AND l.expires > {NOW} ORDER BY s.place",
        id(name)
    )
}

/// Answers the number of waiters of a lock that are alive, of fair locks and of sides.
pub(crate) fn waiters(name: &Name) -> String {
    let id = id(name);
    format!(
        "SELECT (SELECT COUNT(*) FROM tidelock_waiters AS w WHERE w.id = {id} AND w.alive > {NOW}) \
           + (SELECT COUNT(*) FROM tidelock_sides AS s WHERE s.id = {id} AND s.held_as IS NULL AND s.ends > {NOW})"
    )
}
