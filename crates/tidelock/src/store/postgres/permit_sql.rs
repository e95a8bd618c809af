//! Semaphores in SQL. Each request is one text of several statements, as for the queues of locks: see
//! [`queue_sql`](crate::store::postgres::queue_sql). The first locks the name's row in the table of the locks.
//!
//! The number of permits is in a table of its own, and each holder and each waiter has a row in another. How many permits
//! are available is stored nowhere: it is computed by the statement that gives them to waiters.
//!
//! In the table of the locks the name has an owner that is no owner, and a lease that does not end: [`SEMAPHORE`]. So no
//! request of ours or of an older tidelock takes the name for a free lock.

use std::sync::Arc;
use std::time::Duration;

use crate::store::beats::ALIVE;
use crate::store::fair_waiters::FairPosition;
use crate::store::postgres::columns::micros;
use crate::store::postgres::literal::literal;
use crate::store::postgres::queue_sql::{
    QueueSql, SEPARATOR, alive, asked, numbers_in, renewing, tidy, without_patience,
};
use crate::store::postgres::schema::{NO_STANDBY, NOW, SEMAPHORE, notify};
use crate::store::{Name, PermitChange, Renewal, Ticket};

/// The end of a lease that does not end. Not `infinity`: the rest of that lease would be no number.
const NEVER: &str = "timestamptz '9000-01-01 00:00:00+00'";

/// The statements for one table.
#[derive(Debug)]
pub(crate) struct PermitSql {
    queue: Arc<QueueSql>,
    pub(crate) semaphores: String,
    /// The holders and waiters.
    pub(crate) permits: String,
    /// Creates both tables.
    pub(crate) make: String,
    /// Whether a name is a semaphore.
    pub(crate) is_semaphore: String,
    /// The number of a semaphore, how many of its permits are available, and how many wait for some.
    pub(crate) numbers: String,
    /// The holders of a semaphore, in the order of their arrival.
    pub(crate) holders: String,
    /// Those of some names of which permits are held.
    pub(crate) held: String,
    /// Deletes rows of names that nobody uses any more.
    pub(crate) tidy: String,
}

impl PermitSql {
    pub(crate) fn new(queue: Arc<QueueSql>) -> Self {
        let table = &queue.locks;
        let (semaphores, permits) = (format!("{table}_semaphores"), format!("{table}_permits"));
        Self {
            make: make(table),
            is_semaphore: format!(
                "SELECT 1 FROM {table} WHERE name = $1 AND owner = '{SEMAPHORE}'"
            ),
            numbers: format!(
                "SELECT s.total, s.total - coalesce(sum(p.permits) FILTER (WHERE p.held), 0), count(*) FILTER (WHERE NOT p.held) \
                 FROM {semaphores} AS s LEFT JOIN {permits} AS p ON p.name = s.name AND p.ends > {NOW} \
                 WHERE s.name = $1 GROUP BY s.total"
            ),
            holders: format!(
                "SELECT p.owner, p.permits, (extract(epoch FROM p.ends - {NOW}) * 1000000)::bigint, \
                   c.host, c.pid, c.program, c.since, to_jsonb(c) ->> 'os_user' \
                 FROM {permits} AS p LEFT JOIN {table}_clients AS c ON c.client = p.client AND c.expires > {NOW} \
                 WHERE p.name = $1 AND p.held AND p.ends > {NOW} ORDER BY p.place"
            ),
            held: format!(
                "SELECT DISTINCT name FROM {permits} WHERE name = ANY ($1) AND held AND ends > {NOW}"
            ),
            tidy: tidy(&permits, "ends"),
            semaphores,
            permits,
            queue,
        }
    }

    /// Whether another owner has a lock of this name, in a statement that reads the lock's row as `l`.
    fn is_lock() -> String {
        format!("(l.owner <> '{SEMAPHORE}' AND l.expires > {NOW})")
    }

