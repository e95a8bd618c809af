//! The row-lease algorithm as text: one round trip for each question.
//!
//! Each change is one statement, decided on the lock's row while no other transaction can change it, so nothing is left
//! open between two round trips. A second statement of the same text reads what came of it.
//!
//! The time is the server's, that of the statement's start. A statement that had to wait for the row decides with a time
//! that is too early: then a lease that has just ended still stands, and one that is given ends earlier than it might.
//! Both only make somebody ask again. No statement depends on the session's time zone.
//!
//! Names and owners go as hexadecimal digits, so nothing in them can be read as SQL, whatever the server's modes are.

use std::fmt::Write as _;
use std::time::Duration;

use crate::backend::{ClientId, Name, OwnerId, Renewal, Ticket};
use crate::snapshot::ClientInfo;

/// Microseconds since 1970 by the server's clock.
pub(super) const NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// How long a withdrawn ticket is remembered at least: far longer than a request of it can lie in a buffer.
const REMEMBERED: u64 = 300_000_000;
/// For how long a row is kept after its lease has ended.
const KEPT: u64 = 3_600_000_000;
/// How many rows are cleared away in one go.
const SWEPT: u32 = 500;
/// How many rows one page of a list looks at.
pub(super) const PAGE: usize = 1000;

pub(super) fn hex(text: &str) -> String {
    let mut digits = String::with_capacity(text.len() * 2 + 3);
    digits.push_str("x'");
    for byte in text.bytes() {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits.push('\'');
    digits
}

/// The key of a lock: names of any length, and different ones for names that a collation takes for the same.
fn id(name: &Name) -> String {
    format!("UNHEX(SHA2({}, 256))", hex(name.as_str()))
}

fn owner(owner: &OwnerId) -> String {
    hex(owner.text())
}

pub(super) fn micros(time: Duration) -> u64 {
    // Rounded up, else the lease would end in the store before it ends here. Half of what the column takes: an end is added
    // to the time that it is now.
    let micros = time.as_nanos().div_ceil(1000);
    u64::try_from(micros).map_or(u64::MAX / 4, |micros| micros.min(u64::MAX / 4))
}

/// A withdrawn ticket as it stands in a row: owners are separated by spaces, which none contains.
fn mark(owner: &OwnerId) -> String {
    hex(&format!(" {owner} "))
}

/// The ticket was withdrawn, as far as this row remembers.
fn withdrawn(ticket: &Ticket) -> String {
    let mark = mark(&ticket.owner);
    format!("(INSTR(l.withdrawn, {mark}) OR INSTR(l.before_that, {mark}))")
}

/// The part that makes a row for a name that has none. Its tokens go on where those of all deleted rows have ended; the
/// counter is read with a lock, so that no row is being deleted meanwhile.
fn new_row(ticket: &Ticket, holder: &str, expires: &str, granted: u8, marks: &str) -> String {
    format!(
        "INSERT INTO tidelock_locks (id, name, owner, expires, token, withdrawn, before_that, turned) \
         SELECT {id}, CONVERT({name} USING utf8mb4), {holder}, {expires}, c.token + {granted}, {marks}, '', 0 \
         FROM tidelock_counter AS c WHERE c.one = 1 LOCK IN SHARE MODE",
        id = id(&ticket.name),
        name = hex(ticket.name.as_str()),
    )
}

/// May this ticket hold the lock? Answers: is it ours, what is left of the lease, the token, was it withdrawn.
///
/// MySQL and MariaDB assign from left to right, and each expression sees what was assigned before it: whose name stands
/// in a row with an old end has just been put there.
pub(super) fn attempt(ticket: &Ticket, lease: Duration) -> String {
    let (me, lease) = (owner(&ticket.owner), micros(lease));
    let insert = new_row(ticket, &me, &format!("{NOW} + {lease}"), 1, "''");
    let withdrawn = withdrawn(ticket);
    let marked = withdrawn.replace("l.", "tidelock_locks.");
    format!(
        "{insert} ON DUPLICATE KEY UPDATE \
         owner = IF(tidelock_locks.expires <= {NOW} AND NOT {marked}, {me}, tidelock_locks.owner), \
         token = tidelock_locks.token + (tidelock_locks.owner = {me} AND tidelock_locks.expires <= {NOW}), \
         expires = IF(tidelock_locks.owner = {me}, GREATEST(tidelock_locks.expires, {NOW} + {lease}), tidelock_locks.expires); \
         SELECT l.owner = {me} AND l.expires > {NOW}, GREATEST(l.expires - {NOW}, 0), l.token, {withdrawn} \
         FROM tidelock_locks AS l WHERE l.id = {id}",
        id = id(&ticket.name),
    )
}

/// Lets go what the ticket holds. Answers: 1 if it held the lock, or nobody else has had it since its lease ended.
///
/// The end is set back to now, and no further: rows are cleared away by it.
pub(super) fn release(ticket: &Ticket) -> String {
    format!(
        "UPDATE tidelock_locks FORCE INDEX (PRIMARY) SET owner = '', expires = LEAST(expires, {NOW}) \
         WHERE id = {} AND owner = {}; SELECT ROW_COUNT()",
        id(&ticket.name),
        owner(&ticket.owner)
    )
}

/// Lets go, whoever holds it. Answers: 1 if somebody did.
pub(super) fn force_release(name: &Name) -> String {
    format!(
        "UPDATE tidelock_locks FORCE INDEX (PRIMARY) SET owner = '', expires = {NOW} WHERE id = {} AND expires > {NOW}; SELECT ROW_COUNT()",
        id(name)
    )
}

/// Marks the ticket first, so that an attempt of it that comes in between takes no effect, and lets go then. A row whose
/// lease has ended must not keep its name either: by its name an attempt knows what it has just taken.
///
/// Marks are kept in two heaps: when the newer one is old enough it becomes the older, and the older one is forgotten.
///
/// Answers: 1 if it held the lock, and 1 if the mark could be set.
pub(super) fn withdraw(ticket: &Ticket) -> String {
    let mark = mark(&ticket.owner);
    let old = format!("tidelock_locks.turned + {REMEMBERED} <= {NOW}");
    format!(
        "{insert} ON DUPLICATE KEY UPDATE \
         before_that = IF({old}, tidelock_locks.withdrawn, tidelock_locks.before_that), \
         withdrawn = IF({old}, {mark}, CONCAT(tidelock_locks.withdrawn, {mark})), \
         turned = IF({old}, {NOW}, tidelock_locks.turned); {release}, \
         (SELECT COUNT(*) FROM tidelock_counter WHERE one = 1)",
        insert = new_row(ticket, "''", NOW, 0, &mark),
        release = release(ticket),
    )
}

/// Answers: the owners that hold their locks, for the leases asked for.
///
/// Here and below by the key, whatever the server thinks best: a scan of a small table would wait for rows of others, and
/// the other index for a fence.
pub(super) fn renew(batch: &[Renewal]) -> String {
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

/// For somebody's own transaction: an error unless the token is the newest, and until the transaction ends no other comes
/// to be. It keeps an entry of an index that a grant changes, and that renewals and releases leave alone.
///
/// Without stored programs a statement fails only by what it computes. The name of the column is what the error shows.
pub(super) fn fence(database: &str) -> String {
    let database = database.replace('`', "``");
    format!(
        "SELECT 18446744073709551615 + f.a_newer_tidelock_token_exists FROM (\
         SELECT COUNT(*) = 0 AS a_newer_tidelock_token_exists FROM `{database}`.tidelock_locks FORCE INDEX (granted) \
         WHERE id = UNHEX(SHA2(CONVERT(? USING utf8mb4), 256)) AND token = ? LOCK IN SHARE MODE) AS f"
    )
}

/// Answers: owner, what is left of the lease, the newest token, and the holder's details.
pub(super) fn inspect(name: &Name) -> String {
    format!(
        "SELECT l.owner, GREATEST(l.expires - {NOW}, 0), l.token, c.host, c.pid, c.program, c.since \
         FROM tidelock_locks AS l LEFT JOIN tidelock_clients AS c ON c.client = SUBSTRING_INDEX(l.owner, ':', 1) \
         WHERE l.id = {}",
        id(name)
    )
}

/// Answers: the beginnings of keys, from this one on, and the names of what is held; empty for what is not.
pub(super) fn list(from: u64) -> String {
    format!(
        "SELECT CONV(HEX(SUBSTRING(id, 1, 8)), 16, 10), IF(expires > {NOW}, name, '') FROM tidelock_locks \
         WHERE id >= x'{from:016x}000000000000000000000000000000000000000000000000' ORDER BY id LIMIT {PAGE}"
    )
}

/// Leaves our details, and clears away what has long ended.
pub(super) fn announce(client: &ClientId, info: &ClientInfo, keep: Duration) -> String {
    let since = info.since.duration_since(std::time::UNIX_EPOCH);
    format!(
        "REPLACE INTO tidelock_clients (client, host, pid, program, since, expires) \
         VALUES ({}, CONVERT({} USING utf8mb4), {}, CONVERT({} USING utf8mb4), {}, {NOW} + {}); \
         DELETE FROM tidelock_clients WHERE expires <= {NOW} ORDER BY client LIMIT {SWEPT}",
        hex(client.as_str()),
        hex(&info.host),
        info.pid,
        hex(&info.program),
        since.unwrap_or_default().as_millis(),
        micros(keep),
    )
}

pub(super) fn retract(client: &ClientId) -> String {
    let client = hex(client.as_str());
    format!("DELETE FROM tidelock_clients WHERE client = {client}")
}

/// Clears away rows of names that nobody has used for long. The counter first: who makes a row waits for it, and then
/// sees it beyond every token that is being deleted.
pub(super) fn sweep() -> String {
    let old = format!("expires <= {NOW} - {KEPT} AND turned <= {NOW} - {KEPT}");
    format!(
        "START TRANSACTION; \
         SELECT token FROM tidelock_counter WHERE one = 1 FOR UPDATE; \
         SELECT @tidelock_swept := COALESCE(MAX(token), 0) FROM tidelock_locks WHERE {old} FOR UPDATE; \
         UPDATE tidelock_counter SET token = GREATEST(token, @tidelock_swept) WHERE one = 1; \
         DELETE FROM tidelock_locks WHERE {old} ORDER BY expires LIMIT {SWEPT}; COMMIT"
    )
}
