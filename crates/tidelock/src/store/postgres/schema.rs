//! The SQL statements. Each operation is one statement. It decides on one row, under that row's lock and by the
//! server's clock at that moment.

use std::time::Duration;

use crate::fence::{POSTGRES_REFUSAL, SQLSTATE};
use crate::store::postgres::mark_sql::MarkSql;
use crate::store::postgres::prepared::NamedStatement;

/// How long a withdrawn owner is remembered, in seconds. Longer than a statement can stay in the buffers of a frozen
/// server; otherwise a late attempt could take the lock after its withdrawal.
pub(crate) const WITHDRAWN_TTL_SECONDS: u32 = 300;

/// Bounds the withdrawn owners in the row itself, newest first. More than can be withdrawn while one attempt runs;
/// otherwise that attempt could miss its own withdrawal.
pub(crate) const NEWEST: u32 = 32;

/// How long an unused row is kept, in seconds. Longer than any statement runs; otherwise an attempt that drew its token
/// before the row was deleted could be granted after an attempt with a larger token.
const ROW_TTL_SECONDS: u32 = 3600;

/// Bounds how many rows one statement of a sweep deletes.
pub(crate) const SWEPT: i64 = 1000;

/// How long an attempt waits for a transaction that locks the row, in milliseconds. Later statements of the connection
/// wait behind it.
pub(crate) const ROW_PATIENCE: u32 = 40;

/// How long a raise of the tokens waits for the table, in milliseconds. Attempts and renewals wait behind it.
const RAISE_PATIENCE: u32 = 1000;

/// The server's time when the expression is evaluated, not when the transaction began.
pub(crate) const NOW: &str = "clock_timestamp()";

/// The last number of a sequence, as an expression. A sequence that was not used yet shows the first one.
const LAST_TOKEN: &str = "CASE WHEN is_called THEN last_value ELSE last_value - 1 END";

/// The next token of the row `l`, as an expression. A logical replica, and a restored dump of the tables alone, have the rows
/// but not the number of the sequence.
pub(crate) fn next_token(table: &str) -> String {
    format!("greatest(nextval('{table}_tokens'), l.token + 1)")
}

/// The last number of the sequence, as an expression that is evaluated once and needs no other right than an attempt. Zero
/// if the sequence was not used since it was made or restarted, wherever it begins. Null for a user without that right, and
/// if there is no sequence: a client that only looks at restored tables does not make it.
fn last_drawn(table: &str) -> String {
    let sequence = format!("to_regclass('{table}_tokens')");
    format!(
        "(SELECT CASE WHEN has_sequence_privilege({sequence}, 'SELECT, USAGE') \
           THEN coalesce(pg_sequence_last_value({sequence}), 0) END)"
    )
}

/// Whether the server's queue of messages has room, as an expression. The queue is one for all databases.
pub(crate) const HAS_ROOM: &str = "pg_notification_queue_usage() < 0.9";

/// A condition that is true, and fails on a standby. A statement that only reads would be answered there too, also after a
/// reconnect or behind a pooler that sends it there. What a standby does not have yet would be taken for a loss.
pub(crate) const NO_STANDBY: &str = "(SELECT txid_current()) IS NOT NULL";

/// The owner in the row of a name that is a semaphore. No owner id is so.
pub(crate) const SEMAPHORE: &str = ":semaphore";

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) table: String,
    /// Missing tables may be made.
    pub(crate) may_make: bool,
    /// The `NOTIFY` channel for releases.
    pub(crate) channel: String,
    /// Two columns: which of the tables are missing that a look needs, and what else is missing.
    pub(crate) missing: String,
    pub(crate) make: String,
    pub(crate) attempt: NamedStatement,
    /// Passes over rows that another transaction locks.
    pub(crate) renew: String,
    /// As `renew`, but it waits for such rows, each for as long as `$5` says.
    pub(crate) renew_patiently: String,
    /// As `renew`, but it changes nothing, and answers which locks are held.
    pub(crate) held: String,
    /// The third column: whether there are tables of a queue that this user may read.
    pub(crate) release: NamedStatement,
    /// As `release`, but it changes nothing while somebody waits in the queue of this name.
    pub(crate) release_unless_waited: NamedStatement,
    /// The third column as in `release`.
    pub(crate) withdraw: String,
    pub(crate) force: String,
    /// As `force`, for the owners in `$2` and, unless it is null, the newest token in `$3`.
    pub(crate) force_if: String,
    pub(crate) inspect: String,
    /// The second column: whether the name is a semaphore, which need not be held.
    pub(crate) list: String,
    pub(crate) announce: String,
    /// For the table of an earlier tidelock, which has no column for the user.
    pub(crate) announce_without_user: String,
    pub(crate) retract: String,
    /// Deletes some rows that expired long ago, and counts them. It keeps those that the sequence is behind: without its row,
    /// a name would be granted a smaller token than before.
    pub(crate) sweep: String,
    /// Sends a notification on the channel.
    pub(crate) tell: String,
    pub(crate) fence: String,
    /// Reads the last number of the sequence, and the token of a row.
    pub(crate) counter: String,
    /// Reads the largest token of a row, and the last number of the sequence, or null for a user who may not use it. That number
    /// is zero if the sequence was not used since it was made or restarted.
    pub(crate) largest: String,
    /// Reads the last number of the sequence, also of one that was restarted and not used since. Needs the right to read it.
    pub(crate) last: String,
    pub(crate) marks: MarkSql,
}

