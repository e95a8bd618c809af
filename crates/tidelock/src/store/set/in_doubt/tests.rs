//! What the log remembers of a ticket, and for how long.

use super::*;
use crate::store::Name;
use crate::types::{LockKind, OwnerMint};

const PARTS: usize = 3;

fn ticket(mint: &OwnerMint) -> Ticket {
    Ticket {
        kind: LockKind::Mutex,
        name: Name::new("stock").unwrap(),
        owner: mint.fresh(),
    }
}

fn at(seconds: u64) -> BootInstant {
    BootInstant::from_nanos(1) + Duration::from_secs(seconds)
}

#[test]
fn a_ticket_is_in_doubt_until_its_release_was_answered() {
    let (log, ticket) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
    assert!(!log.in_doubt(&ticket));
    log.doubt(&ticket, 1, PARTS, at(0));
    assert!(log.in_doubt(&ticket));
    let mut marks = log.begin_end(&ticket, PARTS, at(1));
    assert_eq!(
        [0, 1, 2].map(|part| marks[part].doubt),
        [false, true, false]
    );
    marks[1].over = true;
    log.end(&ticket, &marks, false);
    assert!(!log.in_doubt(&ticket));
    assert_eq!(log.len(), 1, "other members are asked again");
    log.end(&ticket, &marks, true);
    assert_eq!(log.len(), 0);
}

/// The parts of a multi lock have one owner. What is known of one part says nothing about the other.
#[test]
fn each_part_of_a_multi_lock_has_an_entry() {
    let (log, from) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
    let to = Ticket {
        name: Name::new("money").unwrap(),
        ..from.clone()
    };
    log.doubt(&from, 1, PARTS, at(0));
    assert!(log.in_doubt(&from) && !log.in_doubt(&to));
    let (mut left, mut freed) = (
        log.begin_end(&from, PARTS, at(1)),
        log.begin_end(&to, PARTS, at(1)),
    );
    left[0].over = true;
    for mark in &mut freed {
        mark.over = true;
    }
    log.end(&from, &left, false);
    log.end(&to, &freed, true);
    let known = log.begin_end(&from, PARTS, at(2));
    assert_eq!([0, 1, 2].map(|part| known[part].over), [true, false, false]);
    assert_eq!(
        [0, 1, 2].map(|part| known[part].doubt),
        [false, true, false]
    );
}

#[test]
fn a_ticket_in_doubt_that_became_a_hold_is_known() {
    let (log, mint) = (InDoubtLog::default(), OwnerMint::new());
    let [granted, doubtful, unknown] = [(); 3].map(|()| ticket(&mint));
    log.doubt(&granted, 0, PARTS, at(0));
    log.doubt(&doubtful, 0, PARTS, at(0));
    log.granted(&granted);
    log.granted(&unknown);
    let known = [granted, doubtful, unknown].map(|ticket| log.was_granted(&ticket));
    assert_eq!(known, [true, false, false]);
}

/// A scan visits every entry, so a scan for each new entry would take quadratic time.
#[test]
fn the_log_is_scanned_when_it_has_doubled_or_entries_are_old() {
    let (log, mint) = (InDoubtLog::default(), OwnerMint::new());
    let add = |count: usize, now: BootInstant| {
        for _ in 0..count {
            log.doubt(&ticket(&mint), 0, PARTS, now);
        }
        log.lock().purged
    };
    let start = at(0) + ENTRY_TTL;
    assert_eq!(add(64, start), BootInstant(0));
    let first = add(1, start);
    assert_eq!(first, start);
    let later = start + Duration::from_secs(1);
    assert_eq!(add(63, later), first);
    assert_eq!(add(1, later), later, "128 are twice as many as before");
    // They are old now, but nothing has doubled.
    let end = later + ENTRY_TTL;
    assert_eq!(add(1, end), end);
    assert_eq!(log.len(), 1);
    assert_eq!(add(62, end + Duration::from_secs(1)), end);
}

