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

/// A holder reads the clock itself: it may run before the steward does. At the very instant the lease is over.
#[tokio::test(start_paused = true)]
async fn a_lease_is_over_at_its_end_also_before_the_steward_notices() {
    let clock = Clock::Simulated;
    let granted = GrantedTicket::of(Name::new("a").unwrap(), LEASE);
    let instant = Duration::from_nanos(1);
    let status = HoldStatus::new(granted, clock.now() + LEASE + instant, clock);
    tokio::time::advance(LEASE).await;
    assert!(status.is_proved() && status.check(clock).is_none());
    tokio::time::advance(instant).await;
    assert!(!status.is_proved());
    assert_eq!(
        status.check(clock),
        Some(HoldEnd::Lost(LostReason::Expired))
    );
}

/// A session that was ended by the store takes the lock away. Any other reason stays what it is.
#[test]
fn a_lease_that_ends_with_its_session_was_taken() {
    for (reason, told) in [
        (LostReason::Expired, LostReason::Taken),
        (LostReason::MaxHold, LostReason::MaxHold),
    ] {
        let now = Clock::Boot.now();
        let bond = Bond::new(LEASE, move || now);
        let status = status(now).bound(Some(bond.clone()), EXACT);
        bond.sever();
        status.lose(reason);
        assert_eq!(status.signal(), Some(told));
    }
}

#[test]
fn a_status_tells_the_token_of_its_holder() {
    let status = status(Clock::Boot.now());
    assert_eq!(status.token(), None);
    for token in [7, 8] {
        status.set_token(Some(FencingToken::new(token)));
        assert_eq!(status.token(), Some(token));
    }
}

/// The holder of a lost lock may release it before the steward has counted the loss.
#[test]
fn a_lost_hold_that_is_released_counts_as_lost() {
    let instruments = Instruments::default();
    let now = Clock::Boot.now();
    let lost = |name: Name| {
        let status = HoldStatus::new(GrantedTicket::of(name, LEASE), now + LEASE, Clock::Boot);
        status.record_begin(&instruments, now);
        status.lose(LostReason::Taken);
        status.record_end(&instruments, HoldOutcome::Released);
        instruments.stats().losses()
    };
    assert_eq!(lost(Name::new("a").unwrap()), 1);
    let barrier = Name::new("a").unwrap().of_barrier();
    assert_eq!(lost(barrier), 1, "a signal is no loss");
}
