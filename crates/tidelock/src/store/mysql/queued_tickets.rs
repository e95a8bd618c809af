//! The tickets of fair and read-write locks with requests in flight, and those that were withdrawn.
//!
//! A tombstone makes the row of the lock longer for minutes, and each change of the row writes it again. Most waits end with
//! all their requests answered, and then nothing can arrive late. So only a ticket with a request that got no answer needs
//! a tombstone. A request that is not sent yet when its ticket is withdrawn is refused here.

use std::collections::HashMap;
use std::time::Duration;

use crate::engine::runtime::sync::{Mutex, MutexGuard};
use crate::error::Result;
use crate::store::mysql::errors::withdrawn;
use crate::store::ticket_key::TicketKey;
use crate::store::{BootInstant, Ticket, Timers};

/// Bounds how long a request in flight is remembered: as long as the row of the lock remembers a withdrawn ticket.
const UNANSWERED_TTL: Duration = Duration::from_secs(600);

/// Bounds how long a withdrawn ticket is refused here, if none of its requests can arrive late.
const WITHDRAWN_TTL: Duration = Duration::from_secs(60);

/// What this client knows of the tickets of its fair and read-write locks.
#[derive(Debug)]
pub(crate) struct QueuedTickets {
    known: Mutex<QueuedTicketsState>,
    timers: Timers,
}

#[derive(Debug, Default)]
struct QueuedTicketsState {
    tickets: HashMap<TicketKey, QueuedTicket>,
    /// The number of tickets at which expired ones are removed next.
    crowded: usize,
}

#[derive(Debug)]
struct QueuedTicket {
    /// In-flight counter: attempts that were sent and not answered.
    unanswered: usize,
    withdrawn: bool,
    /// The instant from which the entry may be forgotten.
    until: BootInstant,
}

impl QueuedTickets {
    pub(crate) fn new(timers: Timers) -> Self {
        Self {
            known: Mutex::default(),
            timers,
        }
    }

    /// Counts an attempt, before it is sent. An error: the ticket has been withdrawn; do not send.
    pub(crate) fn sending(&self, ticket: &Ticket) -> Result<()> {
        let mut known = self.lock();
        let entry = self.at(&mut known, ticket);
        if entry.withdrawn {
            return Err(withdrawn());
        }
        entry.unanswered += 1;
        Ok(())
    }

    /// Counts that attempt as done: it was answered, or it certainly had no effect.
    pub(crate) fn answered(&self, ticket: &Ticket) {
        let (mut known, key) = (self.lock(), TicketKey::of(ticket));
        let Some(entry) = known.tickets.get_mut(&key) else {
            return;
        };
        entry.unanswered = entry.unanswered.saturating_sub(1);
        if entry.unanswered == 0 && !entry.withdrawn {
            known.tickets.remove(&key);
        }
    }

    /// From now on the attempts of this ticket are refused. Returns whether one that was sent before may still arrive.
    pub(crate) fn withdraw(&self, ticket: &Ticket) -> bool {
        let mut known = self.lock();
        let entry = self.at(&mut known, ticket);
        entry.withdrawn = true;
        let may_arrive = entry.unanswered > 0;
        if !may_arrive {
            entry.until = self.timers.now() + WITHDRAWN_TTL;
        }
        may_arrive
    }