impl Sql {
    /// `table` was validated: letters, digits, underscores, and optionally a schema before a dot.
    pub(crate) fn new(table: &str) -> Self {
        let channel = channel(table);
        Self {
            missing: missing(table),
            make: make(table),
            attempt: NamedStatement::new("text, text, bigint", attempt(table)),
            renew: renew(table, "", "true", " SKIP LOCKED"),
            renew_patiently: renew(
                table,
                "patience AS MATERIALIZED (SELECT set_config('lock_timeout', $5, true) AS value), ",
                "(SELECT value FROM patience) IS NOT NULL",
                "",
            ),
            held: format!(
                "SELECT a.number FROM {ASKED} JOIN {table} AS l ON l.name = a.name AND l.owner = a.owner \
                 WHERE l.expires > {NOW} AND {NO_STANDBY}"
            ),
            release: release(table, ""),
            release_unless_waited: release(
                table,
                &format!(
                    "AND NOT EXISTS (SELECT 1 FROM {table}_waiters WHERE name = $1 AND alive > {NOW}) \
                     AND NOT EXISTS (SELECT 1 FROM {table}_sides WHERE name = $1 AND held_as IS NULL AND ends > {NOW})"
                ),
            ),
            withdraw: withdraw(table),
            force: force(table, ""),
            force_if: force(
                table,
                "AND owner = ANY ($2::text[]) AND ($3::bigint IS NULL OR token = $3)",
            ),
            inspect: format!(
                "SELECT l.token, l.owner, (extract(epoch FROM l.expires - {NOW}) * 1000000)::bigint, \
                   c.host, c.pid, c.program, c.since, to_jsonb(c) ->> 'os_user' \
                 FROM {table} l LEFT JOIN {table}_clients c ON c.client = split_part(l.owner, ':', 1) AND c.expires > {NOW} \
                 WHERE l.name = $1"
            ),
            list: format!(
                "SELECT name, owner = '{SEMAPHORE}' FROM {table} WHERE owner IS NOT NULL AND expires > {NOW} AND name > $2 ORDER BY name LIMIT $1"
            ),
            announce: announce(table, ", os_user", ", $7"),
            announce_without_user: announce(table, "", ""),
            retract: format!("DELETE FROM {table}_clients WHERE client = $1"),
            sweep: sweep(table),
            tell: format!("SELECT pg_notify('{channel}', $1)::text"),
            fence: format!("SELECT {table}_fence($1, $2) AS token"),
            counter: format!(
                "SELECT {LAST_TOKEN}, (SELECT token FROM {table} WHERE name = $1) FROM {table}_tokens"
            ),
            largest: largest(table),
            last: format!("SELECT {LAST_TOKEN} FROM {table}_tokens"),
            table: table.to_owned(),
            marks: MarkSql::new(table),
            may_make: true,
            channel,
        }
    }
}

/// The renewals of a batch.
const ASKED: &str =
    "unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS a (name, owner, lease, number)";

/// Extends leases. Returns the numbers of those that are kept. `before`: another common table. `how`: how it locks the rows
/// that meet the condition.
///
/// The lease is looked at once more after a wait for its row.
fn renew(table: &str, before: &str, condition: &str, how: &str) -> String {
    format!(
        "WITH {before}ours AS MATERIALIZED (SELECT l.name, a.lease, a.number \
           FROM {ASKED} JOIN {table} AS l ON l.name = a.name AND l.owner = a.owner \
           WHERE l.expires > {NOW} AND {condition} FOR NO KEY UPDATE OF l{how}) \
         UPDATE {table} AS l SET expires = greatest(l.expires, {NOW} + ours.lease * interval '1 microsecond') \
         FROM ours WHERE l.name = ours.name AND l.expires > {NOW} RETURNING ours.number"
    )
}