#[test]
fn an_entry_stays_until_the_last_renewal_has_ended() {
    let (log, ticket) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
    log.begin_renewal(&ticket, PARTS, at(0));
    log.begin_renewal(&ticket, PARTS, at(0));
    log.end_renewal(&ticket);
    assert_eq!(log.len(), 1);
    log.end_renewal(&ticket);
    assert_eq!(log.len(), 0);
}

/// The restore of a lock that arrives after its release would leave it held by nobody.
#[test]
fn no_renewal_restores_a_lock_whose_release_has_begun() {
    let (log, ticket) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
    assert!(!log.begin_restore(&ticket, 0), "nothing is known of it");
    log.begin_renewal(&ticket, PARTS, at(0));
    assert!(log.begin_restore(&ticket, 0));
    assert!(log.in_doubt(&ticket), "it is under way");
    log.end_restore(&ticket, 0, true);
    assert!(!log.in_doubt(&ticket));
    assert!(log.begin_restore(&ticket, 2));
    let marks = log.begin_end(&ticket, PARTS, at(1));
    assert!(marks[2].doubt && !marks[0].doubt);
    assert!(!log.begin_restore(&ticket, 1));
    log.end_restore(&ticket, 2, true);
    assert!(log.in_doubt(&ticket), "the release decides what is left");
}

/// The first request may still take effect when the second one was answered.
#[test]
fn a_repeated_restore_does_not_end_the_doubt_of_the_first_one() {
    for (answers, is_in_doubt) in [
        ([true, true], false),
        ([false, true], true),
        ([true, false], true),
    ] {
        let (log, ticket) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
        log.begin_renewal(&ticket, PARTS, at(0));
        assert!(log.begin_restore(&ticket, 0) && log.begin_restore(&ticket, 0));
        log.end_restore(&ticket, 0, answers[0]);
        assert!(log.in_doubt(&ticket), "one is under way");
        log.end_restore(&ticket, 0, answers[1]);
        assert_eq!(log.in_doubt(&ticket), is_in_doubt, "{answers:?}");
    }
    // Nor does it end the doubt of an acquisition that had no answer.
    let (log, ticket) = (InDoubtLog::default(), ticket(&OwnerMint::new()));
    log.doubt(&ticket, 1, PARTS, at(0));
    assert!(log.begin_restore(&ticket, 1));
    log.end_restore(&ticket, 1, true);
    assert!(log.in_doubt(&ticket));
}

/// A log in which that many tickets were in doubt since the start, and one more was renewed. Returns how many entries
/// are left after a new one at that instant.
fn left_of(in_doubt: usize, now: BootInstant) -> usize {
    let (log, mint) = (InDoubtLog::default(), OwnerMint::new());
    log.begin_renewal(&ticket(&mint), PARTS, at(0));
    for _ in 0..in_doubt {
        log.doubt(&ticket(&mint), 0, PARTS, at(0));
    }
    log.doubt(&ticket(&mint), 0, PARTS, now);
    log.len()
}

#[test]
fn old_entries_are_removed_when_the_log_has_grown() {
    let over = at(0) + ENTRY_TTL;
    let before = BootInstant(over.0 - 1);
    assert_eq!(left_of(63, before), 65);
    assert_eq!(left_of(63, over), 2, "the renewal and the new one");
    assert_eq!(left_of(127, over), 2);
    assert_eq!(
        left_of(64, over),
        2,
        "they can have become old since the last scan"
    );
    assert_eq!(left_of(31, over), 33, "too few for a scan");
}

/// After an outage of minutes the log is large and no entry is old. It may never double again.
#[test]
fn old_entries_are_removed_from_a_log_that_stays_as_large() {
    let (log, mint) = (InDoubtLog::default(), OwnerMint::new());
    for _ in 0..200 {
        log.doubt(&ticket(&mint), 0, PARTS, at(0));
    }
    log.doubt(&ticket(&mint), 0, PARTS, at(0) + ENTRY_TTL);
    assert_eq!(log.len(), 1);
}
