//! Tests of spare leases: which ticket gets one, and how much is left of it. And of leases that a late request may use.

mod remembered;

use super::*;
use crate::engine::runtime::clock::Clock;
use crate::store::LockKind;
use crate::types::OwnerMint;

fn of(mint: &OwnerMint, name: &str) -> Ticket {
    Ticket {
        kind: LockKind::Mutex,
        name: Name::new(name).unwrap(),
        owner: mint.fresh(),
    }
}

#[test]
fn a_lease_that_is_being_revoked_serves_nobody_else() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
    let mint = OwnerMint::new();
    let ticket = |name| of(&mint, name);
    let lease = |id| Lease {
        id,
        asked: 3,
        ttl: Duration::from_secs(3),
        kept_at: BootInstant::from_nanos(1),
    };
    for (id, is_answered) in [(1, true), (2, false)] {
        let late = ticket("late");
        ticket_leases.granted(&late, lease(id)).unwrap();
        ticket_leases.sending(&late).unwrap();
        if is_answered {
            ticket_leases.answered(&late);
            assert_eq!(ticket_leases.withdraw(&late), Remains::Key);
        } else {
            assert_eq!(ticket_leases.withdraw(&late), Remains::Requests(vec![id]));
            // The answer arrives late, and a second withdrawal finds the key.
            ticket_leases.answered(&late);
            assert_eq!(ticket_leases.withdraw(&late), Remains::Key);
        }
        ticket_leases.settle(&late, true);
        let served = ticket_leases.reuse(&ticket("next"), 3).unwrap();
        assert_eq!(served, is_answered.then(|| lease(id)));
    }
}

/// A waiter asks again after a third of its lease. A lease that was spare may have less than that left.
#[test]
fn only_a_lease_that_was_just_kept_alive_needs_no_keep_alive() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
    let mint = OwnerMint::new();
    let ticket = |name| of(&mint, name);
    let (earlier, next) = (ticket("earlier"), ticket("next"));
    let at = |seconds| BootInstant::from_nanos(1) + Duration::from_secs(seconds);
    let lease = Lease {
        id: 1,
        asked: 60,
        ttl: Duration::from_secs(60),
        kept_at: at(100),
    };
    ticket_leases.granted(&earlier, lease).unwrap();
    ticket_leases.kept_alive(&earlier, lease.id, at(130));
    ticket_leases.kept_alive(&earlier, lease.id, at(120)); // an answer that comes late
    assert!(ticket_leases.settle(&earlier, true).is_empty());
    let spare = ticket_leases.reuse(&next, 60).unwrap().unwrap();
    assert_eq!(spare.kept_at, at(130));
    for (now, is_young) in [(130, true), (139, true), (140, false), (200, false)] {
        assert_eq!(spare.is_young(at(now)), is_young, "{now}");
    }
    ticket_leases.kept_alive(&next, spare.id, at(200));
    let known = ticket_leases.lease(&next).unwrap().unwrap();
    assert!(known.is_young(at(209)));
}

/// The store was restored from a snapshot: a key of an earlier ticket may be under each of the leases.
#[test]
fn a_lease_in_doubt_serves_no_other_ticket() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
    let mint = OwnerMint::new();
    let ticket = |name| of(&mint, name);
    let lease = |id| Lease {
        id,
        asked: 3,
        ttl: Duration::from_secs(3),
        kept_at: BootInstant::from_nanos(1),
    };
    let (earlier, waits, next) = (ticket("earlier"), ticket("waits"), ticket("next"));
    ticket_leases.granted(&earlier, lease(1)).unwrap();
    assert!(ticket_leases.settle(&earlier, true).is_empty());
    ticket_leases.granted(&waits, lease(2)).unwrap();
    assert!(!ticket_leases.is_doubted(&waits));
    assert_eq!(ticket_leases.doubt_all(), [1]);
    assert_eq!(ticket_leases.reuse(&next, 3).unwrap(), None);
    assert!(ticket_leases.is_doubted(&waits));
    assert_eq!(ticket_leases.settle(&waits, true), [2]);
    // Another lease of the ticket is in no doubt.
    ticket_leases.granted(&next, lease(3)).unwrap();
    assert!(ticket_leases.doubt_all().is_empty());
    ticket_leases.ended(&next, 3);
    ticket_leases.granted(&next, lease(4)).unwrap();
    assert!(!ticket_leases.is_doubted(&next));
    assert!(ticket_leases.settle(&next, true).is_empty());
}

