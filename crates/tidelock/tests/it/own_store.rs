//! A custom store in a hundred lines, which `docs/write-your-own-store.md` walks through. It passes the suite.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use tidelock::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BootInstant, BoxFuture, Capabilities, ClientId,
    Extensions, LockKind, Name, Operate, OwnerId, Page, Released, Renewal, Renewed, Ticket, Timers,
    matches_glob, ready,
};
use tidelock::testing::Fixture;
use tidelock::{ClientInfo, Error, ErrorKind, FencingToken, Finding, Holder, Result, Snapshot};

/// The state that a server would keep: a row for each name, and the owners of withdrawn tickets.
#[derive(Debug, Default)]
struct Table {
    rows: HashMap<Name, Row>,
    withdrawn: HashSet<OwnerId>,
    newest: u64,
}

#[derive(Debug)]
struct Row {
    owner: OwnerId,
    ends: BootInstant,
    token: FencingToken,
}

impl Row {
    fn is_held_as(&self, seen: &Snapshot) -> bool {
        let mut holders = seen.holders.iter();
        holders.any(|holder| holder.owner == self.owner.text())
            && seen.token.is_none_or(|token| token == self.token)
    }
}

impl Table {
    /// The row of the ticket, if it holds its lock.
    fn held(&mut self, ticket: &Ticket) -> Option<&mut Row> {
        let row = self.rows.get_mut(&ticket.name)?;
        (row.owner == ticket.owner).then_some(row)
    }

    /// Extends the lease of the ticket, if it holds its lock, and never shortens it. Returns the token of the hold.
    fn extend(&mut self, ticket: &Ticket, ends: BootInstant) -> Option<FencingToken> {
        let row = self.held(ticket)?;
        row.ends = row.ends.max(ends);
        Some(row.token)
    }

    fn attempt(&mut self, ask: &AttemptRequest, now: BootInstant) -> Result<Attempt> {
        let Ticket { name, owner, .. } = &ask.ticket;
        if self.withdrawn.contains(owner) {
            return Err(Error::new(ErrorKind::Cancelled).because("the attempt had been withdrawn"));
        }
        // A repeated attempt is the same request, so it counts once.
        let ends = now + ask.lease;
        if let Some(token) = self.extend(&ask.ticket, ends) {
            return Ok(Attempt::granted(token));
        }
        if let Some(row) = self.rows.get(name) {
            return Ok(Attempt::held(None, row.ends.since(now)));
        }
        self.newest += 1;
        let (owner, token) = (owner.clone(), FencingToken::new(self.newest));
        self.rows.insert(name.clone(), Row { owner, ends, token });
        Ok(Attempt::granted(token))
    }

    fn release(&mut self, ticket: &Ticket) -> Released {
        if self.held(ticket).is_none() {
            return Released::NotHeld;
        }
        self.rows.remove(&ticket.name);
        Released::Freed
    }
}

/// One client's access to the table.
#[derive(Debug)]
struct TableStore {
    table: Arc<Mutex<Table>>,
    timers: Timers,
}

impl TableStore {
    /// Runs one request at one instant of the clock. An expired lease is not a hold.
    fn run<T: Send + 'static>(
        &self,
        step: impl FnOnce(&mut Table, BootInstant) -> T,
    ) -> BoxFuture<'_, T> {
        let (mut table, now) = (self.table.lock().unwrap(), self.timers.now());
        table.rows.retain(|_, row| row.ends > now);
        ready(step(&mut table, now))
    }
}

impl Backend for TableStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            kinds: &[LockKind::Mutex, LockKind::Fenced],
            ..Capabilities::NONE
        }
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::NONE
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, AttemptReply> {
        self.run(|table, now| table.attempt(ask, now).into())
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        self.run(|table, now| {
            let renewed = |one: &Renewal| match table.extend(&one.ticket, now + one.lease) {
                Some(_) => Renewed::Kept,
                None => Renewed::Gone,
            };
            Ok(batch.iter().map(renewed).collect())
        })
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.run(|table, _| Ok(table.release(ticket)))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.run(|table, _| {
            // A real store forgets withdrawn tickets after some minutes.
            table.withdrawn.insert(ticket.owner.clone());
            Ok(table.release(ticket))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        ready(())
    }
}

impl Operate for TableStore {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        self.run(|table, now| {
            let mut snapshot = Snapshot::free(name.as_str());
            if let Some(row) = table.rows.get(name) {
                snapshot.expires_in = Some(row.ends.since(now));
                snapshot.token = Some(row.token);
                snapshot.holders.push(Holder::new(row.owner.text(), 1));
            }
            Ok(snapshot)
        })
    }

    fn list<'a>(
        &'a self,
        pattern: &'a str,
        _after: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Page>> {
        self.run(|table, _| {
            let names = table.rows.keys().map(|name| name.as_str().to_owned());
            let names = names.filter(|name| matches_glob(pattern, name)).collect();
            Ok(Page { names, next: None })
        })
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        self.run(|table, _| {
            let is_meant = |row: &Row| seen.is_none_or(|seen| row.is_held_as(seen));
            if !table.rows.get(name).is_some_and(is_meant) {
                return Ok(false);
            }
            Ok(table.rows.remove(name).is_some())
        })
    }

    fn announce<'a>(
        &'a self,
        _client: &'a ClientId,
        _info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        ready(Ok(())) // no tool can read client details from this store
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        ready(Ok(Vec::new()))
    }
}

fn fixture() -> Fixture {
    let table: Arc<Mutex<Table>> = Arc::default();
    Fixture::of(move |env| TableStore {
        table: Arc::clone(&table),
        timers: env.timers.clone(),
    })
}

mod plain {
    tidelock::conformance!(super::fixture().simulated());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos().simulated());
}
