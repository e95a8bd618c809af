//! Read-write locks in SQL: see [`queue_sql`](crate::store::postgres::queue_sql).

use std::time::Duration;

use crate::store::fair_waiters::FairPosition;
use crate::store::postgres::columns::micros;
use crate::store::postgres::literal::literal;
use crate::store::postgres::queue_sql::{
    QueueSql, alive, asked, granting, left, numbers_in, renewing,
};
use crate::store::postgres::schema::{NO_STANDBY, NOW, next_token};
use crate::store::side_order::Follows;
use crate::store::{OwnerId, Renewal, Ticket};
use crate::types::UPGRADEABLE;

impl QueueSql {
    /// An attempt for a side. Answers as that for a fair lock; then, for an upgrade, 1 if its reader holds the lock.
    /// `serves`: as for a fair lock.
    pub(crate) fn attempt_side(
        &self,
        ticket: &Ticket,
        lease: Duration,
        position: FairPosition,
        follows: Follows<'_>,
        serves: bool,
    ) -> String {
        let Self { locks, sides, .. } = self;
        let (name, owner) = (literal(ticket.name.as_str()), literal(ticket.owner.text()));
        let lease = micros(lease);
        let upgraded = match follows {
            Follows::Upgradeable(reader) => self.reads_upgradeably(&name, reader),
            Follows::Nobody | Follows::Writer(_) => "true".to_owned(),
        };
        let place = match follows {
            Follows::Upgradeable(_) => FairPosition::First,
            Follows::Nobody | Follows::Writer(_) => position,
        };
        let enters = match follows {
            Follows::Writer(writer) => self.join(ticket, lease, writer),
            Follows::Nobody | Follows::Upgradeable(_) => {
                self.take_side_place(ticket, lease, place, &upgraded)
                    + &self.serve_if(serves, &name)
            }
        };
        // Without patience the ticket takes a place only for the decision.
        let leaves = if position == FairPosition::None {
            format!("DELETE FROM {sides} WHERE owner = {owner} AND held_as IS NULL; ")
        } else {
            String::new()
        };
        format!(
            "{lock}{dead}{enters}{leaves}\
             WITH held AS (UPDATE {sides} AS s SET ends = greatest(s.ends, {NOW} + {lease} * interval '1 microsecond') \
               FROM {locks} AS l WHERE l.name = {name} AND s.owner = {owner} AND s.held_as = l.owner RETURNING s.ends) \
             UPDATE {locks} AS l SET expires = greatest(l.expires, held.ends) FROM held WHERE l.name = {name}; \
             SELECT (s.owner IS NOT NULL)::int, {left}, coalesce(s.token, 0), {refused}, ({upgraded})::int \
             FROM {locks} AS l LEFT JOIN {sides} AS s ON s.owner = {owner} AND s.held_as = l.owner WHERE l.name = {name}",
            lock = self.lock_row_soon(&name),
            enters = granting(&enters),
            dead = self.remove_dead(&name),
            left = left("l"),
            refused = self.refused(&owner),
        )
    }

    /// Whether this owner reads upgradeably, in a statement that reads the lock's row as `l`.
    fn reads_upgradeably(&self, name: &str, reader: &OwnerId) -> String {
        let Self { sides, .. } = self;
        format!(
            "EXISTS (SELECT 1 FROM {sides} AS u WHERE u.name = {name} AND u.owner = {reader} \
               AND u.owner LIKE '%{UPGRADEABLE}' AND u.held_as = l.owner AND u.ends > {NOW})",
            reader = literal(reader.text()),
        )
    }

    /// Puts the ticket into the queue, unless it has a place or holds the lock, and if it may: `allowed`.
    fn take_side_place(
        &self,
        ticket: &Ticket,
        lease: i64,
        position: FairPosition,
        allowed: &str,
    ) -> String {
        let Self { locks, sides, .. } = self;
        let (name, owner) = (literal(ticket.name.as_str()), literal(ticket.owner.text()));
        format!(
            "INSERT INTO {sides} (name, place, owner, client, reads, lease, ends) \
             SELECT {name}, {place}, {owner}, {client}, {reads}, {lease}, {alive} \
             FROM {locks} AS l WHERE l.name = {name} AND NOT {withdrawn} AND {allowed} \
             ON CONFLICT (owner) DO UPDATE SET ends = EXCLUDED.ends WHERE {sides}.held_as IS NULL; ",
            place = self.next_place(&name, position),
            client = literal(ticket.owner.client()),
            reads = ticket.kind.is_read(),
            alive = alive(),
            withdrawn = self.withdrawn(&owner),
        )
    }