#[test]
fn a_lease_that_a_late_move_may_use_is_in_doubt() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
    let ticket = Ticket {
        kind: LockKind::Mutex,
        name: Name::new("stock").unwrap(),
        owner: OwnerMint::new().fresh(),
    };
    let lease = |id| Lease {
        id,
        asked: 3,
        ttl: Duration::from_secs(3),
        kept_at: BootInstant::from_nanos(1),
    };
    assert!(ticket_leases.in_doubt(&ticket).is_empty());
    ticket_leases.granted(&ticket, lease(1)).unwrap();
    ticket_leases.granted(&ticket, lease(2)).unwrap();
    assert!(ticket_leases.in_doubt(&ticket).is_empty());
    ticket_leases.sending(&ticket).unwrap();
    assert_eq!(ticket_leases.in_doubt(&ticket), [1]);
    ticket_leases.record_key_lease(&ticket, 1);
    assert_eq!(ticket_leases.in_doubt(&ticket), [2]);
    ticket_leases.ended(&ticket, 2);
    assert!(ticket_leases.in_doubt(&ticket).is_empty());
    ticket_leases.granted(&ticket, lease(3)).unwrap();
    ticket_leases.answered(&ticket);
    assert!(ticket_leases.in_doubt(&ticket).is_empty());
}

/// An attempt that is thought lost finds the lock taken. Its repetition is granted the lock, and its answer comes first.
#[test]
fn the_answer_to_an_overtaken_attempt_does_not_hide_the_key() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
    let ticket = of(&OwnerMint::new(), "stock");
    let lease = Lease {
        id: 1,
        asked: 3,
        ttl: Duration::from_secs(3),
        kept_at: BootInstant::from_nanos(1),
    };
    ticket_leases.granted(&ticket, lease).unwrap();
    for _ in ["lost", "repeated"] {
        ticket_leases.sending(&ticket).unwrap();
    }
    ticket_leases.answered(&ticket);
    ticket_leases.created(&ticket, 7, 7);
    ticket_leases.answered(&ticket);
    ticket_leases.absent(&ticket, 6);
    assert_eq!(ticket_leases.withdraw(&ticket), Remains::Key);
    ticket_leases.absent(&ticket, 8);
    assert_eq!(ticket_leases.withdraw(&ticket), Remains::Nothing);
}

/// The key ends, and the repetition of an attempt creates it again. The answer to the first attempt comes last.
#[test]
fn the_answer_to_an_overtaken_attempt_does_not_bring_back_an_older_key() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
    let ticket = of(&OwnerMint::new(), "stock");
    ticket_leases.created(&ticket, 9, 9);
    for seen in [6, 7] {
        ticket_leases.created(&ticket, 6, seen);
        assert_eq!(ticket_leases.revision(&ticket), Some(9), "{seen}");
    }
    // A third attempt found no key between the two.
    ticket_leases.absent(&ticket, 8);
    assert_eq!(ticket_leases.withdraw(&ticket), Remains::Key);
    ticket_leases.created(&ticket, 12, 13);
    assert_eq!(ticket_leases.revision(&ticket), Some(12));
}

/// The store was restored from a snapshot that does not have the key, and the ticket creates it again.
#[test]
fn a_key_that_was_created_again_after_the_store_has_gone_back_is_known_by_its_lower_revision() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
    let mint = OwnerMint::new();
    let noticed = of(&mint, "noticed");
    ticket_leases.created(&noticed, 100, 100);
    assert!(ticket_leases.doubt_all().is_empty());
    // The snapshot may have the key.
    assert_eq!(ticket_leases.revision(&noticed), Some(100));
    ticket_leases.created(&noticed, 53, 53);
    assert_eq!(ticket_leases.revision(&noticed), Some(53));
    // The first answer comes when the store has reached the revision that it had before, so nothing is noticed.
    for seen in [100, 101] {
        let unnoticed = of(&mint, "unnoticed");
        ticket_leases.created(&unnoticed, 100, 100);
        ticket_leases.created(&unnoticed, 60, seen);
        assert_eq!(ticket_leases.revision(&unnoticed), Some(60), "{seen}");
    }
}

/// A lease of a minute.
fn minute(id: i64) -> Lease {
    Lease {
        id,
        asked: 60,
        ttl: Duration::from_secs(60),
        kept_at: BootInstant::from_nanos(1),
    }
}

