//! The server. It executes each request atomically, like a Redis script or a database transaction.

use crate::config::{Bug, Config};
use crate::parts::{Body, LEASE, Message, Record, Server, Ticket};
use crate::state::State;

impl Server {
    fn attempt(&mut self, config: &Config, ticket: Ticket, serials: &mut u8, alone: bool) -> Body {
        if self.tombstones.contains(&ticket) {
            return Body::Withdrawn;
        }
        let held = self.live().map(|record| (record.owner, record.left));
        match (held, &mut self.record) {
            (Some((owner, left)), _) if owner != ticket => return Body::Held { left },
            // A repeat of a request whose answer was lost.
            (Some(_), Some(record)) => {
                record.left = record.left.max(LEASE);
                record.count += u8::from(config.has(Bug::CountsTwice));
            }
            _ => {
                if config.writes {
                    if self.record.is_none() && config.has(Bug::ForgetsCounter) {
                        self.token = 0;
                    }
                    self.token += 1;
                    *serials += 1;
                }
                self.record = Some(Record {
                    owner: ticket,
                    left: LEASE,
                    count: 1,
                    serial: *serials,
                });
            }
        }
        Body::Granted {
            token: self.token,
            serial: self.record.as_ref().map_or(0, |record| record.serial),
            acknowledged: alone,
        }
    }

    fn renew(&mut self, ticket: Ticket, alone: bool) -> Body {
        match &mut self.record {
            Some(record) if record.left > 0 && record.owner == ticket => {
                record.left = record.left.max(LEASE);
                Body::Kept {
                    acknowledged: alone,
                }
            }
            _ => Body::Gone,
        }
    }

    /// Returns whether the lock became free, so that waiters must be notified.
    fn release(&mut self, config: &Config, ticket: Ticket, tombstone: bool) -> bool {
        if tombstone && !config.has(Bug::NoTombstone) && !self.tombstones.contains(&ticket) {
            self.tombstones.push(ticket);
            self.tombstones.sort_unstable();
        }
        let anyone = config.has(Bug::ReleasesAnyone);
        let Some(record) = &mut self.record else {
            return false;
        };
        if record.left == 0 || record.owner != ticket && !anyone {
            return false;
        }
        record.count -= 1;
        let free = record.count == 0;
        if free {
            self.record = None;
        }
        free
    }
}

impl State {
    /// A request arrives, and the server answers it.
    pub(crate) fn execute(&mut self, config: &Config, request: &Message) {
        // Without a replica, nobody has to acknowledge: a grant counts at once. That is also true of the one server
        // that is left after a failover. A cut-off primary never counts, because its replica has left it.
        let alone = !request.old && self.replica.is_none();
        let server = match (&mut self.old, request.old) {
            (Some(old), true) => old,
            (None, true) => return, // the old primary is gone
            (_, false) => &mut self.primary,
        };
        let ticket = request.ticket;
        let mut freed = false;
        let body = match request.body {
            Body::Attempt => server.attempt(config, ticket, &mut self.serial, alone),
            Body::Renew => server.renew(ticket, alone),
            Body::Release { tombstone } => {
                freed = server.release(config, ticket, tombstone);
                Body::Ended
            }
            Body::Undo => {
                freed = server.release(config, ticket, false);
                Body::Undone
            }
            _ => return,
        };
        if freed {
            self.publish(request.old);
        }
        if !request.deaf {
            self.messages.push(Message {
                body,
                ..request.clone()
            });
        }
    }

    /// Notifies all clients that are subscribed at that server.
    pub(crate) fn publish(&mut self, old: bool) {
        for client in &mut self.clients {
            client.wake |= client.subscribed && client.at_old == old;
        }
    }
}
