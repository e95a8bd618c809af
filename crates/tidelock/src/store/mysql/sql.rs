//! The row-lease algorithm as SQL text: one round trip per request. An attempt after a refusal may be two.
//!
//! Each change is one statement, or one text that the server runs as a transaction. It locks the lock's row before it
//! decides, so no other transaction can change the row meanwhile, and no transaction stays open between two round trips.
//! The last statement of the text reads the result.
//!
//! The server's clock decides, as of the start of each statement. A statement that had to wait for the row uses a time
//! that is too early: a lease that has just ended still counts, and a new lease ends earlier than it could. Both only
//! cause a retry. No statement depends on the session's time zone.
//!
//! Names and owners are sent as hexadecimal digits, so the server can read nothing in them as SQL, whatever its modes
//! are.

use std::fmt::Write as _;
use std::time::Duration;

use crate::fence::MYSQL_REFUSAL;
use crate::snapshot::{ClientInfo, Snapshot};
use crate::store::{ClientId, Name, OwnerId, Renewal, Ticket};

/// Microseconds since 1970 by the server's clock.
pub(crate) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// How long a withdrawn ticket is remembered at least, in microseconds: far longer than its request can lie in a
/// buffer.
const WITHDRAWN_TTL_MICROS: u64 = 300_000_000;
/// How long a row is kept after its lease has ended, in microseconds.
const ROW_TTL_MICROS: u64 = 3_600_000_000;
/// Bounds how many rows one sweep deletes.
pub(crate) const SWEPT: u32 = 500;
/// Bounds how many rows one page of a list reads.
pub(crate) const PAGE_SIZE: usize = 1000;

