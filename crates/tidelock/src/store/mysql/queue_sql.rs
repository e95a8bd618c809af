//! The queue of fair and read-write locks in SQL. Each change is one text that the server runs as one transaction. It
//! locks the lock's row first. So the changes of one queue come one after the other, and each statement sees all that
//! those before it have changed.
//!
//! A waiter for a fair lock has a row in one table, a holder or waiter of a side of a read-write lock in another. Their
//! places are numbered together. One row of the locks stands for all holders of sides: it lasts as long as the longest of
//! their leases, so a lock without sides waits for it like for any other holder. A holder has the lock only while the row
//! that it entered under stands there.
//!
//! The statements on the queue force an index that begins with the name. Another plan could wait for the rows of other
//! queues, whose transactions could wait for ours.

use crate::store::beats::ALIVE;
use crate::store::fair_waiters::{COUNTED, FairPosition};
use crate::store::mysql::errors::RequestError;
use crate::store::mysql::sql::{
    NEXT_TOKEN, NOW, SWEPT, free, hex, id, lock_if_there, lock_row, mark_withdrawn, micros, rest,
};
use crate::store::side_order::STANDS_FOR_SIDES;
use crate::store::{Name, Ticket};
use crate::types::{UPGRADEABLE, UPGRADES};

/// The name of the table of the waiters for fair locks.
pub(crate) const WAITERS: &str = "tidelock_waiters";

/// The name of the table of the holders and waiters of read-write locks.
pub(crate) const SIDES: &str = "tidelock_sides";

/// The tables of the queue, in the order of their places.
pub(crate) const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS tidelock_waiters (\n\
    \x20 id BINARY(32) NOT NULL, -- SHA-256 of the name\n\
    \x20 place BIGINT NOT NULL,\n\
    \x20 owner VARBINARY(128) NOT NULL,\n\
    \x20 client VARBINARY(64) NOT NULL,\n\
    \x20 lease BIGINT UNSIGNED NOT NULL, -- microseconds\n\
    \x20 alive BIGINT NOT NULL, -- until then its process counts as alive: microseconds since 1970\n\
    \x20 PRIMARY KEY (id, place),\n\
    \x20 KEY mine (id, client, owner)\n\
    ) ENGINE = InnoDB",
    "CREATE TABLE IF NOT EXISTS tidelock_sides (\n\
    \x20 id BINARY(32) NOT NULL, -- SHA-256 of the name\n\
    \x20 place BIGINT NOT NULL,\n\
    \x20 owner VARBINARY(128) NOT NULL,\n\
    \x20 client VARBINARY(64) NOT NULL,\n\
    \x20 shares TINYINT UNSIGNED NOT NULL, -- 1: it reads, 0: it writes, or reads upgradeably, by its owner\n\
    \x20 lease BIGINT UNSIGNED NOT NULL, -- microseconds\n\
    \x20 ends BIGINT NOT NULL, -- of its lease, or until when its process counts as alive: microseconds since 1970\n\
    \x20 held_as VARBINARY(160) NULL, -- the owner of the lock's row that it entered under; none: it waits\n\
    \x20 token BIGINT UNSIGNED NOT NULL,\n\
    \x20 PRIMARY KEY (id, place),\n\
    \x20 KEY mine (id, client, owner)\n\
    ) ENGINE = InnoDB",
];

/// Whether a table of the queue is missing, or out of the user's reach.
pub(crate) fn lacks_queue(failure: &RequestError) -> bool {
    failure.lacks_table(WAITERS) || failure.lacks_table(SIDES)
}

/// How long the row of a dead waiter or holder is kept in a queue that nobody uses, in microseconds.
const DEAD_TTL_MICROS: u64 = 3_600_000_000;

/// Bounds how many owners that entered are told at once. The server cuts a list of texts after 1024 bytes.
const TOLD: u32 = 8;

/// Separates the owners in an answer; no owner contains one.
pub(crate) const SEPARATOR: char = ' ';

/// The place for a new waiter, as an expression.
pub(crate) fn next_place(name: &Name, position: FairPosition) -> String {
    let id = id(name);
    let next = if position == FairPosition::First {
        "COALESCE(MIN(p.place), 0) - 1"
    } else {
        "COALESCE(MAX(p.place), 0) + 1"
    };
    format!(
        "(SELECT {next} FROM (SELECT w.place FROM tidelock_waiters AS w FORCE INDEX (PRIMARY) WHERE w.id = {id} \
           UNION ALL SELECT s.place FROM tidelock_sides AS s FORCE INDEX (PRIMARY) WHERE s.id = {id}) AS p)"
    )
}

