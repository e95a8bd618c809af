//! The queue of fair and read-write locks in SQL. Each request is one text of several statements, which the server runs
//! as one transaction, with the isolation level READ COMMITTED. The first statement locks the lock's row. So the requests
//! of one name run one after the other, and each later statement sees all that the requests before it have changed.
//!
//! A waiter for a fair lock has a row in one table, a holder or waiter of a side of a read-write lock in another. Their
//! places are numbered together. One row of the locks stands for all holders of sides: it lasts as long as the longest of
//! their leases, so a lock without sides waits for it like for any other holder. A holder has the lock only while the row
//! that it entered under stands there.
//!
//! Such a text has no parameters. Names and owners are sent as hexadecimal digits, so the server can read nothing in
//! them as SQL.

use std::fmt::Write as _;
use std::time::Duration;

use crate::store::beats::ALIVE;
use crate::store::fair_waiters::{COUNTED, FairPosition};
use crate::store::postgres::columns::micros;
use crate::store::postgres::literal::literal;
use crate::store::postgres::schema::{NOW, ROW_PATIENCE, notify, timeout};
use crate::store::side_order::STANDS_FOR_SIDES;
use crate::store::{Name, Renewal, Ticket};
use crate::types::{UPGRADEABLE, UPGRADES};

/// Separates the owners in an answer; no owner contains one.
pub(crate) const SEPARATOR: char = ' ';

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct QueueSql {
    pub(crate) locks: String,
    /// The waiters for fair locks.
    pub(crate) waiters: String,
    /// The holders and waiters of read-write locks.
    pub(crate) sides: String,
    pub(crate) channel: String,
    /// How long an attempt or a look waits for the row of a lock.
    patience: String,
    /// Creates both tables.
    pub(crate) make: String,
    /// The waiters of a lock that are alive, in their order, and which of them wait for a fair lock.
    pub(crate) queue: String,
    /// The holders of sides that have the lock, in the order of their arrival.
    pub(crate) holders: String,
    /// Deletes rows of names that nobody uses any more.
    pub(crate) tidy: String,
}

impl QueueSql {
    /// `patience`: how long an attempt or a look waits for the row of a lock. It must be answered within the response timeout.
    pub(crate) fn new(table: &str, channel: &str, patience: Duration) -> Self {
        let (waiters, sides) = (format!("{table}_waiters"), format!("{table}_sides"));
        Self {
            make: make(table),
            queue: format!(
                "SELECT owner, fair FROM ( \
                   SELECT owner, place, true AS fair FROM {waiters} WHERE name = $1 AND alive > {NOW} UNION ALL \
                   SELECT owner, place, false FROM {sides} WHERE name = $1 AND held_as IS NULL AND ends > {NOW}) AS waiting \
                 ORDER BY place, owner"
            ),
            holders: format!(
                "SELECT s.owner, s.reads, NULL, c.host, c.pid, c.program, c.since, to_jsonb(c) ->> 'os_user' \
                 FROM {sides} AS s JOIN {table} AS l ON l.name = s.name AND l.owner = s.held_as \
                 LEFT JOIN {table}_clients AS c ON c.client = s.client AND c.expires > {NOW} \
                 WHERE s.name = $1 AND s.ends > {NOW} ORDER BY s.place"
            ),
            tidy: tidy(&waiters, "alive") + &tidy(&sides, "ends"),
            locks: table.to_owned(),
            waiters,
            sides,
            channel: channel.to_owned(),
            patience: timeout(patience),
        }
    }

    /// Locks the row of the lock, and makes it if there is none. It waits for other requests of ours, which are short, but
    /// not for a fence in a user's transaction.
    pub(crate) fn lock_row(&self, name: &str) -> String {
        let Self { locks, .. } = self;
        format!(
            "INSERT INTO {locks} (name, expires, token) VALUES ({name}, {NOW}, 0) ON CONFLICT (name) DO NOTHING; \
             SELECT 1 FROM {locks} WHERE name = {name} FOR NO KEY UPDATE; "
        )
    }