pub(crate) fn hex(text: &str) -> String {
    let mut digits = String::with_capacity(text.len() * 2 + 3);
    digits.push_str("x'");
    for byte in text.bytes() {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.push('\'');
    digits
}

/// The key of a lock. A hash fits names of any length, and separates names that a collation takes for the same.
pub(crate) fn id(name: &Name) -> String {
    format!("UNHEX(SHA2({}, 256))", hex(name.as_str()))
}

pub(crate) fn owner(owner: &OwnerId) -> String {
    hex(owner.text())
}

pub(crate) fn micros(time: Duration) -> u64 {
    // We round up; otherwise the lease would end in the store before it ends here. The cap is half of the column's
    // range, because an end is added to the current time.
    let micros = time.as_nanos().div_ceil(1000);
    u64::try_from(micros).map_or(u64::MAX / 4, |micros| micros.min(u64::MAX / 4))
}

/// A withdrawn ticket as a row stores it. Spaces separate the owners; no owner contains one.
fn mark(owner: &OwnerId) -> String {
    hex(&format!(" {owner} "))
}

/// Whether the row remembers that the ticket was withdrawn.
pub(crate) fn withdrawn(ticket: &Ticket) -> String {
    let mark = mark(&ticket.owner);
    format!("(INSTR(l.withdrawn, {mark}) OR INSTR(l.before_that, {mark}))")
}

/// Whether nobody holds the lock of this row. A lock that was released is free, whatever its end is: if the server's clock was
/// ahead at the release and is set right, the end is still to come.
pub(crate) fn free(row: &str) -> String {
    format!("({row}.expires <= {NOW} OR {row}.owner = '')")
}

/// The rest of the lease in this row, in microseconds. 0: the lock is [`free`].
pub(crate) fn rest(row: &str) -> String {
    format!("IF({row}.owner = '', 0, GREATEST({row}.expires - {NOW}, 0))")
}

/// Inserts a row for a name that has none. Its tokens continue from those of all deleted rows. The shared lock on the
/// counter prevents a concurrent sweep from deleting a row.
pub(crate) fn new_row(
    name: &Name,
    holder: &str,
    expires: &str,
    granted: u8,
    marks: &str,
) -> String {
    format!(
        "INSERT INTO tidelock_locks (id, name, owner, expires, token, withdrawn, before_that, turned) \
         SELECT {id}, CONVERT({name} USING utf8mb4), {holder}, {expires}, c.token + {granted}, {marks}, '', 0 \
         FROM tidelock_counter AS c WHERE c.one = 1 LOCK IN SHARE MODE",
        id = id(name),
        name = hex(name.as_str()),
    )
}

/// Notes whether a grant may change the row now: a fence in a user's transaction keeps out grants, but no release. We do not
/// wait for the fence. The row would stay locked meanwhile, and a release or a beat that waits for the row would come too
/// late.
fn note_fence(name: &Name) -> String {
    format!(
        "SELECT COUNT(*) INTO @tidelock_open FROM tidelock_locks FORCE INDEX (granted) WHERE id = {} FOR UPDATE SKIP LOCKED",
        id(name)
    )
}

/// Locks the row of the lock, and makes it if there is none. `@tidelock_open` says whether a grant may change it now.
pub(crate) fn lock_row(name: &Name) -> String {
    format!(
        "{insert} ON DUPLICATE KEY UPDATE id = tidelock_locks.id; {fence}",
        insert = new_row(name, "''", NOW, 0, "''"),
        fence = note_fence(name),
    )
}

/// Locks the row of the lock, if there is one: enough for a change that grants nothing. It needs no other table, and no fence
/// holds it up.
pub(crate) fn lock_if_there(name: &Name) -> String {
    format!(
        "SELECT id FROM tidelock_locks FORCE INDEX (PRIMARY) WHERE id = {} FOR UPDATE",
        id(name)
    )
}

/// The next token of the row `l`. A raised counter is followed.
pub(crate) const NEXT_TOKEN: &str =
    "GREATEST(l.token + 1, (SELECT c.token + 1 FROM tidelock_counter AS c WHERE c.one = 1))";

/// One attempt to take the lock. Sent as one transaction. Answers: whether the ticket holds the lock, the rest of the
/// lease, the token, whether the ticket was withdrawn, and 0 if a fence keeps out a grant.
///
/// The first statement locks the row, and grants the lock if there was no row. The next token of a row is at least the one
/// that a new row would get, so that a raised counter is followed.
pub(crate) fn attempt(ticket: &Ticket, lease: Duration) -> String {
    let Ticket { name, .. } = ticket;
    let (me, lease) = (owner(&ticket.owner), micros(lease));
    format!(
        "{insert} ON DUPLICATE KEY UPDATE \
         expires = IF(tidelock_locks.owner = {me} AND tidelock_locks.expires > {NOW}, \
           GREATEST(tidelock_locks.expires, {NOW} + {lease}), tidelock_locks.expires); \
         {fence}; \
         UPDATE tidelock_locks AS l FORCE INDEX (PRIMARY) \
           SET l.token = {NEXT_TOKEN}, l.owner = {me}, l.expires = {NOW} + {lease} \
           WHERE l.id = {id} AND @tidelock_open AND {free} AND NOT {withdrawn}; \
         {seen}",
        insert = new_row(name, &me, &format!("{NOW} + {lease}"), 1, "''"),
        fence = note_fence(name),
        id = id(name),
        free = free("l"),
        withdrawn = withdrawn(ticket),
        seen = seen(ticket, "@tidelock_open"),
    )
}

/// Answers as [`attempt`] without a fence, and changes nothing. No row: nobody has used the lock yet.
///
/// It locks the row as a change would. So a server that became a read-only replica fails, as it fails an attempt, and a proxy
/// that sends reads to replicas, which may be behind, sends this to the primary.
pub(crate) fn look(ticket: &Ticket) -> String {
    format!("{} FOR UPDATE", seen(ticket, "1"))
}

/// `open`: the expression for whether a grant may change the row.
fn seen(ticket: &Ticket, open: &str) -> String {
    format!(
        "SELECT l.owner = {me} AND l.expires > {NOW}, {rest}, l.token, {withdrawn}, {open} \
         FROM tidelock_locks AS l WHERE l.id = {id}",
        me = owner(&ticket.owner),
        rest = rest("l"),
        withdrawn = withdrawn(ticket),
        id = id(&ticket.name),
    )
}

/// Answers: the newest token of the lock, or the counter that its next token exceeds. No row: the counter is missing.
pub(crate) fn newest_token(name: &Name) -> String {
    format!(
        "SELECT GREATEST(c.token, COALESCE((SELECT l.token FROM tidelock_locks AS l WHERE l.id = {}), 0)) \
         FROM tidelock_counter AS c WHERE c.one = 1",
        id(name)
    )
}

/// Raises the counter, and answers as [`newest_token`]. It waits for the attempts that have read the counter. It leaves
/// the rows as they are: the token of a row belongs to its holder, and fences check it.
pub(crate) fn raise_tokens(name: &Name, newest: u64) -> String {
    format!(
        "UPDATE tidelock_counter SET token = GREATEST(token, {newest}) WHERE one = 1; {}",
        newest_token(name)
    )
}

/// Releases the ticket's lock. Answers: 1 if it held the lock, or if nobody else has had it since its lease ended.
///
/// The end moves back to now, not to zero, because a sweep deletes rows by their end.
pub(crate) fn release(ticket: &Ticket) -> String {
    format!(
        "UPDATE tidelock_locks FORCE INDEX (PRIMARY) SET owner = '', expires = LEAST(expires, {NOW}) \
         WHERE id = {} AND owner = {}; SELECT ROW_COUNT()",
        id(&ticket.name),
        owner(&ticket.owner)
    )
}

/// Frees the lock, whichever client holds it, or if it is held as in `seen`, which has a holder. Answers: 1 if it was held.
pub(crate) fn force_release(name: &Name, seen: Option<&Snapshot>) -> String {
    let condition = seen.map_or_else(String::new, |seen| {
        let owners = seen.owners().map(hex).collect::<Vec<_>>().join(", ");
        let token = seen
            .token
            .map_or_else(String::new, |token| format!(" AND token = {token}"));
        format!(" AND owner IN ({owners}){token}")
    });
    format!(
        "UPDATE tidelock_locks FORCE INDEX (PRIMARY) SET owner = '', expires = {NOW} \
         WHERE id = {} AND expires > {NOW} AND owner <> ''{condition}; SELECT ROW_COUNT()",
        id(name)
    )
}

/// Withdraws a ticket. It marks the ticket first and releases it second, so that an attempt between the two takes no
/// effect. It also clears the owner of a row whose lease has ended.
///
/// Marks are kept in two generations. When the newer one is old enough, it replaces the older one, which is
/// forgotten.
///
/// Answers: 1 if the ticket held the lock, and 1 if the mark could be set.
pub(crate) fn withdraw(ticket: &Ticket) -> String {
    format!(
        "{}; {}, (SELECT COUNT(*) FROM tidelock_counter WHERE one = 1)",
        mark_withdrawn(ticket),
        release(ticket),
    )
}

/// Marks a ticket as withdrawn, in a row that it makes if there is none.
///
/// If `turned` is still to come, the server's clock was set back, or another statement has just replaced the generations, by a
/// slightly later time. So we count from now on, and forget no mark.
pub(crate) fn mark_withdrawn(ticket: &Ticket) -> String {
    let mark = mark(&ticket.owner);
    let old = format!("tidelock_locks.turned + {WITHDRAWN_TTL_MICROS} <= {NOW}");
    format!(
        "{insert} ON DUPLICATE KEY UPDATE \
         before_that = IF({old}, tidelock_locks.withdrawn, tidelock_locks.before_that), \
         withdrawn = IF({old}, {mark}, CONCAT(tidelock_locks.withdrawn, {mark})), \
         turned = IF({old}, {NOW}, LEAST(tidelock_locks.turned, {NOW}))",
        insert = new_row(&ticket.name, "''", NOW, 0, &mark),
    )
}

/// Renews a batch. Answers: the owners that hold their locks, for the requested leases.
///
/// This and the other changes force the primary key, whatever the optimizer prefers. A scan of a small table would
/// wait for rows of other locks, and the other index would wait for a fence.
pub(crate) fn renew(batch: &[&Renewal]) -> String {
    let (mut ids, mut owners, mut leases) = (String::new(), String::new(), String::new());
    for Renewal { ticket, lease, .. } in batch {
        let comma = if ids.is_empty() { "" } else { ", " };
        let me = owner(&ticket.owner);
        // Writing to a string does not fail.
        let _ = write!(ids, "{comma}{}", id(&ticket.name));
        let _ = write!(owners, "{comma}{me}");
        let _ = write!(leases, " WHEN {me} THEN {}", micros(*lease));
    }
    format!(
        "UPDATE tidelock_locks FORCE INDEX (PRIMARY) \
         SET expires = GREATEST(expires, {NOW} + CASE owner{leases} ELSE 0 END) \
         WHERE id IN ({ids}) AND owner IN ({owners}) AND expires > {NOW}; \
         SELECT owner FROM tidelock_locks WHERE id IN ({ids}) AND owner IN ({owners}) AND expires > {NOW}"
    )
}

/// Answers: the names of the locks whose rows nobody keeps at this moment.
pub(crate) fn free_rows(batch: &[&Renewal]) -> String {
    format!("{} FOR UPDATE SKIP LOCKED", rows(batch))
}

/// Answers: the names of the locks that have rows, whoever keeps these.
pub(crate) fn rows(batch: &[&Renewal]) -> String {
    let ids = batch.iter().map(|one| id(&one.ticket.name));
    let ids: Vec<String> = ids.collect();
    format!(
        "SELECT name FROM tidelock_locks FORCE INDEX (PRIMARY) WHERE id IN ({})",
        ids.join(", ")
    )
}

/// A statement for the user's own transaction. It fails unless the token is the newest, and it blocks newer grants
/// until the transaction ends. It locks an index entry that grants change, but renewals and releases do not.
///
/// Under REPEATABLE READ the server locks the gaps beside the entry too, on MariaDB even if the index were unique, and grants
/// of other locks fail until the transaction ends. Only the clustered index has no gaps in such a search, but renewals
/// lock its records. So the docs say that the transaction has to be READ COMMITTED.
///
/// Without stored programs a statement can fail only in its arithmetic. The error shows the name of the column.
pub(crate) fn fence(database: &str) -> String {
    let database = database.replace('`', "``");
    format!(
        "SELECT 18446744073709551615 + f.{MYSQL_REFUSAL} FROM (\
         SELECT COUNT(*) = 0 AS {MYSQL_REFUSAL} FROM `{database}`.tidelock_locks FORCE INDEX (granted) \
         WHERE id = UNHEX(SHA2(CONVERT(? USING utf8mb4), 256)) AND token = ? LOCK IN SHARE MODE) AS f"
    )
}

/// Answers, in a row for each waiter of a fair lock, or in one row: the owner, the rest of the lease, the newest token,
/// the waiter, and the holder's details. `queue`: with the waiters.
pub(crate) fn inspect(name: &Name, queue: bool) -> String {
    let (waiter, waiters) = if queue {
        let join = format!("LEFT JOIN tidelock_waiters AS w ON w.id = l.id AND w.alive > {NOW}");
        ("w.owner", join)
    } else {
        ("NULL", String::new())
    };
    let order = if queue { "ORDER BY w.place" } else { "" };
    format!(
        "SELECT l.owner, {rest}, l.token, {waiter}, c.* \
         FROM tidelock_locks AS l LEFT JOIN tidelock_clients AS c ON c.client = SUBSTRING_INDEX(l.owner, ':', 1) \
         {waiters} WHERE l.id = {id} {order}",
        rest = rest("l"),
        id = id(name),
    )
}

/// Answers, for each row from this key on: the beginning of its key, and its name, or an empty text if the lock is
/// free.
pub(crate) fn list(from: u64) -> String {
    format!(
        "SELECT CONV(HEX(SUBSTRING(id, 1, 8)), 16, 10), IF(expires > {NOW} AND owner <> '', name, '') FROM tidelock_locks \
         WHERE id >= x'{from:016x}000000000000000000000000000000000000000000000000' ORDER BY id LIMIT {PAGE_SIZE}"
    )
}

/// Stores this client's details, and deletes those of clients that have expired. The table of an earlier tidelock has no
/// column for the user.
pub(crate) fn announce(
    client: &ClientId,
    info: &ClientInfo,
    ttl: Duration,
    has_user: bool,
) -> String {
    let since = info.since.duration_since(std::time::UNIX_EPOCH);
    let user = info.user.as_deref().filter(|_| has_user);
    let (column, user) = match user {
        Some(user) => (
            ", os_user",
            format!(", CONVERT({} USING utf8mb4)", hex(user)),
        ),
        None => ("", String::new()),
    };
    format!(
        "REPLACE INTO tidelock_clients (client, host, pid, program, since, expires{column}) \
         VALUES ({}, CONVERT({} USING utf8mb4), {}, CONVERT({} USING utf8mb4), {}, {NOW} + {}{user}); \
         DELETE FROM tidelock_clients WHERE expires <= {NOW} ORDER BY client LIMIT {SWEPT}",
        hex(client.as_str()),
        hex(&info.host),
        info.pid,
        hex(&info.program),
        since.unwrap_or_default().as_millis(),
        micros(ttl),
    )
}

pub(crate) fn retract(client: &ClientId) -> String {
    let client = hex(client.as_str());
    format!("DELETE FROM tidelock_clients WHERE client = {client}")
}

/// Deletes rows of names that nobody has used for long. It locks the counter before the rows: a client that inserts a row
/// waits for the counter, and then reads a value that no deleted token exceeds. Sent as one transaction.
///
/// Answers: how many rows it has deleted, up to [`SWEPT`].
///
/// All statements use one cut-off. With a later one, the `DELETE` could delete a row whose token was not counted, and the
/// tokens of its name would go back. Only the oldest rows are counted, because the counter is locked meanwhile.
pub(crate) fn sweep() -> String {
    let old = "expires <= @tidelock_old AND turned <= @tidelock_past";
    format!(
        "SET @tidelock_past = {NOW} - {ROW_TTL_MICROS}; \
         SET @tidelock_old = (SELECT MAX(o.expires) FROM (SELECT expires FROM tidelock_locks \
           WHERE expires <= @tidelock_past AND turned <= @tidelock_past ORDER BY expires LIMIT {SWEPT}) AS o); \
         SELECT token FROM tidelock_counter WHERE one = 1 FOR UPDATE; \
         SELECT @tidelock_swept := COALESCE(MAX(token), 0) FROM tidelock_locks WHERE {old} FOR UPDATE; \
         UPDATE tidelock_counter SET token = GREATEST(token, @tidelock_swept) WHERE one = 1; \
         DELETE FROM tidelock_locks WHERE {old} ORDER BY expires LIMIT {SWEPT}; \
         SELECT ROW_COUNT()"
    )
}

#[cfg(test)]
mod tests;