/// Removes waiters that are not alive, holders that have lost the lock, and then upgrades whose reader is no holder.
/// `@tidelock_reader` has the upgradeable reader that holds the lock, or an empty text.
pub(crate) fn remove_dead(name: &Name) -> String {
    let id = id(name);
    format!(
        "DELETE w FROM tidelock_waiters AS w FORCE INDEX (PRIMARY) WHERE w.id = {id} AND w.alive <= {NOW}; \
         SET @tidelock_row = COALESCE((SELECT l.owner FROM tidelock_locks AS l WHERE l.id = {id} AND l.expires > {NOW}), ''); \
         DELETE s FROM tidelock_sides AS s FORCE INDEX (PRIMARY) WHERE s.id = {id} AND (s.ends <= {NOW} OR s.held_as <> @tidelock_row); \
         SET @tidelock_reader = (SELECT COALESCE(MAX(s.owner), '') FROM tidelock_sides AS s FORCE INDEX (PRIMARY) \
           WHERE s.id = {id} AND s.held_as IS NOT NULL AND {upgradeable}); \
         DELETE s FROM tidelock_sides AS s FORCE INDEX (PRIMARY) WHERE s.id = {id} AND s.held_as IS NULL \
           AND s.owner LIKE '%{UPGRADES}%' AND NOT {upgrades}",
        upgradeable = is_upgradeable("s"),
        upgrades = upgrades_the_reader("s"),
    )
}

/// Whether a row of the sides is that of the writer that the upgradeable reader inside becomes.
fn upgrades_the_reader(row: &str) -> String {
    format!(
        "({row}.owner LIKE '%{UPGRADES}%' AND CONCAT(SUBSTRING_INDEX({row}.owner, ':', 1), ':', \
           SUBSTRING_INDEX({row}.owner, ':', -1), '{UPGRADEABLE}') = @tidelock_reader)"
    )
}

/// Whether a row of the sides is that of an upgradeable reader.
pub(crate) fn is_upgradeable(row: &str) -> String {
    format!(
        "(RIGHT({row}.owner, {}) = '{UPGRADEABLE}')",
        UPGRADEABLE.len()
    )
}

