//! Tests of the state of a hold: when it is unsure.

use std::sync::atomic::AtomicBool;

use crate::engine::lease::status::*;
use crate::store::Name;

const LEASE: Duration = Duration::from_secs(60);

const EXACT: Drift = Drift {
    share: 0.0,
    fixed: Duration::ZERO,
};

/// A hold whose lease is proved until `from` plus the lease.
fn status(from: BootInstant) -> HoldStatus {
    let granted = GrantedTicket::of(Name::new("a").unwrap(), LEASE);
    HoldStatus::new(granted, from + LEASE, Clock::Boot)
}

#[test]
fn a_hold_is_unsure_from_a_failed_renewal_to_the_next_proof() {
    let now = Clock::Boot.now();
    let (first, second) = (now + Duration::from_nanos(1), now + Duration::from_nanos(2));
    let status = status(now).renewed_since(now, LEASE);
    assert_eq!(status.state(), HoldState::Held);
    status.failed(first);
    assert_eq!(status.state(), HoldState::Unsure);
    status.confirmed(second);
    assert_eq!(status.state(), HoldState::Held);
    // The reply to an earlier renewal comes late: the proof is newer.
    status.failed(first);
    assert_eq!(status.state(), HoldState::Held);
    // Two renewals of the same instant: one of them was confirmed, so the lease is proved from there.
    status.failed(second);
    assert_eq!(status.state(), HoldState::Held);
}

#[test]
fn a_renewed_hold_is_unsure_half_a_lease_after_its_last_proof() {
    let now = Clock::Boot.now();
    let sent = |before| BootInstant(now.0 - u64::try_from(Duration::as_nanos(&before)).unwrap());
    let renewed = |before| status(now).renewed_since(sent(before), LEASE).state();
    assert_eq!(renewed(LEASE / 4), HoldState::Held);
    assert_eq!(renewed(LEASE / 2), HoldState::Unsure);
    assert_eq!(
        status(now).state(),
        HoldState::Held,
        "a hold that is not renewed has no renewal to wait for"
    );
}

/// One of the two must see what the other has written, although neither waits for the other's writes. On the processors that most
/// tests run on it nearly always does, also without the fences; Miri shows the runs in which it does not.
#[test]
fn a_loss_does_not_miss_a_listener_that_comes_at_the_same_moment() {
    const YIELDS: u32 = 20;
    for _ in 0..20 {
        let status = Arc::new(status(Clock::Boot.now()));
        // Relaxed, as what follows must not be in order because of this.
        let begun = Arc::new(AtomicBool::new(false));
        let listens = std::thread::spawn({
            let (status, begun) = (Arc::clone(&status), Arc::clone(&begun));
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build();
                begun.store(true, Ordering::Relaxed);
                let event = status.loss_event();
                let told = event.until_some(|| status.signal());
                runtime.unwrap().block_on(told)
            }
        });
        // Gives the listener the time to look once and sleep. Nothing that this thread reads tells it when that is: it would
        // then see all that the listener has written.
        let mut left = YIELDS;
        while left > 0 {
            std::thread::yield_now();
            left -= u32::from(begun.load(Ordering::Relaxed));
        }
        status.lose(LostReason::Taken);
        assert_eq!(listens.join().unwrap(), LostReason::Taken);
    }
}

#[test]
fn a_hold_is_unsure_while_its_session_is_disconnected() {
    let now = Clock::Boot.now();
    let state = |connected| {
        let bond = Bond::suspendable(LEASE, move || now, move || connected);
        status(now).bound(Some(bond), EXACT).state()
    };
    assert_eq!(state(true), HoldState::Held);
    assert_eq!(state(false), HoldState::Unsure);
}
