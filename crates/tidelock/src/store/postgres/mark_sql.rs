//! The SQL statements for the marks of a job's slots.

/// The statements for the marks of one table of locks.
#[derive(Debug)]
pub(crate) struct MarkSql {
    pub(crate) make: String,
    pub(crate) read: String,
    pub(crate) put: String,
    pub(crate) replace: String,
    pub(crate) history: String,
}

pub(crate) const NOW: &str = "clock_timestamp()";

impl MarkSql {
    /// `table` was validated, as for the locks.
    pub(crate) fn new(table: &str) -> Self {
        let marks = format!("{table}_marks");
        // Not the row of this slot: the same statement may write it.
        let expired = format!(
            "expired AS (DELETE FROM {marks} WHERE (name, slot) IN (SELECT name, slot FROM {marks} \
             WHERE expires <= {NOW} AND NOT (name = $1 AND slot = $2) LIMIT 100 FOR UPDATE SKIP LOCKED))"
        );
        Self {
            make: format!(
                "SELECT pg_advisory_xact_lock(hashtext('{table}'));\n\
                 CREATE TABLE IF NOT EXISTS {marks} (\n  \
                   name text COLLATE \"C\" NOT NULL,\n  slot text COLLATE \"C\" NOT NULL,\n  mark text NOT NULL,\n  \
                   written timestamptz NOT NULL,\n  expires timestamptz NOT NULL,\n  PRIMARY KEY (name, slot),\n  \
                   UNIQUE (expires, name, slot)\n);"
            ),
            read: format!(
                "SELECT mark FROM {marks} WHERE name = $1 AND slot = $2 AND expires > {NOW}"
            ),
            put: format!(
                "WITH {expired} INSERT INTO {marks} AS m (name, slot, mark, written, expires) \
                 VALUES ($1, $2, $3, {NOW}, {NOW} + $4 * interval '1 microsecond') \
                 ON CONFLICT (name, slot) DO UPDATE SET mark = EXCLUDED.mark, written = EXCLUDED.written, \
                   expires = EXCLUDED.expires WHERE m.expires <= {NOW} RETURNING 1"
            ),
            replace: format!(
                "WITH {expired} UPDATE {marks} SET mark = $3, written = {NOW}, expires = {NOW} + $4 * interval '1 microsecond' \
                 WHERE name = $1 AND slot = $2 AND mark = $5 AND expires > {NOW} RETURNING 1"
            ),
            history: format!(
                "SELECT slot, mark FROM {marks} WHERE name = $1 AND expires > {NOW} ORDER BY written DESC LIMIT $2"
            ),
        }
    }
}