/// A wait for a row as the value of `lock_timeout`, where zero is without end.
pub(crate) fn timeout(patience: Duration) -> String {
    format!("{}ms", patience.as_millis().clamp(1, 3_600_000))
}

/// Frees a lock regardless of its owner, if it meets the condition.
fn force(table: &str, condition: &str) -> String {
    let free = free(table);
    format!(
        "WITH freed AS (UPDATE {table} SET owner = NULL, expires = {NOW} \
           WHERE name = $1 AND owner <> '{SEMAPHORE}' AND expires > {NOW} {condition} RETURNING name) \
         SELECT true, {free} FROM freed"
    )
}

/// Stores the details of a client.
fn announce(table: &str, column: &str, value: &str) -> String {
    format!(
        "INSERT INTO {table}_clients (client, host, pid, program, since, expires{column}) \
         VALUES ($1, $2, $3, $4, $5, {NOW} + $6 * interval '1 microsecond'{value}) \
         ON CONFLICT (client) DO UPDATE SET expires = EXCLUDED.expires"
    )
}

/// Deletes some rows that expired long ago. Only one client does so at a time, and the others delete none: a thousand clients
/// that are started together would otherwise all read the whole table.
fn sweep(table: &str) -> String {
    let last = last_drawn(table);
    // Each connect waits for this statement. So it passes over rows that another transaction locks, however long that is open.
    //
    // Locks with two keys are apart from those with one key, such as the server's own locks of `locks=session`.
    format!(
        "WITH old AS (DELETE FROM {table}_clients WHERE client IN (SELECT client FROM {table}_clients \
           WHERE expires < {NOW} FOR UPDATE SKIP LOCKED)), \
         turn AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(hashtext('{table}'), hashtext('sweep')) AS is_ours), \
         gone AS (DELETE FROM {table} WHERE name IN (SELECT name FROM {table} \
           WHERE (SELECT is_ours FROM turn) AND expires < {NOW} - interval '{ROW_TTL_SECONDS} seconds' AND token <= {last} \
           LIMIT {SWEPT} FOR UPDATE SKIP LOCKED) RETURNING 1) \
         SELECT count(*) FROM gone"
    )
}

/// Compares the rows with the sequence.
fn largest(table: &str) -> String {
    let last = last_drawn(table);
    format!("SELECT coalesce(max(token), 0), {last} FROM {table}")
}

/// The `NOTIFY` channel of a table.
fn channel(table: &str) -> String {
    table.replace('.', "_")
}

/// The call that wakes the waiters of a row's lock.
fn free(table: &str) -> String {
    notify(&channel(table), "'f' || name")
}

/// The call that sends a message, which is an expression too. It sends none while the server's queue has no room.
///
/// A session that listens, and leaves a transaction open, keeps all messages of the server in the queue. When the queue is
/// full, each transaction with a message fails at its commit, and the release in it would be undone. Without messages the
/// waiters ask again and again.
pub(crate) fn notify(channel: &str, message: &str) -> String {
    // `CASE` has an order of evaluation. The question is a query of its own, so it is asked once for all rows.
    format!("CASE WHEN (SELECT {HAS_ROOM}) THEN pg_notify('{channel}', {message})::text END")
}

/// Names what is missing of all that [`make`] creates.
fn missing(table: &str) -> String {
    let unless = |found: &str, name: &str| format!("CASE WHEN {found} IS NULL THEN '{name}' END");
    let relation = |end: &str| {
        let name = format!("{table}{end}");
        unless(&format!("to_regclass('{name}')"), &name)
    };
    format!(
        "SELECT concat_ws(', ', {}, {}), concat_ws(', ', {}, {}, {})",
        relation(""),
        relation("_clients"),
        relation("_withdrawn"),
        relation("_tokens"),
        unless(
            &format!("to_regprocedure('{table}_fence(text,bigint)')"),
            &format!("{table}_fence")
        ),
    )
}