    /// As [`lock_row`](Self::lock_row), but it gives up if somebody's transaction keeps the row. Otherwise what is sent behind it
    /// on the connection would wait too, and the connection would be given up. What follows must set `lock_timeout` back, as
    /// [`granting`] does.
    pub(crate) fn lock_row_soon(&self, name: &str) -> String {
        let patience = &self.patience;
        format!("SELECT set_config('lock_timeout', '{patience}', true); ") + &self.lock_row(name)
    }

    /// The waiters of a name. `reads` is null for one that waits for a fair lock.
    fn arrivals(&self, name: &str) -> String {
        let Self { waiters, sides, .. } = self;
        format!(
            "SELECT owner, place, client, lease, reads FROM {sides} WHERE name = {name} AND held_as IS NULL \
             UNION ALL SELECT owner, place, client, lease, NULL FROM {waiters} WHERE name = {name}"
        )
    }

    /// The place for a new waiter, as an expression.
    pub(crate) fn next_place(&self, name: &str, position: FairPosition) -> String {
        let Self { waiters, sides, .. } = self;
        let next = if position == FairPosition::First {
            "coalesce(min(place), 0) - 1"
        } else {
            "coalesce(max(place), 0) + 1"
        };
        format!(
            "(SELECT {next} FROM (SELECT place FROM {waiters} WHERE name = {name} \
               UNION ALL SELECT place FROM {sides} WHERE name = {name}) AS places)"
        )
    }

    /// Removes waiters that are not alive, holders that have lost the lock, and then upgrades whose reader is no holder.
    pub(crate) fn remove_dead(&self, name: &str) -> String {
        let Self {
            locks,
            waiters,
            sides,
            ..
        } = self;
        format!(
            "DELETE FROM {waiters} WHERE name = {name} AND alive <= {NOW}; \
             DELETE FROM {sides} AS s WHERE s.name = {name} AND (s.ends <= {NOW} OR s.held_as <> \
               coalesce((SELECT l.owner FROM {locks} AS l WHERE l.name = {name} AND l.expires > {NOW}), '')); \
             DELETE FROM {sides} AS s WHERE s.name = {name} AND s.held_as IS NULL AND s.owner LIKE '%{UPGRADES}%' \
               AND NOT EXISTS (SELECT 1 FROM {sides} AS u WHERE u.name = {name} AND u.held_as IS NOT NULL AND u.owner = {upgraded}); ",
            upgraded = upgraded("s.owner"),
        )
    }

