//! The state of a run: the lock, its queue, and the clients.

use crate::hand_over::{HandOverBug, HandOverFaults};

/// How long a lease, a grant that nobody has confirmed, a sign of life and the turn of a Java waiter last, in ticks.
pub(crate) const LEASE: u8 = 2;
pub(crate) const UNCONFIRMED: u8 = 2;
pub(crate) const ALIVE: u8 = 2;
pub(crate) const TURN: u8 = 2;

/// What a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A client of this library.
    Tidelock,
    /// A client with Redisson.
    Java,
    /// Redisson before 3.32: a waiter that is refused after it has subscribed sleeps until a message wakes it.
    OldJava,
}

/// One acquisition of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) client: u8,
    pub(crate) number: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Up,
    Frozen,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    /// It was refused, and has a place in the queue.
    Waiting,
    /// It has asked, and nobody answered.
    Unsure,
    /// The lease is proved for so many ticks.
    Holding {
        proved: u8,
    },
    /// It was lost, or its release was not answered.
    Releasing,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) kind: Kind,
    pub(crate) life: Life,
    pub(crate) phase: Phase,
    /// Which acquisition this is.
    pub(crate) number: u8,
    /// A request of this ticket was never answered.
    pub(crate) in_doubt: bool,
    pub(crate) listens: bool,
    /// A waiter of [`Kind::OldJava`] does not ask until it is told.
    pub(crate) sleeps: bool,
    /// A message is on its way. The value is how long the grant in it lasts from now; 0 is a message without one.
    pub(crate) message: Option<u8>,
    /// What the server knows: how long the process counts as alive.
    pub(crate) alive: u8,
    /// What the server knows: how long a Java waiter that was told has its turn. `None`: it was not told.
    pub(crate) turn: Option<u8>,
}

/// The lock as the server has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) owner: Ticket,
    pub(crate) count: u8,
    pub(crate) left: u8,
    pub(crate) confirmed: bool,
}

/// A request that nobody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Late {
    Ask(Ticket),
    Release(Ticket),
}

/// The lock, its queue, and the clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Queue {
    pub(crate) held: Option<Held>,
    pub(crate) waiters: Vec<Ticket>,
    pub(crate) withdrawn: Vec<Ticket>,
    pub(crate) late: Vec<Late>,
    pub(crate) clients: Vec<Client>,
    pub(crate) faults: HandOverFaults,
    /// A waiter was thrown out of the queue while its process counted as alive.
    pub(crate) evicted_alive: bool,
    /// A hand-over has granted the lock.
    pub(crate) handed_over: bool,
}

impl Queue {
    pub(crate) fn new(clients: &[Kind], faults: HandOverFaults) -> Self {
        let client = |kind: &Kind| Client {
            kind: *kind,
            life: Life::Up,
            phase: Phase::Idle,
            number: 0,
            in_doubt: false,
            // Redisson subscribes after its first attempt.
            listens: *kind != Kind::OldJava,
            sleeps: false,
            message: None,
            alive: 0,
            turn: None,
        };
        Self {
            held: None,
            waiters: Vec::new(),
            withdrawn: Vec::new(),
            late: Vec::new(),
            clients: clients.iter().map(client).collect(),
            faults,
            evicted_alive: false,
            handed_over: false,
        }
    }

    pub(crate) fn ticket(&self, c: usize) -> Ticket {
        Ticket {
            client: u8::try_from(c).unwrap_or(u8::MAX),
            number: self.clients[c].number,
        }
    }

    /// The acquisition is over, and the next one has another ticket.
    fn over(&mut self, run: &super::HandOver, c: usize) {
        let client = &mut self.clients[c];
        client.phase = Phase::Idle;
        client.number += 1;
        client.in_doubt = false;
        if !run.has(HandOverBug::BelievesStaleMessage) {
            client.message = None;
        }
    }

    pub(crate) fn ask(&mut self, run: &super::HandOver, c: usize) {
        let ticket = self.ticket(c);
        let queued = self.clients[c].phase == Phase::Waiting;
        let granted = match self.clients[c].kind {
            Kind::Tidelock => self.attempt(run, ticket, queued),
            Kind::Java | Kind::OldJava => self.attempt_of_java(ticket),
        };
        self.clients[c].sleeps = !granted && self.clients[c].kind == Kind::OldJava;
        self.clients[c].phase = if granted {
            Phase::Holding { proved: LEASE }
        } else {
            Phase::Waiting
        };
    }