    /// Removes the dead, and gives permits to the waiters whose turn it is, as
    /// [`permit_order`](crate::store::permit_order) says: those of them whose permits are available together with all that
    /// are ahead. One that asks for more than there are is passed over. Their grants are not confirmed.
    fn serve_permits(&self, name: &str) -> String {
        let Self {
            semaphores,
            permits,
            ..
        } = self;
        let QueueSql { locks, channel, .. } = &*self.queue;
        let unconfirmed = micros(ALIVE);
        format!(
            "UPDATE {locks} AS l SET owner = '{SEMAPHORE}', expires = {NEVER} \
             WHERE l.name = {name} AND (l.owner IS NULL OR l.expires <= {NOW}) \
               AND EXISTS (SELECT 1 FROM {semaphores} WHERE name = {name}); \
             DELETE FROM {permits} WHERE name = {name} AND ends <= {NOW}; \
             WITH number AS (SELECT s.total, s.total - coalesce((SELECT sum(permits) FROM {permits} \
                 WHERE name = {name} AND held), 0) AS free \
               FROM {semaphores} AS s JOIN {locks} AS l ON l.name = s.name AND l.owner = '{SEMAPHORE}' WHERE s.name = {name}), \
             ordered AS (SELECT owner, lease, sum(p.permits) OVER (ORDER BY place, owner) AS wanted \
               FROM {permits} AS p, number WHERE p.name = {name} AND NOT p.held AND p.permits <= number.total), \
             served AS (UPDATE {permits} AS p SET held = true, \
                 ends = {NOW} + least(p.lease, {unconfirmed}) * interval '1 microsecond' \
               FROM ordered AS o, number WHERE p.owner = o.owner AND o.wanted <= number.free RETURNING p.owner) \
             SELECT {tells} FROM served; ",
            tells = notify(channel, "'f' || owner"),
        )
    }

    /// An attempt. Answers: 1 if this owner has its permits; 1 if the owner was withdrawn, 2 if the name is a lock.
    pub(crate) fn attempt_permits(
        &self,
        ticket: &Ticket,
        permits: u16,
        lease: Duration,
        position: FairPosition,
    ) -> String {
        let (locks, table) = (&self.queue.locks, &self.permits);
        let (name, owner) = (literal(ticket.name.as_str()), literal(ticket.owner.text()));
        let (lease, withdrawn, is_lock) =
            (micros(lease), self.queue.withdrawn(&owner), Self::is_lock());
        let next = if position == FairPosition::First {
            "coalesce(min(place), 0) - 1"
        } else {
            "coalesce(max(place), 0) + 1"
        };
        // Without patience the ticket takes a place only for the decision.
        let leaves = if position == FairPosition::None {
            format!("DELETE FROM {table} WHERE owner = {owner} AND NOT held; ")
        } else {
            String::new()
        };
        format!(
            "{lock}\
             DELETE FROM {table} WHERE owner = {owner} AND ends <= {NOW}; \
             INSERT INTO {table} (name, place, owner, client, permits, held, lease, ends) \
               SELECT {name}, (SELECT {next} FROM {table} WHERE name = {name}), {owner}, {client}, {permits}, false, {lease}, {alive} \
               FROM {locks} AS l WHERE l.name = {name} AND NOT {withdrawn} AND {is_lock} IS NOT TRUE \
               ON CONFLICT (owner) DO UPDATE SET ends = EXCLUDED.ends WHERE NOT {table}.held; \
             {serve}{leaves}\
             UPDATE {table} SET ends = greatest(ends, {NOW} + {lease} * interval '1 microsecond') WHERE owner = {owner} AND held; \
             SELECT (SELECT count(*) FROM {table} WHERE owner = {owner} AND held), \
               CASE WHEN {withdrawn} THEN 1 WHEN {is_lock} THEN 2 ELSE 0 END \
             FROM {locks} AS l WHERE l.name = {name}",
            lock = without_patience(&self.queue.lock_row_soon(&name)),
            serve = self.serve_permits(&name),
            client = literal(ticket.owner.client()),
            alive = alive(),
        )
    }

    /// Gives the permits of a ticket back, and its place. Answers: 1 if the ticket held them. `withdraws`: later attempts of
    /// it take no effect. `serves`: also gives permits to those that are next.
    pub(crate) fn end_permits(&self, ticket: &Ticket, withdraws: bool, serves: bool) -> String {
        let (name, owner) = (literal(ticket.name.as_str()), literal(ticket.owner.text()));
        let tombstone = if withdraws {
            self.queue.leave_tombstone(&owner)
        } else {
            String::new()
        };
        self.queue.lock_row(&name)
            + &tombstone
            + &self.take_back(&name, &format!("owner = {owner}"), serves)
    }

