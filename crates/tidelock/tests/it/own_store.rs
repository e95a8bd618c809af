//! A custom store in a hundred lines, which `docs/write-your-own-store.md` walks through. It passes the suite.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidelock::store::{
    Attempt, AttemptRequest, Backend, BootInstant, BoxFuture, Capabilities, ClientId, Env, Grant,
    Name, OwnerId, Page, Released, Renewal, Renewed, Store, Ticket, Timers, Wait, matches_glob,
};
use tidelock::testing::Fixture;
use tidelock::{
    ClientInfo, Error, ErrorKind, FencingToken, Finding, Holder, Result, Severity, Snapshot,
};

/// The state that a server would keep: a row for each name, and the owners of withdrawn tickets.
#[derive(Debug, Default)]
struct Shelf {
    rows: HashMap<Name, Row>,
    withdrawn: HashSet<OwnerId>,
    newest: u64,
}

#[derive(Debug)]
struct Row {
    owner: OwnerId,
    ends: BootInstant,
    token: u64,
}

impl Shelf {
    /// The row of the lock's holder. An expired lease is not a hold.
    fn holder(&mut self, name: &Name, now: BootInstant) -> Option<&mut Row> {
        self.rows.get_mut(name).filter(|row| row.ends > now)
    }

    fn end(&mut self, ticket: &Ticket, now: BootInstant) -> Released {
        match self.holder(&ticket.name, now) {
            Some(row) if row.owner == ticket.owner => {
                self.rows.remove(&ticket.name);
                Released::Freed
            }
            _ => Released::NotHeld,
        }
    }
}

/// One client's access to the shared state.
#[derive(Debug)]
struct Face {
    shelf: Arc<Mutex<Shelf>>,
    timers: Timers,
}

impl Face {
    /// Runs one request at one instant of the clock.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Shelf, BootInstant) -> T,
    ) -> BoxFuture<'_, T> {
        let mut records = self.shelf.lock().unwrap();
        Box::pin(std::future::ready(question(
            &mut records,
            self.timers.now(),
        )))
    }
}

fn decide(shelf: &mut Shelf, ask: &AttemptRequest, now: BootInstant) -> Result<Attempt> {
    let Ticket { name, owner, .. } = &ask.ticket;
    if shelf.withdrawn.contains(owner) {
        return Err(Error::new(ErrorKind::Cancelled).because("the attempt was withdrawn before"));
    }
    let token = match shelf.holder(name, now) {
        // A repeated attempt counts once, and never shortens its lease.
        Some(row) if row.owner == *owner => {
            row.ends = row.ends.max(now + ask.lease);
            row.token
        }
        Some(row) => {
            return Ok(Attempt::Held(Wait {
                wake: None,
                recheck: Some(row.ends.since(now)),
            }));
        }
        None => {
            shelf.newest += 1;
            let (owner, ends, token) = (owner.clone(), now + ask.lease, shelf.newest);
            shelf.rows.insert(name.clone(), Row { owner, ends, token });
            token
        }
    };
    Ok(Attempt::Acquired(Grant {
        token: Some(FencingToken::new(token)),
        ..Grant::default()
    }))
}

impl Backend for Face {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakes: false, // the library polls, with one waiter for all of a process
            tokens: true,
            queues: false,
            shared: false,
            durable: false,
            delays: false,
            sequencers: false,
            read_write: false,
        }
    }

    fn attempt<'a>(&'a self, ask: &'a AttemptRequest) -> BoxFuture<'a, Result<Attempt>> {
        self.ask(|shelf, now| decide(shelf, ask, now))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal]) -> BoxFuture<'a, Result<Vec<Renewed>>> {
        let keep = |shelf: &mut Shelf, one: &Renewal, now| match shelf.holder(&one.ticket.name, now)
        {
            Some(row) if row.owner == one.ticket.owner => {
                row.ends = row.ends.max(now + one.lease);
                Renewed::Kept
            }
            _ => Renewed::Gone,
        };
        self.ask(|shelf, now| Ok(batch.iter().map(|one| keep(shelf, one, now)).collect()))
    }

    fn lane(&self, _name: &Name) -> u64 {
        0
    }

    fn release<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.ask(|shelf, now| Ok(shelf.end(ticket, now)))
    }

    fn withdraw<'a>(&'a self, ticket: &'a Ticket) -> BoxFuture<'a, Result<Released>> {
        self.ask(|shelf, now| {
            // A late attempt of this ticket must not take effect. A real store forgets withdrawn tickets after some
            // minutes.
            shelf.withdrawn.insert(ticket.owner.clone());
            Ok(shelf.end(ticket, now))
        })
    }

    fn force_release<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<bool>> {
        self.ask(|shelf, now| {
            let held = shelf.holder(name, now).is_some();
            shelf.rows.remove(name);
            Ok(held)
        })
    }

    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        self.ask(|shelf, now| {
            let mut snapshot = Snapshot::free(name.as_str());
            if let Some(row) = shelf.holder(name, now) {
                snapshot.expires_in = Some(row.ends.since(now));
                snapshot.token = Some(FencingToken::new(row.token));
                snapshot.holders.push(Holder::new(row.owner.text(), 1));
            }
            Ok(snapshot)
        })
    }

    fn list<'a>(&'a self, pattern: &'a str, _cursor: u64) -> BoxFuture<'a, Result<Page>> {
        self.ask(|shelf, now| {
            let held = shelf.rows.iter().filter(|(_, row)| row.ends > now);
            let names = held.map(|(name, _)| name.as_str().to_owned());
            Ok(Page {
                names: names.filter(|name| matches_glob(pattern, name)).collect(),
                next: None,
            })
        })
    }

    fn announce<'a>(
        &'a self,
        _client: &'a ClientId,
        _info: &'a ClientInfo,
        _keep: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        self.ask(|_, _| Ok(())) // no tool can read client details from this store
    }

    fn retract<'a>(&'a self, _client: &'a ClientId) -> BoxFuture<'a, Result<()>> {
        self.ask(|_, _| Ok(()))
    }

    fn examine(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        let found = Finding::new(Severity::Danger, "reach", "a shelf", "nobody else sees it");
        self.ask(|_, _| Ok(vec![found]))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.ask(|_, _| ())
    }
}

fn fixture() -> Fixture {
    let shelf: Arc<Mutex<Shelf>> = Arc::default();
    Fixture::opened_by(move |env: &Env| {
        let face = Face {
            shelf: Arc::clone(&shelf),
            timers: env.timers.clone(),
        };
        Box::pin(std::future::ready(Ok(Store::single(Arc::new(face)))))
    })
}

mod plain {
    tidelock::conformance!(super::fixture());
}

mod chaos {
    tidelock::conformance!(faces: super::fixture().through_chaos());
}
