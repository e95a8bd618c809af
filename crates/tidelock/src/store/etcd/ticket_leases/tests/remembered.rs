//! Tests of how long tickets and locks are remembered, and of what is remembered of a ticket with several attempts.

use super::*;

/// The answer to the first attempt is late: meanwhile the repeated one has written the key.
#[test]
fn the_answer_to_one_of_two_attempts_does_not_hide_the_key_of_the_other() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
    let ticket = of(&OwnerMint::new(), "stock");
    ticket_leases.granted(&ticket, minute(1)).unwrap();
    for _ in ["first", "repeated"] {
        ticket_leases.sending(&ticket).unwrap();
    }
    ticket_leases.answered(&ticket);
    ticket_leases.absent(&ticket, 6);
    ticket_leases.answered(&ticket);
    assert_eq!(ticket_leases.withdraw(&ticket), Remains::Key);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_just_found_taken_counts_as_taken_however_many_others_do() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Simulated));
    let names = (0..=SPARE).map(|number| Name::new(format!("lock {number}")).unwrap());
    let names: Vec<Name> = names.collect();
    for name in &names {
        ticket_leases.taken(name);
    }
    assert!(names.iter().all(|name| ticket_leases.is_taken(name)));
}

/// A search at each request would cost more and more, and none at all would keep every ticket.
#[tokio::test(start_paused = true)]
async fn expired_tickets_are_removed_when_there_are_twice_as_many_as_after_the_last_search() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Simulated));
    let mint = OwnerMint::new();
    let known_after = |more: usize| {
        for _ in 0..more {
            ticket_leases.lease(&of(&mint, "stock")).unwrap();
        }
        ticket_leases.lock().tickets.len()
    };
    // The last one finds 64, of which none has expired.
    assert_eq!(known_after(65), 65);
    tokio::time::advance(WITHDRAWN_TTL).await;
    assert_eq!(known_after(63), 128);
    assert_eq!(known_after(1), 64);
}
