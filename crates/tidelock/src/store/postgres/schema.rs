//! The SQL statements. Each operation is one statement. It decides on one row, under that row's lock and by the
//! server's clock at that moment.

/// How long a withdrawn owner is remembered, in seconds. Longer than a statement can stay in the buffers of a frozen
/// server; otherwise a late attempt could take the lock after its withdrawal.
const WITHDRAWN_TTL_SECONDS: u32 = 300;

/// Bounds the withdrawn owners in the row itself, newest first. More than can be withdrawn while one attempt runs;
/// otherwise that attempt could miss its own withdrawal.
const NEWEST: u32 = 32;

/// How long an unused row is kept, in seconds. Longer than any statement runs; otherwise an attempt that drew its token
/// before the row was deleted could be granted after an attempt with a larger token.
const ROW_TTL_SECONDS: u32 = 3600;

/// How long an attempt waits for a transaction that locks the row, in milliseconds. Later statements of the connection
/// wait behind it.
const ROW_PATIENCE: u32 = 40;

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) table: String,
    pub(crate) clients: String,
    /// The `NOTIFY` channel for releases.
    pub(crate) channel: String,
    /// Checks that the tables exist.
    pub(crate) there: String,
    pub(crate) make: String,
    pub(crate) attempt: String,
    pub(crate) renew: String,
    pub(crate) release: String,
    pub(crate) withdraw: String,
    pub(crate) force: String,
    pub(crate) inspect: String,
    pub(crate) list: String,
    pub(crate) announce: String,
    pub(crate) retract: String,
    /// Deletes rows that expired long ago.
    pub(crate) sweep: String,
    /// Sends a notification on the channel.
    pub(crate) tell: String,
    pub(crate) fence: String,
}