/// Creates the tables, the sequence and the function.
fn make(table: &str) -> String {
    // Sent as one query, so it runs as one transaction. The advisory lock serializes concurrent processes.
    //
    // `token` is part of a unique key. So changing it takes a stronger row lock than a renewal or a release
    // does, and a fence in a user's transaction blocks new grants only.
    format!(
        "SELECT pg_advisory_xact_lock(hashtext('{table}'));\n\
         CREATE TABLE IF NOT EXISTS {table} (\n  \
           name text COLLATE \"C\" PRIMARY KEY,\n  \
           owner text,\n  \
           expires timestamptz NOT NULL,\n  \
           token bigint NOT NULL,\n  \
           withdrawn text[] NOT NULL DEFAULT '{{}}',\n  \
           ended text,\n  \
           UNIQUE (name, token)\n);\n\
         CREATE TABLE IF NOT EXISTS {table}_withdrawn (\n  \
           owner text PRIMARY KEY,\n  at timestamptz NOT NULL,\n  UNIQUE (at, owner)\n);\n\
         CREATE TABLE IF NOT EXISTS {table}_clients (\n  \
           client text PRIMARY KEY,\n  host text NOT NULL,\n  pid bigint NOT NULL,\n  program text NOT NULL,\n  \
           since bigint NOT NULL,\n  expires timestamptz NOT NULL,\n  os_user text\n);\n\
         CREATE SEQUENCE IF NOT EXISTS {table}_tokens;\n\
         {}\n\
         {}",
        catch_up(table),
        make_fence(table)
    )
}

/// Raises the sequence to the largest token of the rows, if it is behind. The rows may come from a dump without the sequence,
/// which was then made here. As in [`raise`], the lock excludes attempts.
///
/// A user without the rights to do so may still make the rest. But who owns the sequence may have made it just now, and then
/// makes nothing: it would be behind the rows, and a name without a row would be granted a smaller token than before.
fn catch_up(table: &str) -> String {
    let last = last_drawn(table);
    format!(
        "DO $tokens$\n\
         DECLARE newest bigint;\n\
         BEGIN\n  \
           IF (SELECT max(token) FROM {table}) > {last} THEN\n    \
             PERFORM set_config('lock_timeout', '{RAISE_PATIENCE}ms', true);\n    \
             LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;\n    \
             SELECT max(token) INTO newest FROM {table};\n    \
             PERFORM setval('{table}_tokens', newest) FROM {table}_tokens WHERE {LAST_TOKEN} < newest;\n  \
           END IF;\n\
         EXCEPTION WHEN insufficient_privilege THEN\n  \
           IF (SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = to_regclass('{table}_tokens')) THEN RAISE; END IF;\n\
         END $tokens$;"
    )
}

/// Grants the lock, or says why not: 1 and the token; 0 and the holder's remaining time; 2 for a withdrawn owner;
/// 3 if the name is a semaphore.
fn attempt(table: &str) -> String {
    // The INSERT reads `patience`, so that `lock_timeout` is set before it waits for the row.
    //
    // It would wait for the row before it looks who holds the lock, also for a fence in a user's transaction, and later
    // statements of the connection behind it. So a lock that another owner holds is refused before. If it is released
    // after the statement has begun, the notification comes after the wake was armed.
    let next_token = next_token(table);
    format!(
        "WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', '{ROW_PATIENCE}ms', true) AS set), \
         granted AS (\
           INSERT INTO {table} AS l (name, owner, expires, token) \
           SELECT $1, $2, {NOW} + $3 * interval '1 microsecond', nextval('{table}_tokens') FROM patience WHERE set IS NOT NULL \
             AND NOT EXISTS (SELECT 1 FROM {table} AS h WHERE h.name = $1 AND h.owner <> $2 AND h.expires > {NOW}) \
           ON CONFLICT (name) DO UPDATE SET \
             owner = EXCLUDED.owner, \
             expires = CASE WHEN l.owner = EXCLUDED.owner THEN greatest(l.expires, {NOW} + $3 * interval '1 microsecond') \
                       ELSE {NOW} + $3 * interval '1 microsecond' END, \
             token = CASE WHEN l.owner = EXCLUDED.owner THEN l.token ELSE {next_token} END \
           WHERE NOT $2 = ANY (l.withdrawn) AND NOT EXISTS (SELECT 1 FROM {table}_withdrawn WHERE owner = $2) \
             AND (l.owner IS NULL OR l.owner = EXCLUDED.owner OR l.expires <= {NOW}) \
           RETURNING token) \
         SELECT 1, token FROM granted UNION ALL \
         SELECT CASE WHEN $2 = ANY (withdrawn) OR EXISTS (SELECT 1 FROM {table}_withdrawn w WHERE w.owner = $2) THEN 2 \
           WHEN owner = '{SEMAPHORE}' THEN 3 ELSE 0 END, \
           (extract(epoch FROM expires - {NOW}) * 1000000)::bigint \
         FROM {table} WHERE name = $1 AND NOT EXISTS (SELECT 1 FROM granted)"
    )
}