    /// Removes the dead, and lets in the waiters that may enter now, as [`side_order`](crate::store::side_order) says:
    /// readers beside readers, behind nobody else; the first upgradeable reader beside plain ones, and the writer that it
    /// becomes beside it alone, ahead of everybody; all others alone, behind nobody. Their grants are not confirmed.
    ///
    /// A token is larger than that of the row also if the sequence is behind, as in
    /// [`next_token`](crate::store::postgres::schema::next_token).
    pub(crate) fn serve(&self, name: &str) -> String {
        let Self {
            locks,
            waiters,
            sides,
            channel,
            ..
        } = self;
        let unconfirmed = micros(ALIVE);
        format!(
            "{dead}\
             WITH inside AS (SELECT max(held_as) AS held_as, count(*) AS holders, \
                 coalesce(bool_and(reads OR {upgradeable}), true) AS shared, max(owner) FILTER (WHERE {upgradeable}) AS upgradeable \
               FROM {sides} WHERE name = {name} AND held_as IS NOT NULL), \
             ordered AS (SELECT owner, lease, reads, row_number() OVER arrival AS turn, {upgradeable} AS upgradeable, \
                 is_upgrade, bool_and(coalesce(reads OR {upgradeable}, false)) OVER arrival AS readers, \
                 count(*) FILTER (WHERE {upgradeable}) OVER arrival AS upgradeables, first_value(owner) OVER arrival AS first \
               FROM (SELECT a.*, coalesce({upgraded} = i.upgradeable, false) AS is_upgrade FROM ({arrivals}) AS a, inside AS i) AS arrivals \
               WINDOW arrival AS (ORDER BY NOT is_upgrade, place, owner)), \
             entering AS (SELECT o.owner, o.reads, least(o.lease, {unconfirmed}) * interval '1 microsecond' AS lease, \
                 CASE WHEN o.reads IS NULL THEN o.owner ELSE coalesce(i.held_as, o.first || '{STANDS_FOR_SIDES}') END AS holds_as, \
                 l.token + o.turn AS least_token \
               FROM ordered AS o, inside AS i, {locks} AS l \
               WHERE l.name = {name} AND (l.owner IS NULL OR l.expires <= {NOW} OR l.owner LIKE '%{STANDS_FOR_SIDES}') \
                 AND (o.readers AND i.shared AND (NOT o.upgradeable OR o.upgradeables = 1 AND i.upgradeable IS NULL) \
                   OR o.turn = 1 AND (i.held_as IS NULL OR i.holders = 1 AND o.is_upgrade))), \
             gone AS (DELETE FROM {waiters} WHERE owner IN (SELECT owner FROM entering WHERE reads IS NULL)), \
             holds AS (UPDATE {sides} AS s SET held_as = e.holds_as, ends = {NOW} + e.lease, \
                 token = greatest(nextval('{locks}_tokens'), e.least_token) \
               FROM entering AS e WHERE s.owner = e.owner AND e.reads IS NOT NULL RETURNING s.held_as, s.ends, s.token), \
             fair AS (SELECT holds_as, {NOW} + lease, greatest(nextval('{locks}_tokens'), least_token) \
               FROM entering WHERE reads IS NULL), \
             new AS (SELECT held_as, max(ends) AS ends, max(token) AS token \
               FROM (SELECT * FROM holds UNION ALL SELECT * FROM fair) AS every GROUP BY held_as), \
             granted AS (UPDATE {locks} AS l SET owner = new.held_as, token = new.token, \
                 expires = greatest(new.ends, CASE WHEN l.owner = new.held_as THEN l.expires END) \
               FROM new WHERE l.name = {name}) \
             SELECT {tells} FROM entering; ",
            dead = self.remove_dead(name),
            tells = notify(channel, "'f' || owner"),
            arrivals = self.arrivals(name),
            upgradeable = format_args!("owner LIKE '%{UPGRADEABLE}'"),
            upgraded = upgraded("a.owner"),
        )
    }

    /// As [`serve`](Self::serve), or nothing.
    pub(crate) fn serve_if(&self, serves: bool, name: &str) -> String {
        if serves {
            self.serve(name)
        } else {
            String::new()
        }
    }

    /// A look at the queue. `beat`: also shows that this client is alive, and removes waiters
    /// of names that nobody uses any more. `serves`: as in [`end`](Self::end). Answers: the owners of this client that wait;
    /// a letter for each waiter up to the first of them (see [`turns_of`](crate::store::side_order::turns_of)); the rest of
    /// the holder's lease.
    pub(crate) fn look(&self, name: &Name, client: &str, beat: bool, serves: bool) -> String {
        let Self {
            locks,
            waiters,
            sides,
            tidy,
            ..
        } = self;
        let (name, client) = (literal(name.as_str()), literal(client));
        let mut text = self.lock_row_soon(&name);
        if beat {
            let alive = alive();
            // Writing to a string does not fail.
            let _ = write!(
                text,
                "UPDATE {waiters} SET alive = {alive} WHERE name = {name} AND client = {client}; \
                 UPDATE {sides} SET ends = {alive} WHERE name = {name} AND client = {client} AND held_as IS NULL; {tidy}"
            );
        }
        let _ = write!(
            text,
            "{serve}\
             WITH arrivals AS ({arrivals}) \
             SELECT (SELECT coalesce(string_agg(owner, '{SEPARATOR}'), '') FROM arrivals WHERE client = {client}), \
               (SELECT coalesce(string_agg(kind, '' ORDER BY place, owner), '') FROM ( \
                  SELECT place, owner, CASE WHEN reads THEN 'r' ELSE 'w' END AS kind FROM arrivals \
                  WHERE place <= (SELECT min(place) FROM arrivals WHERE client = {client}) \
                  ORDER BY place, owner LIMIT {COUNTED} + 1) AS ahead), \
               CASE WHEN l.owner IS NULL THEN 0 ELSE {left} END FROM {locks} AS l WHERE l.name = {name}",
            serve = granting(&self.serve_if(serves, &name)),
            arrivals = self.arrivals(&name),
            left = left("l"),
        );
        text
    }
}