impl Sql {
    /// `table` was validated: letters, digits, underscores, and optionally a schema before a dot.
    #[allow(clippy::too_many_lines, reason = "one statement after another")]
    pub(crate) fn new(table: &str) -> Self {
        let clients = format!("{table}_clients");
        let tokens = format!("{table}_tokens");
        let withdrawn = format!("{table}_withdrawn");
        // The server creates an index in its table's schema, and rejects a schema in the index's name.
        let index = table.rsplit('.').next().unwrap_or(table);
        let channel = table.replace('.', "_");
        let now = "clock_timestamp()";
        let free = format!("pg_notify('{channel}', 'f' || name)");
        Self {
            there: "SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL".to_owned(),
            // Sent as one query, so it runs as one transaction. The advisory lock serializes concurrent processes.
            //
            // `token` is part of a unique key. So changing it takes a stronger row lock than a renewal or a release
            // does, and a fence in a user's transaction blocks new grants only.
            make: format!(
                "SELECT pg_advisory_xact_lock(hashtext('{table}'));\n\
                 CREATE TABLE IF NOT EXISTS {table} (\n  \
                   name text COLLATE \"C\" PRIMARY KEY,\n  \
                   owner text,\n  \
                   expires timestamptz NOT NULL,\n  \
                   token bigint NOT NULL,\n  \
                   withdrawn text[] NOT NULL DEFAULT '{{}}',\n  \
                   ended text,\n  \
                   UNIQUE (name, token)\n);\n\
                 CREATE TABLE IF NOT EXISTS {withdrawn} (owner text PRIMARY KEY, at timestamptz NOT NULL);\n\
                 CREATE INDEX IF NOT EXISTS {index}_withdrawn_at ON {withdrawn} (at);\n\
                 CREATE TABLE IF NOT EXISTS {clients} (\n  \
                   client text PRIMARY KEY,\n  host text NOT NULL,\n  pid bigint NOT NULL,\n  program text NOT NULL,\n  \
                   since bigint NOT NULL,\n  expires timestamptz NOT NULL\n);\n\
                 CREATE SEQUENCE IF NOT EXISTS {tokens};"
            ),
            // The INSERT reads `patience`, so that `lock_timeout` is set before it waits for the row.
            attempt: format!(
                "WITH patience AS MATERIALIZED (SELECT set_config('lock_timeout', '{ROW_PATIENCE}ms', true) AS set), \
                 granted AS (\
                   INSERT INTO {table} AS l (name, owner, expires, token) \
                   SELECT $1, $2, {now} + $3 * interval '1 microsecond', nextval('{tokens}') FROM patience WHERE set IS NOT NULL \
                   ON CONFLICT (name) DO UPDATE SET \
                     owner = EXCLUDED.owner, \
                     expires = CASE WHEN l.owner = EXCLUDED.owner THEN greatest(l.expires, {now} + $3 * interval '1 microsecond') \
                               ELSE {now} + $3 * interval '1 microsecond' END, \
                     token = CASE WHEN l.owner = EXCLUDED.owner THEN l.token ELSE nextval('{tokens}') END \
                   WHERE NOT $2 = ANY (l.withdrawn) AND NOT EXISTS (SELECT 1 FROM {withdrawn} WHERE owner = $2) \
                     AND (l.owner IS NULL OR l.owner = EXCLUDED.owner OR l.expires <= {now}) \
                   RETURNING token) \
                 SELECT 1, token FROM granted UNION ALL \
                 SELECT CASE WHEN $2 = ANY (withdrawn) OR EXISTS (SELECT 1 FROM {withdrawn} w WHERE w.owner = $2) THEN 2 ELSE 0 END, \
                   (extract(epoch FROM expires - {now}) * 1000000)::bigint \
                 FROM {table} WHERE name = $1 AND NOT EXISTS (SELECT 1 FROM granted)"
            ),
            renew: format!(
                "UPDATE {table} AS l SET expires = greatest(l.expires, {now} + a.lease * interval '1 microsecond') \
                 FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS a (name, owner, lease, number) \
                 WHERE l.name = a.name AND l.owner = a.owner AND l.expires > {now} RETURNING a.number"
            ),
            release: format!(
                "WITH freed AS (UPDATE {table} SET owner = NULL, expires = {now} \
                   WHERE name = $1 AND owner = $2 AND expires > {now} RETURNING name) \
                 SELECT true, {free}::text FROM freed"
            ),
            // We record the owner twice. An attempt that began earlier sees the copy in the row, because it reads the
            // row again once it has the row lock. The separate table has room for every owner.
            withdraw: format!(
                "WITH old AS (DELETE FROM {withdrawn} WHERE owner IN (SELECT owner FROM {withdrawn} \
                     WHERE at < {now} - interval '{WITHDRAWN_TTL_SECONDS} seconds' ORDER BY at LIMIT 10 FOR UPDATE SKIP LOCKED)), \
                 mark AS (INSERT INTO {withdrawn} (owner, at) VALUES ($2, {now}) ON CONFLICT DO NOTHING), \
                 gone AS (INSERT INTO {table} AS l (name, expires, token, withdrawn) VALUES ($1, {now}, 0, ARRAY[$2]) \
                   ON CONFLICT (name) DO UPDATE SET \
                     owner = CASE WHEN l.owner = $2 THEN NULL ELSE l.owner END, \
                     expires = CASE WHEN l.owner = $2 THEN {now} ELSE l.expires END, \
                     ended = CASE WHEN l.owner = $2 AND l.expires > {now} THEN $2 END, \
                     withdrawn = (ARRAY[$2] || l.withdrawn)[1:{NEWEST}] \
                   RETURNING name, ended IS NOT NULL AS held) \
                 SELECT held, CASE WHEN held THEN {free}::text END FROM gone"
            ),
            force: format!(
                "WITH freed AS (UPDATE {table} SET owner = NULL, expires = {now} \
                   WHERE name = $1 AND owner IS NOT NULL AND expires > {now} RETURNING name) \
                 SELECT true, {free}::text FROM freed"
            ),
            inspect: format!(
                "SELECT l.token, l.owner, (extract(epoch FROM l.expires - {now}) * 1000000)::bigint, \
                   c.host, c.pid, c.program, c.since \
                 FROM {table} l LEFT JOIN {clients} c ON c.client = split_part(l.owner, ':', 1) AND c.expires > {now} \
                 WHERE l.name = $1"
            ),
            list: format!(
                "SELECT name FROM {table} WHERE owner IS NOT NULL AND expires > {now} ORDER BY name LIMIT $1 OFFSET $2"
            ),
            announce: format!(
                "INSERT INTO {clients} (client, host, pid, program, since, expires) \
                 VALUES ($1, $2, $3, $4, $5, {now} + $6 * interval '1 microsecond') \
                 ON CONFLICT (client) DO UPDATE SET expires = EXCLUDED.expires"
            ),
            retract: format!("DELETE FROM {clients} WHERE client = $1"),
            sweep: format!(
                "WITH old AS (DELETE FROM {clients} WHERE expires < {now}) \
                 DELETE FROM {table} WHERE name IN (SELECT name FROM {table} \
                   WHERE expires < {now} - interval '{ROW_TTL_SECONDS} seconds' LIMIT 1000 FOR UPDATE SKIP LOCKED)"
            ),
            tell: format!("SELECT pg_notify('{channel}', $1)::text"),
            // The text cannot be cast to bigint: the cast raises our message and aborts the user's transaction.
            fence: format!(
                "SELECT CASE WHEN held.token = $2 THEN held.token ELSE \
                   ('tidelock: the lock was given to somebody else since, its newest token is ' \
                     || coalesce(held.token::text, 'not known any more'))::bigint END AS token \
                 FROM (VALUES (1)) AS one LEFT JOIN LATERAL \
                   (SELECT token FROM {table} WHERE name = $1 FOR KEY SHARE) AS held ON true"
            ),
            table: table.to_owned(),
            clients,
            channel,
        }
    }
}
