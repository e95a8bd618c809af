//! Tests of the lease table: holds without a steward, holds with a bond, and the batches of renewals.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;

use crate::engine::lease::steward::LoseAllOnDrop;
use crate::engine::lease::table::*;
use crate::engine::store_handle::tests::in_memory;
use crate::store::{Background, Bond, Clock, Timers};

const LEASE: Duration = Duration::from_secs(60);

const EXACT: Drift = Drift {
    share: 0.0,
    fixed: Duration::ZERO,
};

fn store(background: &Background) -> Arc<StoreHandle> {
    in_memory(&Timers::new(Clock::Boot), background, LEASE)
}

fn granted() -> GrantedTicket {
    GrantedTicket::of(Name::new("a").unwrap(), LEASE)
}

/// An entry that is never renewed.
fn entry(store: &Arc<StoreHandle>, status: &Arc<HoldStatus>) -> LeaseEntry {
    LeaseEntry {
        store: Arc::clone(store),
        status: Arc::clone(status),
        location: Location::caller(),
        renew_at: BootInstant::FAR,
        asked: false,
        ends_at: BootInstant::FAR,
        guest: None,
    }
}

#[test]
fn a_grant_without_a_steward_is_lost_at_once() {
    let (table, clock) = (Arc::<LeaseTable>::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let store = store(&background);
    let hold = || {
        let until = clock.now() + Duration::from_secs(60);
        let status = Arc::new(HoldStatus::new(granted(), until, clock));
        table.insert(entry(&store, &status));
        status
    };
    let before = hold();
    assert!(before.signal().is_none());
    // The steward ends, perhaps by a panic.
    drop(LoseAllOnDrop(Arc::clone(&table)));
    assert_eq!(before.signal(), Some(LostReason::Unattended));
    assert_eq!(hold().signal(), Some(LostReason::Unattended));
}

/// A lease of an hour, bound to a session that the store keeps for 10 s after the last request of this client.
#[test]
fn a_hold_is_lost_with_what_it_is_bound_to() {
    let (table, clock) = (LeaseTable::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let begun = clock.now();
    let confirmed = Arc::new(AtomicU64::new(begun.0));
    let ear = Arc::clone(&confirmed);
    let second = Duration::from_secs(1);
    let bond = Bond::new(second * 10, move || BootInstant(ear.load(Ordering::SeqCst)));
    let status = HoldStatus::new(granted(), begun + second * 3600, clock).bound(Some(bond), EXACT);
    let status = Arc::new(status);
    table.insert(entry(&store(&background), &status));
    assert_eq!(table.next_check(begun), begun + second * 10);
    // The session was extended, so the hold stays. It is not renewed, because its entry is never renewed.
    confirmed.store((begun + second * 5).0, Ordering::SeqCst);
    assert!(
        table
            .take_due(begun + second * 10, |lease| lease, &EXACT)
            .is_empty()
    );
    assert_eq!(table.next_check(begun + second * 10), begun + second * 15);
    assert_eq!(status.signal(), None);
    assert!(
        table
            .take_due(begun + second * 15, |lease| lease, &EXACT)
            .is_empty()
    );
    assert_eq!(status.signal(), Some(LostReason::Expired));
    assert_eq!(table.len(), 0);
}

/// Otherwise each of many holds that begin together would wake it.
#[test]
fn a_hold_wakes_the_steward_only_if_it_is_due_before_the_next_look() {
    let (table, clock) = (LeaseTable::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let (store, begun) = (store(&background), clock.now());
    let wakes = |after: Duration| {
        let status = Arc::new(HoldStatus::new(granted(), begun + LEASE, clock));
        table.insert(LeaseEntry {
            renew_at: begun + after,
            ..entry(&store, &status)
        });
        table.notify.notified().now_or_never().is_some()
    };
    assert!(wakes(LEASE / 3));
    assert!(!wakes(LEASE / 3), "the steward looks then");
    assert!(!wakes(LEASE / 2));
    assert!(wakes(LEASE / 4));
}

/// Locks that were acquired one millisecond apart, and a server that answers after four seconds.
#[test]
#[cfg_attr(miri, ignore = "one thread and very many steps")]
fn renewals_go_in_full_batches_one_at_a_time_and_no_lock_is_asked_for_twice() {
    const LOCKS: u64 = 1_050;
    const BATCHES: usize = 11;
    const PERIODS: u32 = 4;
    const TRIP: Duration = Duration::from_secs(4);
    let (period, again) = (LEASE / 3, LEASE / 10);
    let (table, clock) = (LeaseTable::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let (store, begun) = (store(&background), clock.now());
    for number in 0..LOCKS {
        let taken = begun + Duration::from_millis(number);
        let status = Arc::new(HoldStatus::new(granted(), taken + LEASE, clock));
        table.insert(LeaseEntry {
            renew_at: taken + period,
            ..entry(&store, &status)
        });
    }
    let (mut now, mut requests) = (begun, 0);
    let mut on_their_way: VecDeque<(BootInstant, Vec<u64>)> = VecDeque::new();
    while now < begun + period * (PERIODS + 1) {
        while let Some((sent, ids)) = on_their_way.pop_front() {
            if now < sent + TRIP {
                on_their_way.push_front((sent, ids));
                break;
            }
            table.renewed(ids, |entry| entry.proved(sent, &EXACT));
        }
        let batches = table.take_due(now, |_| again, &EXACT);
        assert!(batches.len() <= 1, "{} in one moment", batches.len());
        for batch in batches {
            let asked = on_their_way.iter().flat_map(|(_, ids)| ids);
            let twice = asked.filter(|id| batch.ids.contains(id)).count();
            assert_eq!(twice, 0, "of {} are on their way already", batch.ids.len());
            requests += 1;
            on_their_way.push_back((now, batch.ids));
        }
        let answer = on_their_way.front().map(|(sent, _)| *sent + TRIP);
        now = table
            .next_check(now)
            .min(answer.unwrap_or(BootInstant::FAR));
    }
    assert_eq!(requests, BATCHES * PERIODS as usize);
    assert_eq!(
        table.len(),
        usize::try_from(LOCKS).unwrap(),
        "none was lost"
    );
}

/// A lock of another store, alone in its batch, must not make entries join that are due later: from then on they would
/// all be renewed together.
#[test]
#[cfg_attr(miri, ignore = "one thread and very many steps")]
fn a_batch_with_room_takes_nothing_of_another_lane() {
    let (table, clock) = (LeaseTable::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let begun = clock.now();
    let insert = |store: &Arc<StoreHandle>, due: BootInstant| {
        let status = Arc::new(HoldStatus::new(granted(), begun + LEASE, clock));
        table.insert(LeaseEntry {
            renew_at: due,
            ..entry(store, &status)
        })
    };
    let alone = insert(&store(&background), begun);
    let home = store(&background);
    for number in 1..=500 {
        insert(&home, begun + Duration::from_millis(number));
    }
    let sent = table.take_due(begun, |_| LEASE / 10, &EXACT);
    let sent: Vec<_> = sent.into_iter().map(|batch| batch.ids).collect();
    assert_eq!(sent, [[alone]]);
}

/// Locks that were acquired at different times are not renewed at one instant: the server and this process would take long.
#[test]
fn a_batch_with_room_takes_only_what_is_nearly_due() {
    let (table, clock) = (LeaseTable::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let (begun, home) = (clock.now(), store(&background));
    let insert = |due: BootInstant| {
        let status = Arc::new(HoldStatus::new(granted(), begun + LEASE, clock));
        table.insert(LeaseEntry {
            renew_at: due,
            ..entry(&home, &status)
        })
    };
    let near = LEASE / 9;
    let taken = [begun, begun + near / 2].map(insert);
    insert(begun + near * 2);
    let sent = table.take_due(begun, |_| LEASE / 10, &EXACT);
    let sent: Vec<_> = sent.into_iter().map(|batch| batch.ids).collect();
    assert_eq!(sent, [taken]);
}

/// Many entries may be in flight. The search for one that can join ends after a hundred of them.
#[test]
fn a_batch_with_room_looks_past_a_hundred_entries_at_most() {
    let clock = Clock::Boot;
    let (background, _stop) = Background::start(clock).unwrap();
    let (store, begun) = (store(&background), clock.now());
    for (in_flight, sent) in [(BATCH - 1, 2), (BATCH, 1)] {
        let table = LeaseTable::default();
        let insert = |after: usize, asked: bool| {
            let after = Duration::from_millis(u64::try_from(after).unwrap());
            let status = Arc::new(HoldStatus::new(granted(), begun + LEASE, clock));
            table.insert(LeaseEntry {
                renew_at: begun + after,
                asked,
                ..entry(&store, &status)
            });
        };
        insert(0, false);
        for number in 1..=in_flight {
            insert(number, true);
        }
        insert(in_flight + 1, false);
        let batches = table.take_due(begun, |_| LEASE / 10, &EXACT);
        let renewals = batches.iter().map(|batch| batch.ids.len());
        assert_eq!(renewals.sum::<usize>(), sent, "behind {in_flight}");
    }
}

#[test]
fn the_longest_holds_are_those_that_began_first() {
    let (table, clock) = (LeaseTable::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let (store, begun) = (store(&background), clock.now());
    for second in [4, 1, 5, 3, 2] {
        let status = Arc::new(HoldStatus::new(granted(), begun + LEASE, clock));
        let at = begun + Duration::from_secs(second);
        status.record_begin(&Instruments::default(), at);
        table.insert(entry(&store, &status));
    }
    let longest = |most| {
        let all = table.longest(most).into_iter();
        let ages = all.map(|status| status.since().unwrap().since(begun).as_secs());
        ages.collect::<Vec<_>>()
    };
    assert_eq!(longest(3), [1, 2, 3]);
    assert_eq!(longest(5), [1, 2, 3, 4, 5]);
    assert_eq!(longest(9), [1, 2, 3, 4, 5]);
    assert_eq!(longest(0), [0; 0]);
}

/// Only a listener of the old status must not hear of later holds. Without one a hand-over allocates nothing.
#[test]
fn a_hold_gets_a_new_status_only_if_the_old_one_has_a_listener() {
    let (table, clock) = (LeaseTable::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let mut status = Arc::new(HoldStatus::new(granted(), clock.now() + LEASE, clock));
    let id = table.insert(entry(&store(&background), &status));
    let before = Arc::as_ptr(&status);
    assert!(table.hand_over(id, &mut status, Location::caller(), BootInstant::FAR));
    assert_eq!(Arc::as_ptr(&status), before);
    let listener = Arc::clone(&status);
    assert!(table.hand_over(id, &mut status, Location::caller(), BootInstant::FAR));
    assert!(!Arc::ptr_eq(&status, &listener));
    table.lost(id, LostReason::Taken);
    assert_eq!(status.signal(), Some(LostReason::Taken));
    assert_eq!(listener.signal(), None, "its hold had ended before");
}

/// `abandon` reports the loss to the statuses it has read. A new status from a later hand-off would miss the report.
#[test]
fn nothing_is_handed_over_when_nobody_keeps_it() {
    let (table, clock) = (LeaseTable::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let mut status = Arc::new(HoldStatus::new(granted(), clock.now() + LEASE, clock));
    let id = table.insert(entry(&store(&background), &status));
    table.abandon();
    assert!(!table.hand_over(id, &mut status, Location::caller(), BootInstant::FAR));
    assert_eq!(status.signal(), Some(LostReason::Unattended));
}