#[tokio::test(start_paused = true)]
async fn a_spare_lease_serves_for_half_of_its_length_those_that_ask_for_the_same() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Simulated));
    let mint = OwnerMint::new();
    let (earlier, next) = (of(&mint, "earlier"), of(&mint, "next"));
    ticket_leases.granted(&earlier, minute(1)).unwrap();
    assert!(ticket_leases.settle(&earlier, true).is_empty());
    for asked in [59, 61] {
        assert_eq!(ticket_leases.reuse(&next, asked).unwrap(), None);
    }
    tokio::time::advance(Duration::from_secs(29)).await;
    assert_eq!(ticket_leases.reuse(&next, 60).unwrap(), Some(minute(1)));
    assert!(ticket_leases.settle(&next, true).is_empty());
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(ticket_leases.reuse(&next, 60).unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_ticket_is_remembered_for_a_minute_and_the_length_of_its_lease() {
    let mint = OwnerMint::new();
    for (lease, passed, is_refused) in [
        (None, 59, true),
        (None, 60, false),
        (Some(minute(1)), 119, true),
        (Some(minute(1)), 120, false),
    ] {
        let ticket_leases = TicketLeases::new(Timers::new(Clock::Simulated));
        let late = of(&mint, "late");
        if let Some(lease) = lease {
            ticket_leases.granted(&late, lease).unwrap();
        }
        ticket_leases.withdraw(&late);
        // Expired ones are removed when there are many.
        for number in 0..63 {
            let other = of(&mint, &format!("other {number}"));
            ticket_leases.lease(&other).unwrap();
        }
        tokio::time::advance(Duration::from_secs(passed)).await;
        ticket_leases.lease(&of(&mint, "one more")).unwrap();
        let refused = ticket_leases.lease(&late).is_err();
        assert_eq!(refused, is_refused, "{lease:?} {passed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_counts_as_taken_for_half_a_second() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Simulated));
    let name = |number: usize| Name::new(format!("lock {number}")).unwrap();
    for number in 0..SPARE {
        ticket_leases.taken(&name(number));
    }
    tokio::time::advance(Duration::from_millis(499)).await;
    assert!(ticket_leases.is_taken(&name(0)) && !ticket_leases.is_taken(&name(SPARE)));
    ticket_leases.taken(&name(0));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(ticket_leases.is_taken(&name(0)) && !ticket_leases.is_taken(&name(1)));
    ticket_leases.taken(&name(SPARE));
    assert_eq!(ticket_leases.lock().taken.len(), 2, "the rest is forgotten");
}

#[test]
fn no_more_leases_are_kept_than_may_be_spare() {
    let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
    let mint = OwnerMint::new();
    let tickets: Vec<Ticket> = (0..=SPARE).map(|_| of(&mint, "stock")).collect();
    for (id, ticket) in (1..).zip(&tickets) {
        ticket_leases.granted(ticket, minute(id)).unwrap();
    }
    let ended = tickets.iter().map(|one| ticket_leases.settle(one, true));
    let ended: Vec<i64> = ended.flatten().collect();
    assert_eq!(ended, [i64::try_from(tickets.len()).unwrap()]);
}

#[test]
fn a_reader_takes_over_the_place_of_a_writer_that_holds_the_lock_only() {
    let mint = OwnerMint::new();
    for (holds, is_withdrawn, is_joined) in [
        (true, false, true),
        (false, false, false),
        (true, true, false),
    ] {
        let ticket_leases = TicketLeases::new(Timers::new(Clock::Boot));
        let (writer, reader) = (of(&mint, "stock"), of(&mint, "stock"));
        ticket_leases.granted(&writer, minute(1)).unwrap();
        ticket_leases.created(&writer, 7, 7);
        if holds {
            ticket_leases.holds(&writer);
        }
        if is_withdrawn {
            ticket_leases.withdraw(&writer);
        }
        let place = TakenPlace { id: 1, revision: 7 };
        let joined = ticket_leases.join(&reader, &writer.owner).unwrap();
        assert_eq!(joined, is_joined.then_some(place));
        assert_eq!(ticket_leases.joined(&reader), joined);
        assert_eq!(ticket_leases.is_followed(&writer), is_joined);
        // A second attempt finds the same, also if the writer has gone.
        ticket_leases.settle(&writer, true);
        let again = ticket_leases.join(&reader, &writer.owner).unwrap();
        assert_eq!(again, joined);
        ticket_leases.withdraw(&reader);
        let late = ticket_leases.join(&reader, &writer.owner);
        assert_eq!(late.is_err(), is_joined);
    }
}