/// The owner of the upgradeable reader that a writer was, as an expression. For any other owner: that of nobody.
fn upgraded(writer: &str) -> String {
    format!(
        "split_part({writer}, ':', 1) || ':' || split_part({writer}, ':', 4) || '{UPGRADEABLE}'"
    )
}

/// Statements that may grant. A grant waits for a fence in a user's transaction, so it gives up soon.
///
/// Nothing after the grant may give up. Before the server commits a notification, it waits for every other transaction that
/// has one, and those may be slow. Otherwise a free lock would be refused, because somebody else's disk is busy.
pub(crate) fn granting(statements: &str) -> String {
    let granted = without_patience(statements);
    format!("SELECT set_config('lock_timeout', '{ROW_PATIENCE}ms', true); {granted}")
}

/// Statements after which a wait for a row has no limit again.
pub(crate) fn without_patience(statements: &str) -> String {
    format!("{statements}SELECT set_config('lock_timeout', '0', true); ")
}

/// The renewals of a batch and their numbers, as a common table.
pub(crate) fn asked(batch: &[(i64, &Renewal)]) -> String {
    let rows = batch.iter().map(|(number, one)| {
        let Ticket { name, owner, .. } = &one.ticket;
        let (name, owner) = (literal(name.as_str()), literal(owner.text()));
        format!("({number}, {name}, {owner}, {}::bigint)", micros(one.lease))
    });
    format!(
        "asked (number, name, owner, lease) AS (VALUES {})",
        rows.collect::<Vec<_>>().join(", ")
    )
}

/// What a text that renews begins with, and how it locks rows. `patience`: how long it waits for a row; `None`: it passes over
/// rows that another transaction locks. One that waits is for one name, and locks the row of the name first. With several names,
/// two renewals could wait for each other.
pub(crate) fn renewing(patience: Option<Duration>) -> (String, &'static str) {
    match patience.map(timeout) {
        Some(patience) => (
            format!("SELECT set_config('lock_timeout', '{patience}', true); "),
            "",
        ),
        None => (String::new(), " SKIP LOCKED"),
    }
}

/// The answer with the numbers in a common table.
pub(crate) fn numbers_in(table: &str) -> String {
    format!("SELECT coalesce(string_agg(number::text, '{SEPARATOR}'), '') FROM {table}")
}

/// Creates the tables of the waiters and of the sides.
///
/// Their indexes are constraints. `CREATE INDEX IF NOT EXISTS` would wait for every transaction that uses the table, and
/// would hold up the next ones, even if the index exists.
fn make(table: &str) -> String {
    format!(
        "SELECT pg_advisory_xact_lock(hashtext('{table}'));\n\
         CREATE TABLE IF NOT EXISTS {table}_waiters (\n  \
           name text COLLATE \"C\" NOT NULL,\n  place bigint NOT NULL,\n  owner text PRIMARY KEY,\n  \
           client text NOT NULL,\n  lease bigint NOT NULL,\n  alive timestamptz NOT NULL,\n  \
           UNIQUE (name, place, owner)\n);\n\
         CREATE TABLE IF NOT EXISTS {table}_sides (\n  \
           name text COLLATE \"C\" NOT NULL,\n  place bigint NOT NULL,\n  owner text PRIMARY KEY,\n  \
           client text NOT NULL,\n  reads boolean NOT NULL,\n  lease bigint NOT NULL,\n  \
           ends timestamptz NOT NULL,\n  held_as text,\n  token bigint,\n  UNIQUE (name, place, owner)\n);"
    )
}

/// Deletes some rows whose time was over an hour ago. Names that are in use are served often.
pub(crate) fn tidy(table: &str, until: &str) -> String {
    format!(
        "DELETE FROM {table} WHERE owner IN (SELECT owner FROM {table} \
           WHERE {until} < {NOW} - interval '1 hour' LIMIT 100 FOR UPDATE SKIP LOCKED); "
    )
}

/// Until when a waiter counts as alive that shows it now.
pub(crate) fn alive() -> String {
    format!("{NOW} + {} * interval '1 microsecond'", micros(ALIVE))
}

/// The rest of a lease in microseconds.
pub(crate) fn left(row: &str) -> String {
    format!("greatest(0, (extract(epoch FROM {row}.expires - {NOW}) * 1000000)::bigint)")
}