    /// Takes all permits of a semaphore back. The waiters keep their places. Answers: how many acquisitions held some.
    /// `owners`: only if no others hold some. `serves`: as in [`end_permits`](Self::end_permits).
    pub(crate) fn force_permits(
        &self,
        name: &Name,
        owners: Option<&[String]>,
        serves: bool,
    ) -> String {
        let (name, permits) = (literal(name.as_str()), &self.permits);
        let only = owners.map_or_else(String::new, |owners| {
            let owners: Vec<String> = owners.iter().map(|owner| literal(owner)).collect();
            format!(
                " AND NOT EXISTS (SELECT 1 FROM {permits} AS o WHERE o.name = {name} AND o.held AND o.ends > {NOW} \
                   AND o.owner <> ALL (ARRAY[{}]::text[]))",
                owners.join(", ")
            )
        });
        let whose = format!("name = {name} AND held{only}");
        self.queue.lock_row(&name) + &self.take_back(&name, &whose, serves)
    }

    fn take_back(&self, name: &str, whose: &str, serves: bool) -> String {
        let permits = &self.permits;
        let serve = if serves {
            self.serve_permits(name)
        } else {
            String::new()
        };
        format!(
            "WITH gone AS (DELETE FROM {permits} WHERE {whose} RETURNING held AND ends > {NOW} AS held) \
             SELECT set_config('tidelock.freed', (count(*) FILTER (WHERE held))::text, true) FROM gone; \
             {serve}SELECT current_setting('tidelock.freed')"
        )
    }

    /// Changes the number of permits. Answers: 1 if it is another one now; 1 if the name is a lock.
    pub(crate) fn change_permits(&self, name: &Name, change: PermitChange) -> String {
        let (locks, semaphores) = (&self.queue.locks, &self.semaphores);
        let (name, is_lock) = (literal(name.as_str()), Self::is_lock());
        let (first, then) = match change {
            PermitChange::SetIfNew(total) => (i64::from(total), "NOTHING".to_owned()),
            PermitChange::Set(total) => {
                (total.into(), "UPDATE SET total = EXCLUDED.total".to_owned())
            }
            PermitChange::Add(more) => (
                more.into(),
                format!("UPDATE SET total = {semaphores}.total + EXCLUDED.total"),
            ),
        };
        let total =
            format!("coalesce((SELECT total::text FROM {semaphores} WHERE name = {name}), 'none')");
        format!(
            "{lock}SELECT set_config('tidelock.total', {total}, true); \
             INSERT INTO {semaphores} (name, total) SELECT {name}, {first} FROM {locks} AS l \
               WHERE l.name = {name} AND {is_lock} IS NOT TRUE ON CONFLICT (name) DO {then}; \
             {serve}\
             SELECT (current_setting('tidelock.total') <> {total})::int, coalesce({is_lock}, false)::int \
             FROM {locks} AS l WHERE l.name = {name}",
            lock = self.queue.lock_row(&name),
            serve = self.serve_permits(&name),
        )
    }

    /// A look at the waiters of a semaphore. `beat`: also shows that this client is alive. Answers: the owners of this
    /// client that wait; how many permits are wanted ahead of the first of them; the number of all permits; the time until
    /// the first lease ends.
    pub(crate) fn look_at_permits(&self, name: &Name, client: &str, beat: bool) -> String {
        let Self {
            permits,
            semaphores,
            tidy,
            ..
        } = self;
        let (name, client) = (literal(name.as_str()), literal(client));
        let shows = if beat {
            format!(
                "UPDATE {permits} SET ends = {alive} WHERE name = {name} AND client = {client} AND NOT held; {tidy}",
                alive = alive(),
            )
        } else {
            String::new()
        };
        format!(
            "{lock}{shows}{serve}\
             WITH waiting AS (SELECT owner, place, client, permits FROM {permits} WHERE name = {name} AND NOT held) \
             SELECT (SELECT coalesce(string_agg(owner, '{SEPARATOR}'), '') FROM waiting WHERE client = {client}), \
               (SELECT coalesce(sum(permits), 0) FROM waiting \
                  WHERE place < (SELECT min(place) FROM waiting WHERE client = {client})), \
               greatest(0, coalesce((SELECT total FROM {semaphores} WHERE name = {name}), 0)), \
               greatest(0, coalesce((SELECT (extract(epoch FROM min(ends) - {NOW}) * 1000000)::bigint \
                  FROM {permits} WHERE name = {name} AND held), 0))",
            lock = without_patience(&self.queue.lock_row_soon(&name)),
            serve = self.serve_permits(&name),
        )
    }

