//! What the scripts do, each at one instant.

use crate::hand_over::state::{ALIVE, Held, Kind, LEASE, Life, Queue, TURN, Ticket, UNCONFIRMED};
use crate::hand_over::{HandOver, HandOverBug};

impl Queue {
    fn kind(&self, ticket: Ticket) -> Kind {
        self.clients[usize::from(ticket.client)].kind
    }

    /// An attempt of tidelock. `queued`: it had a place in the queue, so it gets the first place if it has none now.
    pub(super) fn attempt(&mut self, run: &HandOver, ticket: Ticket, queued: bool) -> bool {
        if self.withdrawn.contains(&ticket) {
            return false;
        }
        if !self.owns(ticket) && !self.waiters.contains(&ticket) {
            let place = if queued { 0 } else { self.waiters.len() };
            self.waiters.insert(place, ticket);
        }
        self.clients[usize::from(ticket.client)].alive = ALIVE;
        if self.held.is_none() {
            self.hand_over(run, Some(ticket));
        }
        match &mut self.held {
            Some(held) if held.owner == ticket => {
                // Only the first request of a ticket may shorten the time of the grant to the lease.
                held.left = if held.confirmed {
                    held.left.max(LEASE)
                } else {
                    LEASE
                };
                held.confirmed = true;
                true
            }
            _ => false,
        }
    }

    fn owns(&self, ticket: Ticket) -> bool {
        self.held.as_ref().is_some_and(|held| held.owner == ticket)
    }

    /// An attempt of Redisson's fair lock. It counts up if the thread owns the lock already.
    pub(super) fn attempt_of_java(&mut self, ticket: Ticket) -> bool {
        self.clean();
        if let Some(held) = &mut self.held {
            if held.owner == ticket {
                held.count += 1;
                held.left = LEASE;
                return true;
            }
        } else if self.waiters.first().is_none_or(|head| *head == ticket) {
            self.waiters.retain(|one| *one != ticket);
            self.forget_turns();
            self.held = Some(Held {
                owner: ticket,
                count: 1,
                left: LEASE,
                confirmed: true,
            });
            return true;
        }
        if !self.waiters.contains(&ticket) {
            self.waiters.push(ticket);
            self.clients[usize::from(ticket.client)].turn = None;
        }
        false
    }

    /// Redisson removes heads whose deadline has passed. Only a process that is dead lets it pass.
    fn clean(&mut self) {
        while let Some(head) = self.waiters.first() {
            let client = &self.clients[usize::from(head.client)];
            if client.life != Life::Dead || client.alive > 0 {
                return;
            }
            self.waiters.remove(0);
        }
    }

    /// Each grant ends all turns: one of tidelock is noted in the same key, one of Redisson changes all deadlines.
    fn forget_turns(&mut self) {
        for client in &mut self.clients {
            client.turn = None;
        }
    }

    /// Ends a ticket: a release or a withdrawal.
    pub(super) fn end(&mut self, run: &HandOver, ticket: Ticket) {
        let java = self.kind(ticket) != Kind::Tidelock;
        self.waiters.retain(|one| *one != ticket);
        if let Some(held) = &mut self.held
            && held.owner == ticket
        {
            held.count -= 1;
            if held.count > 0 {
                return;
            }
            self.held = None;
        }
        if self.held.is_some() {
            return;
        }
        if java {
            self.clean();
            if let Some(head) = self.waiters.first().copied() {
                self.tell(head, 0);
            }
        } else {
            self.hand_over(run, None);
        }
    }

    fn tell(&mut self, ticket: Ticket, grant: u8) -> bool {
        let client = &mut self.clients[usize::from(ticket.client)];
        let current = client.number == ticket.number && client.life != Life::Dead;
        if client.listens && current {
            client.message = Some(grant);
        }
        client.listens
    }

    /// Grants a free lock to the first waiter of ours that is alive and can be told. Wakes a waiter of Redisson instead,
    /// and gives it time. `asks`: this waiter asks at this moment, so it need not be told.
    pub(super) fn hand_over(&mut self, run: &HandOver, asks: Option<Ticket>) {
        let mut place = 0;
        while let Some(ticket) = self.waiters.get(place).copied() {
            let c = usize::from(ticket.client);
            if self.kind(ticket) != Kind::Tidelock && !run.has(HandOverBug::GrantsJava) {
                let over = self.clients[c].turn == Some(0);
                if !(over && run.has(HandOverBug::TurnsBehindTheHead)) {
                    self.tell(ticket, 0);
                }
                if over {
                    self.waiters.remove(place);
                    continue;
                }
                self.clients[c].turn.get_or_insert(TURN);
                if !run.has(HandOverBug::TurnsBehindTheHead) {
                    self.waiters.remove(place);
                    self.waiters.insert(0, ticket);
                }
                return;
            }
            let alive = self.clients[c].alive > 0 || self.kind(ticket) != Kind::Tidelock;
            let hears = asks == Some(ticket) || self.clients[c].listens;
            if alive && hears {
                self.grant(place, asks);
                return;
            }
            if !alive || run.has(HandOverBug::EvictsDeaf) {
                self.evicted_alive |= alive;
                self.waiters.remove(place);
            } else {
                place += 1; // it keeps its place until its process no longer counts as alive
            }
        }
    }

    fn grant(&mut self, place: usize, asks: Option<Ticket>) {
        let owner = self.waiters.remove(place);
        self.held = Some(Held {
            owner,
            count: 1,
            left: UNCONFIRMED,
            confirmed: false,
        });
        self.handed_over = true;
        self.forget_turns();
        if asks != Some(owner) {
            self.tell(owner, UNCONFIRMED);
        }
    }
}