/// Removes the dead, and lets in the waiters that may enter now, as [`side_order`](crate::store::side_order) says: readers
/// beside readers, behind nobody else; the first upgradeable reader beside plain ones, and the writer that it becomes beside
/// it alone, as if nobody else waited; all others alone, behind nobody. Their grants are not confirmed. `@tidelock_next`
/// has the owners of these grants, or NULL.
///
/// Places are not always next to each other, and each reader has a token of its own: that of the lock, and as much more
/// as its place is behind that of the first.
pub(crate) fn serve(name: &Name) -> String {
    let (id, unconfirmed) = (id(name), micros(ALIVE));
    let side = format!("tidelock_sides AS s FORCE INDEX (PRIMARY) WHERE s.id = {id}");
    let waiter = format!("tidelock_waiters AS w FORCE INDEX (PRIMARY) WHERE w.id = {id}");
    let enters = "s.held_as IS NULL AND s.place BETWEEN @tidelock_first AND @tidelock_last \
        AND (s.shares = @tidelock_shares OR s.place = @tidelock_upgradeable)";
    let upgradeable = is_upgradeable("s");
    format!(
        "{dead}; \
         SET @tidelock_inside = (SELECT MAX(s.held_as) FROM {side} AND s.held_as IS NOT NULL), \
           @tidelock_shared = (SELECT COUNT(*) = 0 FROM {side} AND s.held_as IS NOT NULL AND s.shares = 0 AND NOT {upgradeable}), \
           @tidelock_holders = (SELECT COUNT(*) FROM {side} AND s.held_as IS NOT NULL), \
           @tidelock_upgrade = (SELECT COALESCE(MIN(s.place), {NOWHERE}) FROM {side} AND s.held_as IS NULL AND {upgrades}), \
           @tidelock_free = (SELECT COUNT(*) FROM tidelock_locks AS l FORCE INDEX (PRIMARY) WHERE l.id = {id} AND @tidelock_open \
             AND ({free} OR RIGHT(l.owner, {suffix}) = '{STANDS_FOR_SIDES}')), \
           @tidelock_fair = (SELECT COALESCE(MIN(w.place), {NOWHERE}) FROM {waiter}), \
           @tidelock_write = (SELECT COALESCE(MIN(s.place), {NOWHERE}) FROM {side} AND s.held_as IS NULL AND s.shares = 0 AND NOT {upgradeable}), \
           @tidelock_upgradeable = (SELECT COALESCE(MIN(s.place), {NOWHERE}) FROM {side} AND s.held_as IS NULL AND {upgradeable}), \
           @tidelock_read = (SELECT COALESCE(MIN(s.place), {NOWHERE}) FROM {side} AND s.held_as IS NULL AND s.shares = 1); \
         SET @tidelock_upgrades = @tidelock_upgrade < {NOWHERE}; \
         SET @tidelock_fair = IF(@tidelock_upgrades, {NOWHERE}, @tidelock_fair), \
           @tidelock_write = IF(@tidelock_upgrades, @tidelock_upgrade, @tidelock_write), \
           @tidelock_read = IF(@tidelock_upgrades, {NOWHERE}, @tidelock_read), \
           @tidelock_upgradeable = IF(@tidelock_upgrades, {NOWHERE}, @tidelock_upgradeable); \
         SET @tidelock_alone = LEAST(@tidelock_fair, @tidelock_write); \
         SET @tidelock_exclusive = @tidelock_free AND (@tidelock_inside IS NULL OR @tidelock_upgrades AND @tidelock_holders = 1) \
             AND @tidelock_alone < {NOWHERE} AND @tidelock_alone <= LEAST(@tidelock_read, @tidelock_upgradeable), \
           @tidelock_upgradeable = IF(@tidelock_reader = '', @tidelock_upgradeable, {NOWHERE}); \
         SET @tidelock_read = LEAST(@tidelock_read, @tidelock_upgradeable); \
         SET @tidelock_shares = @tidelock_free AND @tidelock_shared AND @tidelock_read < @tidelock_alone; \
         SET @tidelock_fair = IF(@tidelock_exclusive AND @tidelock_alone = @tidelock_fair, @tidelock_fair, NULL); \
         SET @tidelock_first = IF(@tidelock_shares, @tidelock_read, \
             IF(@tidelock_exclusive AND @tidelock_fair IS NULL, @tidelock_alone, NULL)), \
           @tidelock_last = IF(@tidelock_shares, @tidelock_alone - 1, @tidelock_alone); \
         SET @tidelock_as = COALESCE( \
           (SELECT w.owner FROM {waiter} AND w.place = @tidelock_fair), @tidelock_inside, \
           (SELECT CONCAT(s.owner, '{STANDS_FOR_SIDES}') FROM {side} AND s.place = @tidelock_first)); \
         SET @tidelock_next = COALESCE((SELECT w.owner FROM {waiter} AND w.place = @tidelock_fair), \
           (SELECT GROUP_CONCAT(e.owner SEPARATOR '{SEPARATOR}') FROM (SELECT s.owner FROM {side} AND {enters} LIMIT {TOLD}) AS e)); \
         SET @tidelock_token = (SELECT {NEXT_TOKEN} FROM tidelock_locks AS l WHERE l.id = {id} AND @tidelock_next IS NOT NULL); \
         UPDATE tidelock_sides AS s FORCE INDEX (PRIMARY) SET s.token = @tidelock_token + (s.place - @tidelock_first), \
           s.ends = {NOW} + LEAST(s.lease, {unconfirmed}), s.held_as = @tidelock_as WHERE s.id = {id} AND {enters}; \
         SET @tidelock_ends = COALESCE((SELECT {NOW} + LEAST(w.lease, {unconfirmed}) FROM {waiter} AND w.place = @tidelock_fair), \
             (SELECT MAX(s.ends) FROM {side} AND s.held_as = @tidelock_as)), \
           @tidelock_token = COALESCE((SELECT MAX(s.token) FROM {side} AND s.held_as = @tidelock_as \
             AND s.place BETWEEN @tidelock_first AND @tidelock_last), @tidelock_token); \
         UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) SET l.token = @tidelock_token, \
           l.expires = GREATEST(@tidelock_ends, IF(l.owner = @tidelock_as, l.expires, 0)), l.owner = @tidelock_as \
           WHERE l.id = {id} AND @tidelock_next IS NOT NULL; \
         DELETE w FROM {waiter} AND w.place = @tidelock_fair",
        dead = remove_dead(name),
        free = free("l"),
        suffix = STANDS_FOR_SIDES.len(),
        upgrades = upgrades_the_reader("s"),
    )
}

/// Behind every place: nobody waits. A variable that is NULL would be compared as a text.
const NOWHERE: i64 = i64::MAX;

