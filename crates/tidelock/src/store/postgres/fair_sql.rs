//! Fair locks in SQL: see [`queue_sql`](crate::store::postgres::queue_sql).

use std::time::Duration;

use crate::snapshot::Snapshot;
use crate::store::fair_waiters::FairPosition;
use crate::store::postgres::columns::{micros, newest};
use crate::store::postgres::literal::literal;
use crate::store::postgres::queue_sql::{QueueSql, alive, granting, left};
use crate::store::postgres::schema::{
    NEWEST, NOW, SEMAPHORE, WITHDRAWN_TTL_SECONDS, next_token, notify,
};
use crate::store::{Name, Ticket};

impl QueueSql {
    /// Whether the owner was withdrawn, in a statement that reads the lock's row as `l`.
    pub(crate) fn withdrawn(&self, owner: &str) -> String {
        let Self { locks, .. } = self;
        format!(
            "({owner} = ANY (l.withdrawn) OR EXISTS (SELECT 1 FROM {locks}_withdrawn AS w WHERE w.owner = {owner}))"
        )
    }

    /// Why an attempt is refused for good, in a statement that reads the lock's row as `l`: 1 if the owner was withdrawn, 2
    /// if the name is a semaphore.
    pub(crate) fn refused(&self, owner: &str) -> String {
        format!(
            "CASE WHEN {} THEN 1 WHEN l.owner = '{SEMAPHORE}' THEN 2 ELSE 0 END",
            self.withdrawn(owner)
        )
    }

    /// An attempt. Answers: 1 if this owner has the lock, the rest of the lease, the token, and what
    /// [`refused`](Self::refused) says. `serves`: as in [`end`](Self::end); without it the ticket only takes its place.
    pub(crate) fn attempt_fair(
        &self,
        ticket: &Ticket,
        lease: Duration,
        position: FairPosition,
        serves: bool,
    ) -> String {
        let Self { locks, waiters, .. } = self;
        let (name, owner) = (literal(ticket.name.as_str()), literal(ticket.owner.text()));
        let lease = micros(lease);
        let withdrawn = self.withdrawn(&owner);
        let queues = if position == FairPosition::None {
            // Without a place this owner gets a free lock only if nobody waits.
            let Self { sides, .. } = self;
            format!(
                "UPDATE {locks} AS l SET owner = {owner}, token = {next_token}, \
                   expires = {NOW} + {lease} * interval '1 microsecond' \
                 WHERE l.name = {name} AND (l.owner IS NULL OR l.expires <= {NOW}) AND NOT {withdrawn} \
                   AND NOT EXISTS (SELECT 1 FROM {waiters} WHERE name = {name} AND alive > {NOW}) \
                   AND NOT EXISTS (SELECT 1 FROM {sides} WHERE name = {name} AND held_as IS NULL AND ends > {NOW}); ",
                next_token = next_token(locks),
            )
        } else {
            format!(
                "INSERT INTO {waiters} (name, place, owner, client, lease, alive) \
                 SELECT {name}, {place}, {owner}, {client}, {lease}, {alive} \
                 FROM {locks} AS l WHERE l.name = {name} AND NOT {withdrawn} \
                   AND NOT (l.owner IS NOT DISTINCT FROM {owner} AND l.expires > {NOW}) \
                 ON CONFLICT (owner) DO UPDATE SET alive = EXCLUDED.alive; ",
                place = self.next_place(&name, position),
                client = literal(ticket.owner.client()),
                alive = alive(),
            )
        };
        format!(
            "{lock}{grants}\
             UPDATE {locks} AS l SET expires = greatest(l.expires, {NOW} + {lease} * interval '1 microsecond') \
             WHERE l.name = {name} AND l.owner = {owner} AND l.expires > {NOW} AND NOT {withdrawn}; \
             SELECT (l.owner IS NOT DISTINCT FROM {owner} AND l.expires > {NOW})::int, {left}, l.token, {refused} \
             FROM {locks} AS l WHERE l.name = {name}",
            refused = self.refused(&owner),
            lock = self.lock_row_soon(&name),
            grants = granting(&(queues + &self.serve_if(serves, &name))),
            left = left("l"),
        )
    }