    /// Lets a reader in beside the writer that it follows. Its token is a new one, larger than that of the writer.
    fn join(&self, ticket: &Ticket, lease: i64, writer: &OwnerId) -> String {
        let Self { locks, sides, .. } = self;
        let (name, owner) = (literal(ticket.name.as_str()), literal(ticket.owner.text()));
        format!(
            "WITH joined AS (INSERT INTO {sides} (name, place, owner, client, reads, lease, ends, held_as, token) \
               SELECT {name}, {place}, {owner}, {client}, true, {lease}, \
                 {NOW} + {lease} * interval '1 microsecond', w.held_as, {next_token} \
               FROM {sides} AS w JOIN {locks} AS l ON l.name = w.name AND l.owner = w.held_as \
               WHERE w.owner = {writer} AND w.name = {name} AND NOT w.reads AND w.owner NOT LIKE '%{UPGRADEABLE}' \
                 AND NOT {withdrawn} ON CONFLICT (owner) DO NOTHING RETURNING token) \
             UPDATE {locks} AS l SET token = joined.token FROM joined WHERE l.name = {name}; ",
            place = self.next_place(&name, FairPosition::First),
            client = literal(ticket.owner.client()),
            writer = literal(writer.text()),
            next_token = next_token(locks),
            withdrawn = self.withdrawn(&owner),
        )
    }

    /// Removes a holder or a waiter. The row of the lock then lasts as long as the longest lease of those that stay. Its
    /// token stays too: only a grant may change it, or the release would wait for fences.
    pub(crate) fn free_side(&self, name: &str, owner: &str) -> String {
        let Self { locks, sides, .. } = self;
        format!(
            "WITH gone AS (DELETE FROM {sides} WHERE owner = {owner} RETURNING held_as, ends), \
             others AS (SELECT max(ends) AS ends FROM {sides} AS s JOIN {locks} AS l ON l.name = s.name AND l.owner = s.held_as \
               WHERE s.name = {name} AND s.owner <> {owner} AND s.ends > {NOW}), \
             freed AS (UPDATE {locks} AS l SET owner = CASE WHEN others.ends IS NOT NULL THEN l.owner END, \
                 expires = coalesce(others.ends, {NOW}) FROM gone, others \
               WHERE l.name = {name} AND l.owner = gone.held_as AND l.expires > {NOW} AND gone.ends > {NOW} RETURNING l.name) \
             SELECT set_config('tidelock.freed', count(*)::text, true) FROM freed; "
        )
    }

    /// Renews the holds of sides. Answers the numbers of those that were kept. `batch`: the renewals and their numbers.
    /// `patience`: see [`renewing`].
    pub(crate) fn renew_sides(
        &self,
        batch: &[(i64, &Renewal)],
        patience: Option<Duration>,
    ) -> String {
        let Self { locks, sides, .. } = self;
        let (waits, skips) = renewing(patience);
        format!(
            "{waits}WITH {asked}, ours AS MATERIALIZED ({holds} FOR NO KEY UPDATE OF l, s{skips}), \
             kept AS (UPDATE {sides} AS s SET ends = greatest(s.ends, {NOW} + o.lease * interval '1 microsecond') \
               FROM ours AS o WHERE s.owner = o.owner AND s.ends > {NOW} RETURNING o.number, s.name, s.ends), \
             shown AS (UPDATE {locks} AS l SET expires = greatest(l.expires, k.ends) \
               FROM (SELECT name, max(ends) AS ends FROM kept GROUP BY name) AS k WHERE l.name = k.name) \
             {answer}",
            asked = asked(batch),
            holds = self.holds_of_sides(),
            answer = numbers_in("kept"),
        )
    }

    /// As [`renew_sides`](Self::renew_sides), but it changes nothing and waits for no row. Answers the numbers of those that
    /// are held.
    pub(crate) fn held_sides(&self, batch: &[(i64, &Renewal)]) -> String {
        let (asked, holds) = (asked(batch), self.holds_of_sides());
        format!(
            "WITH {asked}, held AS ({holds} AND {NO_STANDBY}) {}",
            numbers_in("held")
        )
    }

    /// The holds of sides in a batch.
    fn holds_of_sides(&self) -> String {
        let Self { locks, sides, .. } = self;
        format!(
            "SELECT a.number, a.lease, s.owner FROM asked AS a JOIN {sides} AS s ON s.owner = a.owner \
             JOIN {locks} AS l ON l.name = a.name AND l.owner = s.held_as WHERE s.ends > {NOW} AND l.expires > {NOW}"
        )
    }
}