/// Releases the lock of a ticket.
fn release(table: &str, condition: &str) -> NamedStatement {
    let free = free(table);
    let text = format!(
        "WITH freed AS (UPDATE {table} SET owner = NULL, expires = {NOW} \
           WHERE name = $1 AND owner = $2 AND expires > {NOW} {condition} RETURNING name) \
         SELECT true, {free}, {} FROM freed",
        has_queue(table)
    );
    NamedStatement::new("text, text", text)
}

/// Whether there are tables of a queue that this user may serve, as an expression.
fn has_queue(table: &str) -> String {
    format!(
        "coalesce(has_table_privilege(to_regclass('{table}_waiters'), 'SELECT') \
           AND has_table_privilege(to_regclass('{table}_waiters'), 'DELETE') \
           AND has_table_privilege(to_regclass('{table}_sides'), 'SELECT') \
           AND has_table_privilege(to_regclass('{table}_sides'), 'UPDATE') \
           AND has_table_privilege(to_regclass('{table}_sides'), 'DELETE'), false)"
    )
}

/// Ends a ticket, and records its owner so that a late attempt is refused.
fn withdraw(table: &str) -> String {
    let free = free(table);
    // We record the owner twice. An attempt that began earlier sees the copy in the row, because it reads the
    // row again once it has the row lock. The separate table has room for every owner.
    format!(
        "WITH old AS (DELETE FROM {table}_withdrawn WHERE owner IN (SELECT owner FROM {table}_withdrawn \
             WHERE at < {NOW} - interval '{WITHDRAWN_TTL_SECONDS} seconds' ORDER BY at LIMIT 10 FOR UPDATE SKIP LOCKED)), \
         mark AS (INSERT INTO {table}_withdrawn (owner, at) VALUES ($2, {NOW}) ON CONFLICT DO NOTHING), \
         gone AS (INSERT INTO {table} AS l (name, expires, token, withdrawn) VALUES ($1, {NOW}, 0, ARRAY[$2]) \
           ON CONFLICT (name) DO UPDATE SET \
             owner = CASE WHEN l.owner = $2 THEN NULL ELSE l.owner END, \
             expires = CASE WHEN l.owner = $2 THEN {NOW} ELSE l.expires END, \
             ended = CASE WHEN l.owner = $2 AND l.expires > {NOW} THEN $2 END, \
             withdrawn = (ARRAY[$2] || l.withdrawn)[1:{NEWEST}] \
           RETURNING name, ended IS NOT NULL AS held) \
         SELECT held, CASE WHEN held THEN {free} END, {} FROM gone",
        has_queue(table)
    )
}

/// Raises the sequence of the tokens. Sent as one query, so it runs as one transaction.
///
/// The lock on the table excludes attempts, which draw tokens, and other raises. Otherwise a token that is drawn between
/// the look at the sequence and `setval` would be drawn twice. It does not wait for a fence in a user's transaction.
pub(crate) fn raise(table: &str, newest: i64) -> String {
    format!(
        "SELECT set_config('lock_timeout', '{RAISE_PATIENCE}ms', true);\n\
         LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;\n\
         SELECT setval('{table}_tokens', {newest}) FROM {table}_tokens WHERE {LAST_TOKEN} < {newest}"
    )
}

/// Creates the function of the fence. It fails the user's transaction unless the token is still the newest. Only a
/// function can fail with an SQLSTATE of its own.
///
/// Its query is a statement with a new snapshot, so it sees a grant that was committed while the user's statement was on
/// its way.
///
/// Only its owner may replace it. For another user the function that is there is good enough: otherwise the error would undo
/// all that is made with it, also where a client of the owner has made everything in the meantime.
fn make_fence(table: &str) -> String {
    format!(
        "DO $make$\n\
         BEGIN\n\
         CREATE OR REPLACE FUNCTION {table}_fence(text, bigint) RETURNS bigint LANGUAGE plpgsql AS $fence$\n\
         DECLARE newest bigint;\n\
         BEGIN\n  \
           SELECT held.token INTO newest FROM {table} AS held WHERE held.name = $1 FOR KEY SHARE;\n  \
           IF newest = $2 THEN RETURN newest; END IF;\n  \
           RAISE EXCEPTION USING ERRCODE = '{SQLSTATE}', MESSAGE = '{POSTGRES_REFUSAL}, its newest token is ' \
             || coalesce(newest::text, 'not known any more');\n\
         END $fence$;\n\
         EXCEPTION WHEN insufficient_privilege THEN\n  \
           IF to_regprocedure('{table}_fence(text,bigint)') IS NULL THEN RAISE; END IF;\n\
         END $make$;"
    )
}