    /// Releases the lock of the ticket. Answers: 1 if the ticket held it. `withdraws`: the ticket also gives up its place,
    /// and later attempts of it take no effect: they lock the row too, and so they see its tombstone. `serves`: also lets
    /// in those that are next. A fence in a user's transaction keeps them out, and then the whole request fails.
    pub(crate) fn end(&self, ticket: &Ticket, withdraws: bool, serves: bool) -> String {
        let (name, owner) = (literal(ticket.name.as_str()), literal(ticket.owner.text()));
        let mut text = self.lock_row(&name);
        if withdraws {
            text.push_str(&self.bury(&owner));
            if !ticket.kind.is_queued() {
                text.push_str(&self.note_withdrawn(&name, &owner));
            }
        }
        text.push_str(&if ticket.kind.is_read_write() {
            self.free_side(&name, &owner)
        } else {
            self.free_row(&name, &format!("owner = {owner}"))
        });
        text + &self.freed(&name, serves)
    }

    /// Frees the lock regardless of its owner, or if it is held as in `seen`, which has a holder. Answers: 1 if it was held.
    /// `serves`: as in [`end`](Self::end).
    pub(crate) fn force(&self, name: &Name, seen: Option<&Snapshot>, serves: bool) -> String {
        let name = literal(name.as_str());
        let condition = match seen {
            Some(seen) => self.held_as(&name, seen),
            None => format!("owner <> '{SEMAPHORE}'"),
        };
        let text = self.lock_row(&name) + &self.free_row(&name, &condition);
        text + &self.freed(&name, serves)
    }

    /// Whether the row is held by nobody but holders in `seen`. A row that stands for sides is held by the owners of these.
    fn held_as(&self, name: &str, seen: &Snapshot) -> String {
        let Self { locks, sides, .. } = self;
        let owners = seen.owners().map(literal).collect::<Vec<_>>().join(", ");
        let inside = format!(
            "SELECT 1 FROM {sides} AS s WHERE s.name = {name} AND s.held_as = {locks}.owner AND s.ends > {NOW}"
        );
        let token = seen.token.map_or_else(String::new, |token| {
            format!(" AND token = {}", newest(token))
        });
        format!(
            "(owner IN ({owners}) OR EXISTS ({inside})) AND NOT EXISTS ({inside} AND s.owner NOT IN ({owners})){token}"
        )
    }

    /// What follows when a request may have freed the lock: those that are next enter, or the others are told.
    fn freed(&self, name: &str, serves: bool) -> String {
        let Self { locks, channel, .. } = self;
        let serve = if serves {
            granting(&self.serve(name))
        } else {
            String::new()
        };
        format!(
            "{serve}SELECT current_setting('tidelock.freed'), CASE WHEN owner IS NULL THEN {tells} END \
             FROM {locks} WHERE name = {name}",
            tells = notify(channel, "'f' || name"),
        )
    }

    /// Leaves a tombstone, and gives up a place in the queue.
    fn bury(&self, owner: &str) -> String {
        let Self { waiters, .. } = self;
        self.leave_tombstone(owner) + &format!("DELETE FROM {waiters} WHERE owner = {owner}; ")
    }

    /// Leaves a tombstone: a later attempt of this owner takes no effect.
    pub(crate) fn leave_tombstone(&self, owner: &str) -> String {
        let Self { locks, .. } = self;
        format!(
            "DELETE FROM {locks}_withdrawn WHERE owner IN (SELECT owner FROM {locks}_withdrawn \
               WHERE at < {NOW} - interval '{WITHDRAWN_TTL_SECONDS} seconds' ORDER BY at LIMIT 10 FOR UPDATE SKIP LOCKED); \
             INSERT INTO {locks}_withdrawn (owner, at) VALUES ({owner}, {NOW}) ON CONFLICT DO NOTHING; "
        )
    }

    /// An attempt at a lock without a queue is one statement. One that began earlier sees the tombstone only in the row, which
    /// it reads again once it may change it.
    fn note_withdrawn(&self, name: &str, owner: &str) -> String {
        let Self { locks, .. } = self;
        format!(
            "UPDATE {locks} SET withdrawn = (ARRAY[{owner}] || withdrawn)[1:{NEWEST}] WHERE name = {name}; "
        )
    }

    /// Frees the row if its owner meets the condition.
    fn free_row(&self, name: &str, condition: &str) -> String {
        let Self { locks, .. } = self;
        format!(
            "WITH freed AS (UPDATE {locks} SET owner = NULL, expires = {NOW} \
               WHERE name = {name} AND {condition} AND expires > {NOW} RETURNING name) \
             SELECT set_config('tidelock.freed', count(*)::text, true) FROM freed; "
        )
    }
}