    /// The entry of a ticket, created if missing. Extends its life, and removes expired entries from time to time.
    fn at<'a>(&self, known: &'a mut QueuedTicketsState, ticket: &Ticket) -> &'a mut QueuedTicket {
        let now = self.timers.now();
        // Clean up only after the map has doubled, so that the cost per call stays constant on average.
        if known.tickets.len() >= known.crowded.max(64) {
            known.tickets.retain(|_, entry| entry.until > now);
            known.crowded = known.tickets.len() * 2;
        }
        let until = now + UNANSWERED_TTL;
        let entry = known.tickets.entry(TicketKey::of(ticket));
        let entry = entry.or_insert_with(|| QueuedTicket {
            unanswered: 0,
            withdrawn: false,
            until,
        });
        entry.until = entry.until.max(until);
        entry
    }

    fn lock(&self) -> MutexGuard<'_, QueuedTicketsState> {
        self.known.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::store::{Clock, LockKind, Name};
    use crate::types::OwnerMint;

    fn ticket() -> Ticket {
        Ticket {
            kind: LockKind::Fair,
            name: Name::new("stock").unwrap(),
            owner: OwnerMint::new().fresh(),
        }
    }

    fn tickets() -> QueuedTickets {
        QueuedTickets::new(Timers::new(Clock::Boot))
    }

    #[test]
    fn only_a_request_without_an_answer_may_arrive_after_a_withdrawal() {
        let (tickets, answered, lost) = (tickets(), ticket(), ticket());
        for one in [&answered, &lost] {
            tickets.sending(one).unwrap();
        }
        tickets.answered(&answered);
        assert!(!tickets.withdraw(&answered));
        // A later one that is answered says nothing about the first.
        tickets.sending(&lost).unwrap();
        tickets.answered(&lost);
        assert!(tickets.withdraw(&lost));
        assert!(tickets.withdraw(&lost), "a withdrawal that is repeated");
        tickets.answered(&lost);
        assert!(!tickets.withdraw(&lost), "the answer came late");
    }

    #[test]
    fn a_ticket_that_was_withdrawn_is_sent_no_more() {
        let (tickets, one) = (tickets(), ticket());
        tickets.withdraw(&one);
        let error = tickets.sending(&one).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(!tickets.withdraw(&one), "it was not sent");
        tickets.sending(&ticket()).unwrap();
    }

    #[test]
    fn a_ticket_whose_requests_were_answered_leaves_nothing() {
        let (tickets, one) = (tickets(), ticket());
        for _ in 0..2 {
            tickets.sending(&one).unwrap();
        }
        tickets.answered(&one);
        assert_eq!(tickets.lock().tickets.len(), 1, "one is in flight");
        tickets.answered(&one);
        assert!(tickets.lock().tickets.is_empty());
    }

    /// Sends attempts of that many other tickets.
    fn crowd(tickets: &QueuedTickets, count: usize) {
        for _ in 0..count {
            tickets.sending(&ticket()).unwrap();
        }
    }

    /// A request without an answer may arrive later than the others of its ticket.
    #[tokio::test(start_paused = true)]
    async fn a_withdrawn_ticket_is_remembered_for_as_long_as_its_requests_may_arrive() {
        let tickets = QueuedTickets::new(Timers::new(Clock::Simulated));
        let (unsent, lost) = (ticket(), ticket());
        tickets.sending(&lost).unwrap();
        assert!(tickets.withdraw(&lost) && !tickets.withdraw(&unsent));
        let nano = Duration::from_nanos(1);
        tokio::time::advance(WITHDRAWN_TTL.saturating_sub(nano)).await;
        crowd(&tickets, 100);
        assert!(tickets.lock().tickets.contains_key(&TicketKey::of(&unsent)));
        tokio::time::advance(nano).await;
        crowd(&tickets, 100);
        assert!(!tickets.lock().tickets.contains_key(&TicketKey::of(&unsent)));
        assert!(tickets.lock().tickets.contains_key(&TicketKey::of(&lost)));
        tokio::time::advance(UNANSWERED_TTL).await;
        crowd(&tickets, 400);
        assert!(!tickets.withdraw(&lost), "it is forgotten");
    }

    /// Otherwise each attempt would look at all the tickets.
    #[tokio::test(start_paused = true)]
    async fn expired_tickets_are_removed_once_their_number_has_doubled() {
        let tickets = QueuedTickets::new(Timers::new(Clock::Simulated));
        crowd(&tickets, 65);
        assert_eq!(tickets.lock().crowded, 128);
        tokio::time::advance(UNANSWERED_TTL).await;
        crowd(&tickets, 63);
        assert_eq!(tickets.lock().tickets.len(), 128);
        crowd(&tickets, 1);
        assert_eq!(tickets.lock().tickets.len(), 64);
    }
}