/// Ends what a ticket has, by the statements `ends`, which count in `@tidelock_freed` the locks that they free. `may_arrive`:
/// the ticket is withdrawn, and an attempt of it may still arrive, which takes no effect then. `serves`: also lets in those
/// that are next. Without both it needs no tables but that of the locks and those of `ends`.
///
/// Answers: that count; the owners that entered, or an empty text; and 0 if a mark was needed and could not be set.
///
/// The mark is first: like every attempt, it locks the counter before the row. The other way round, the two could wait for each
/// other.
pub(crate) fn end_ticket(ticket: &Ticket, ends: &str, may_arrive: bool, serves: bool) -> String {
    let name = &ticket.name;
    let (mark, is_marked) = if may_arrive {
        (
            format!("{}; ", mark_withdrawn(ticket)),
            "(SELECT COUNT(*) FROM tidelock_counter WHERE one = 1)",
        )
    } else {
        (String::new(), "1")
    };
    let (lock, next) = if serves {
        (lock_row(name), serve(name))
    } else {
        (lock_if_there(name), "SET @tidelock_next = NULL".to_owned())
    };
    format!(
        "{mark}{lock}; {ends}; {next}; SELECT @tidelock_freed, COALESCE(@tidelock_next, ''), {is_marked}"
    )
}

/// Lets in those that may enter, and looks. `beat`: also shows that this client is alive.
pub(crate) fn serve_and_look(name: &Name, client: &str, beat: bool) -> String {
    let beat = if beat {
        format!(
            "UPDATE tidelock_waiters AS w FORCE INDEX (mine) SET w.alive = {NOW} + {alive} WHERE w.id = {id} AND w.client = {client}; \
             UPDATE tidelock_sides AS s FORCE INDEX (mine) SET s.ends = {NOW} + {alive} \
               WHERE s.id = {id} AND s.client = {client} AND s.held_as IS NULL; ",
            alive = micros(ALIVE),
            id = id(name),
            client = hex(client),
        )
    } else {
        String::new()
    };
    format!(
        "{lock}; {beat}{serve}; {look}",
        lock = lock_row(name),
        serve = serve(name),
        look = look(name, client),
    )
}

/// A look at the queue, which locks nothing. Answers, in a row for each waiter of this client, or in one row: the rest
/// of the holder's lease; a letter for each waiter up to the first of this client (see
/// [`turns_of`](crate::store::side_order::turns_of)); and the waiter.
pub(crate) fn look(name: &Name, client: &str) -> String {
    let (id, client) = (id(name), hex(client));
    let waiter =
        |index: &str| format!("tidelock_waiters AS w FORCE INDEX ({index}) WHERE w.id = {id}");
    let side = |index: &str| {
        format!("tidelock_sides AS s FORCE INDEX ({index}) WHERE s.id = {id} AND s.held_as IS NULL")
    };
    let (my_waiter, my_side) = (
        format!("{} AND w.client = {client}", waiter("mine")),
        format!("{} AND s.client = {client}", side("mine")),
    );
    let first = format!(
        "LEAST((SELECT COALESCE(MIN(w.place), {NOWHERE}) FROM {my_waiter}), (SELECT COALESCE(MIN(s.place), {NOWHERE}) FROM {my_side}))"
    );
    format!(
        "SELECT {rest}, \
           COALESCE((SELECT GROUP_CONCAT(a.kind ORDER BY a.place SEPARATOR '') FROM ( \
             (SELECT w.place AS place, 'w' AS kind FROM {waiter} AND w.place <= {first} ORDER BY w.place LIMIT {most}) UNION ALL \
             (SELECT s.place, IF(s.shares, 'r', 'w') FROM {side} AND s.place <= {first} ORDER BY s.place LIMIT {most})) AS a), ''), \
           COALESCE(o.owner, '') \
         FROM tidelock_locks AS l LEFT JOIN \
           (SELECT w.owner FROM {my_waiter} UNION ALL SELECT s.owner FROM {my_side}) AS o ON 1 WHERE l.id = {id}",
        rest = rest("l"),
        waiter = waiter("PRIMARY"),
        side = side("PRIMARY"),
        most = COUNTED + 1,
    )
}

/// Deletes dead waiters and holders of queues that nobody uses. It chooses them without a lock, and locks only their rows.
pub(crate) fn sweeps() -> [String; 2] {
    [(WAITERS, "alive"), (SIDES, "ends")].map(|(table, until)| {
        let dead = format!("{until} <= {NOW} - {DEAD_TTL_MICROS}");
        format!(
            "DELETE w FROM (SELECT id, place FROM {table} WHERE {dead} LIMIT {SWEPT}) AS old \
             STRAIGHT_JOIN {table} AS w FORCE INDEX (PRIMARY) ON w.id = old.id AND w.place = old.place WHERE w.{dead}"
        )
    })
}

#[cfg(test)]
mod tests;
