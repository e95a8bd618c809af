//! What becomes of holds that nobody keeps, and of those that are bound to something.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::backend::{Background, Bond, Clock, Env, Kind, Timers, TlsFiles, memory};
use crate::core::site::Manners;
use crate::hand_off::HandOff;
use crate::owner::OwnerMint;

fn keep(status: &Arc<Status>, background: &Background) -> Keep {
    let clock = Clock::Boot;
    let env = Env {
        timers: Timers::new(clock),
        background: background.clone(),
        response_timeout: Duration::from_secs(1),
        lease: Duration::from_secs(60),
        acknowledge_within: Duration::from_secs(1),
        credentials: None,
        tls: TlsFiles::default(),
    };
    let manners = Manners {
        hand_off: HandOff::default(),
        timers: env.timers.clone(),
        patience: Duration::from_secs(20),
        bell: Arc::default(),
    };
    Keep {
        site: Site::home(memory::open("", &env), &manners),
        ticket: Ticket {
            kind: Kind::Mutex,
            name: Name::new("a").unwrap(),
            owner: OwnerMint::new().fresh(),
        },
        status: Arc::clone(status),
        place: Location::caller(),
        lease: Duration::from_secs(60),
        wish: Acknowledge::Off,
        unclear: false,
        renew_at: Moment::FAR,
        ends_at: Moment::FAR,
    }
}

#[test]
fn what_is_granted_when_nobody_keeps_it_is_lost_at_once() {
    let (table, clock) = (Table::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let hold = || {
        let until = clock.now() + Duration::from_secs(60);
        let status = Arc::new(Status::new(until, clock));
        table.insert(keep(&status, &background));
        status
    };
    let before = hold();
    assert!(before.signal().is_none());
    table.abandon();
    assert_eq!(before.signal(), Some(LostReason::Unattended));
    assert_eq!(hold().signal(), Some(LostReason::Unattended));
}

/// A lease of an hour, in a session that the store keeps for 10 s after it has heard from us.
#[test]
fn a_hold_is_lost_with_what_it_is_bound_to() {
    let (table, clock) = (Table::default(), Clock::Boot);
    let (background, _stop) = Background::start(clock).unwrap();
    let begun = clock.now();
    let heard = Arc::new(AtomicU64::new(begun.0));
    let ear = Arc::clone(&heard);
    let second = Duration::from_secs(1);
    let bond = Bond::new(second * 10, move || Moment(ear.load(Ordering::SeqCst)));
    let exact = Drift {
        share: 0.0,
        fixed: Duration::ZERO,
    };
    let status = Status::new(begun + second * 3600, clock).bound(Some(bond), exact);
    let status = Arc::new(status);
    table.insert(keep(&status, &background));
    assert_eq!(table.next_look(begun), begun + second * 10);
    // Heard from again: it lasts on, and nothing that was never to be renewed is renewed.
    heard.store((begun + second * 5).0, Ordering::SeqCst);
    assert!(
        table
            .take_due(begun + second * 10, |lease| lease)
            .is_empty()
    );
    assert_eq!(table.next_look(begun + second * 10), begun + second * 15);
    assert_eq!(status.signal(), None);
    assert!(
        table
            .take_due(begun + second * 15, |lease| lease)
            .is_empty()
    );
    assert_eq!(status.signal(), Some(LostReason::Expired));
    assert_eq!(table.len(), 0);
}