    pub(crate) fn ask_without_reply(&mut self, c: usize) -> Option<()> {
        self.faults.late = self.faults.late.checked_sub(1)?;
        self.late.push(Late::Ask(self.ticket(c)));
        self.clients[c].in_doubt = true;
        self.clients[c].phase = Phase::Unsure;
        Some(())
    }

    /// A message with a grant is believed for as long as the grant lasts, counted from the hand-over.
    pub(crate) fn hear(&mut self, run: &super::HandOver, c: usize) {
        let left = self.clients[c].message.take().unwrap_or(0);
        if run.direct && left > 0 {
            let late = run.has(HandOverBug::BelievesLateMessage);
            let proved = if late { UNCONFIRMED } else { left };
            self.clients[c].phase = Phase::Holding { proved };
        } else {
            self.ask(run, c);
        }
    }

    /// A waiter asks again after it has subscribed.
    pub(crate) fn listen(&mut self, c: usize) {
        self.clients[c].listens = true;
        self.clients[c].sleeps = false;
    }

    pub(crate) fn beat(&mut self, run: &super::HandOver, c: usize) {
        self.clients[c].alive = ALIVE;
        if run.has(HandOverBug::CountsFromLaterBeat) {
            let message = &mut self.clients[c].message;
            *message = message.map(|_| UNCONFIRMED);
        }
        let again = run.has(HandOverBug::GrantsAgain)
            && self.held.as_ref().is_some_and(|held| !held.confirmed);
        if self.held.is_none() || again {
            self.hand_over(run, None);
        }
    }

    pub(crate) fn renew(&mut self, c: usize) {
        let ticket = self.ticket(c);
        match &mut self.held {
            Some(held) if held.owner == ticket => {
                held.left = LEASE;
                held.confirmed = true;
                self.clients[c].phase = Phase::Holding { proved: LEASE };
            }
            _ => self.clients[c].phase = Phase::Releasing,
        }
    }

    /// A ticket in doubt is withdrawn: otherwise its late request would find no trace of it.
    pub(crate) fn release(&mut self, run: &super::HandOver, c: usize) {
        let ticket = self.ticket(c);
        if self.clients[c].in_doubt {
            self.withdrawn.push(ticket);
            self.withdrawn.sort_unstable();
            self.withdrawn.dedup();
        }
        self.end(run, ticket);
        self.over(run, c);
    }

    pub(crate) fn release_without_reply(&mut self, c: usize) -> Option<()> {
        self.faults.late = self.faults.late.checked_sub(1)?;
        self.late.push(Late::Release(self.ticket(c)));
        self.clients[c].phase = Phase::Releasing;
        Some(())
    }

    pub(crate) fn leave(&mut self, run: &super::HandOver, c: usize) {
        self.clients[c].in_doubt = true;
        self.release(run, c);
    }

    pub(crate) fn arrive(&mut self, run: &super::HandOver, i: usize) {
        match self.late.remove(i) {
            Late::Ask(ticket) => {
                self.attempt(run, ticket, false);
            }
            Late::Release(ticket) => self.end(run, ticket),
        }
    }

    /// The kernel closes the connections of a process that is killed.
    pub(crate) fn kill(&mut self, c: usize) {
        let client = &mut self.clients[c];
        client.life = Life::Dead;
        client.phase = Phase::Idle;
        client.listens = false;
        client.message = None;
    }

    pub(crate) fn tick(&mut self) {
        if let Some(held) = &mut self.held {
            held.left -= 1;
            if held.left == 0 {
                self.held = None;
            }
        }
        for c in 0..self.clients.len() {
            let client = &mut self.clients[c];
            client.alive = client.alive.saturating_sub(1);
            client.turn = client.turn.map(|turn| turn.saturating_sub(1));
            client.message = client.message.map(|left| left.saturating_sub(1));
            if let Phase::Holding { proved } = &mut client.phase {
                *proved -= 1;
                if *proved == 0 {
                    client.phase = Phase::Releasing; // lost: the release is sent all the same
                }
            }
        }
    }
}