    /// Renews permits. Answers the numbers of those that were kept. `batch`: the renewals and their numbers. `patience`: see
    /// [`renewing`].
    pub(crate) fn renew_permits(
        &self,
        batch: &[(i64, &Renewal)],
        patience: Option<Duration>,
    ) -> String {
        let (locks, permits) = (&self.queue.locks, &self.permits);
        let (waits, skips) = renewing(patience);
        // Somebody may have deleted the row of the name. The permits are held nevertheless.
        format!(
            "{waits}WITH {asked}, \
             free AS MATERIALIZED (SELECT name FROM {locks} WHERE name IN (SELECT name FROM asked) FOR NO KEY UPDATE{skips}), \
             ours AS MATERIALIZED ({holds} AND (a.name IN (SELECT name FROM free) \
               OR NOT EXISTS (SELECT 1 FROM {locks} AS l WHERE l.name = a.name)) FOR NO KEY UPDATE OF p{skips}), \
             kept AS (UPDATE {permits} AS p SET ends = greatest(p.ends, {NOW} + o.lease * interval '1 microsecond') \
               FROM ours AS o WHERE p.owner = o.owner AND p.ends > {NOW} RETURNING o.number) \
             {answer}",
            asked = asked(batch),
            holds = self.holds_of_permits(),
            answer = numbers_in("kept"),
        )
    }

    /// As [`renew_permits`](Self::renew_permits), but it changes nothing and waits for no row. Answers the numbers of those
    /// that are held.
    pub(crate) fn held_permits(&self, batch: &[(i64, &Renewal)]) -> String {
        let (asked, holds) = (asked(batch), self.holds_of_permits());
        format!(
            "WITH {asked}, held AS ({holds} AND {NO_STANDBY}) {}",
            numbers_in("held")
        )
    }

    /// The permits in a batch.
    fn holds_of_permits(&self) -> String {
        let permits = &self.permits;
        format!(
            "SELECT a.number, a.lease, p.owner FROM asked AS a JOIN {permits} AS p ON p.owner = a.owner \
             WHERE p.held AND p.ends > {NOW}"
        )
    }
}

/// Creates the tables of the semaphores. Their indexes are constraints, as those of the queues of locks.
fn make(table: &str) -> String {
    format!(
        "SELECT pg_advisory_xact_lock(hashtext('{table}'));\n\
         CREATE TABLE IF NOT EXISTS {table}_semaphores (\n  \
           name text COLLATE \"C\" PRIMARY KEY,\n  total bigint NOT NULL\n);\n\
         CREATE TABLE IF NOT EXISTS {table}_permits (\n  \
           name text COLLATE \"C\" NOT NULL,\n  place bigint NOT NULL,\n  owner text PRIMARY KEY,\n  \
           client text NOT NULL,\n  permits integer NOT NULL,\n  held boolean NOT NULL,\n  lease bigint NOT NULL,\n  \
           ends timestamptz NOT NULL,\n  UNIQUE (name, place, owner)\n);"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::postgres::schema::{HAS_ROOM, Sql};

    /// A transaction with a message fails at its commit when the queue is full.
    #[test]
    fn no_text_sends_a_message_without_a_look_at_the_servers_queue() {
        let (sql, queue) = (
            Sql::new("t"),
            Arc::new(QueueSql::new("t", "t", Duration::ZERO)),
        );
        let permits = PermitSql::new(Arc::clone(&queue));
        let name = Name::new("till").unwrap();
        let looks = format!("CASE WHEN (SELECT {HAS_ROOM}) THEN pg_notify(");
        for text in [
            sql.release.text,
            sql.release_unless_waited.text,
            sql.withdraw,
            sql.force,
            sql.force_if,
            queue.serve("name"),
            queue.force(&name, None, false),
            permits.force_permits(&name, None, true),
        ] {
            let messages = text.matches("pg_notify(").count();
            assert!(messages > 0, "{text}");
            assert_eq!(text.matches(&looks).count(), messages, "{text}");
        }
    }
}
