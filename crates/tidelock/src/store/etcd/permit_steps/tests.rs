//! The transactions of a semaphore on a small model of etcd, in schedules that would issue a permit twice.

mod other_owners;
mod removal;
mod waiters_ahead;

use std::time::Duration;

use super::*;
use crate::store::etcd::keys::Keys;
use crate::store::etcd::queue::{self, QueueKeys};
use crate::store::etcd::tests::model::ModelEtcd;
use crate::store::{AttemptRequest, LockKind, Name, ReplicaAck, Ticket};
use crate::types::OwnerMint;

impl ModelEtcd {
    /// How many permits are held, and how many there are.
    fn counts(&mut self) -> (i64, Option<i64>) {
        let all = ticket(0, 0).keys;
        let view = PermitView::of(&all, &self.txn(&all.look())).unwrap();
        (view.held(), view.total)
    }

    fn set_number(&mut self, total: i64) {
        let all = ticket(0, 0).keys;
        let view = PermitView::of(&all, &self.txn(&all.look())).unwrap();
        assert!(self.txn(&all.renumber(&view, total)).succeeded);
    }
}

/// One acquisition, as far as it has come.
struct TestTicket {
    keys: PermitKeys,
    owner: String,
    queues: bool,
    view: Option<PermitView>,
    /// A request on its way, and whether it grants permits.
    sent: Option<(TxnRequest, bool)>,
    holds: bool,
}

fn ticket(id: i64, permits: u16) -> TestTicket {
    let name = Name::new("render").unwrap();
    TestTicket {
        keys: PermitKeys::named(&Keys::new(""), &name, permits, id + 1),
        owner: format!("owner:{id}"),
        queues: true,
        view: None,
        sent: None,
        holds: false,
    }
}

impl TestTicket {
    fn without_a_place(self) -> Self {
        Self {
            queues: false,
            ..self
        }
    }

    /// Decides, and puts the request on its way. False: it waits or holds.
    fn decides(&mut self) -> bool {
        let Some(view) = &self.view else {
            let first = if self.queues {
                self.keys.enter(&self.owner, 7)
            } else {
                self.keys.look()
            };
            self.sent = Some((first, false));
            return true;
        };
        let step = self.keys.step(view, &self.owner, self.queues, 7).unwrap();
        self.sent = match step {
            PermitStep::Grant(txn) => Some((txn, true)),
            PermitStep::Enter(txn) => Some((txn, false)),
            PermitStep::Holds(_) | PermitStep::Waits(_) => None,
        };
        self.sent.is_some()
    }

    /// Its request arrives. Returns whether it has got permits by that.
    fn arrives(&mut self, etcd: &mut ModelEtcd) -> bool {
        let Some((txn, grants)) = self.sent.take() else {
            return false;
        };
        let answer = etcd.txn(&txn);
        if grants && answer.succeeded {
            self.holds = true;
            let (held, total) = etcd.counts();
            assert!(
                total.is_some_and(|total| held <= total),
                "{held} of {total:?}"
            );
            return true;
        }
        self.view = Some(PermitView::of(&self.keys, &answer).unwrap());
        false
    }

    /// Goes on until it holds permits or has to wait.
    fn goes_on(&mut self, etcd: &mut ModelEtcd) -> bool {
        while !self.holds && self.decides() {
            self.arrives(etcd);
        }
        self.holds
    }

    /// Its next attempt: it looks again.
    fn asks_again(&mut self, etcd: &mut ModelEtcd) -> bool {
        self.view = None;
        self.goes_on(etcd)
    }

    fn leaves(&mut self, etcd: &mut ModelEtcd) {
        let held = std::mem::take(&mut self.holds);
        etcd.txn(&self.keys.removal(&self.owner, held, None));
        self.view = None;
    }
}

#[test]
fn permits_go_to_the_waiters_in_the_order_of_their_arrival() {
    let mut etcd = ModelEtcd::default();
    let mut waits = [(1, 3), (2, 6), (3, 4), (4, 1)].map(|(id, permits)| ticket(id, permits));
    // Without a number all of them wait.
    assert!(waits.iter_mut().all(|one| !one.goes_on(&mut etcd)));
    etcd.set_number(4);
    let turns = waits.each_mut().map(|one| one.asks_again(&mut etcd));
    // The second asks for more than there are and keeps nobody out; the last would find a permit, and waits its turn.
    assert_eq!(turns, [true, false, false, false]);
    waits[0].leaves(&mut etcd);
    let turns = waits.each_mut().map(|one| one.asks_again(&mut etcd));
    assert_eq!(turns, [false, false, true, false]);
    etcd.set_number(11);
    let turns = waits[1..]
        .iter_mut()
        .map(|one| one.holds || one.asks_again(&mut etcd));
    assert_eq!(turns.collect::<Vec<_>>(), [true; 3]);
    assert_eq!(etcd.counts(), (11, Some(11)));
}

#[test]
fn a_grant_that_was_decided_before_the_number_shrank_has_no_effect() {
    let mut etcd = ModelEtcd::default();
    etcd.set_number(2);
    assert!(ticket(1, 1).goes_on(&mut etcd));
    let mut late = ticket(2, 1);
    assert!(late.decides() && !late.arrives(&mut etcd) && late.decides());
    etcd.set_number(1);
    assert!(!late.arrives(&mut etcd), "the only permit is held");
    assert!(!late.goes_on(&mut etcd));
}

#[test]
fn a_grant_that_was_decided_before_the_number_grew_has_no_effect() {
    let mut etcd = ModelEtcd::default();
    etcd.set_number(2);
    let (mut passed_over, mut late) = (ticket(1, 3), ticket(2, 2));
    assert!(!passed_over.goes_on(&mut etcd));
    assert!(late.decides() && !late.arrives(&mut etcd) && late.decides());
    etcd.set_number(3);
    assert!(passed_over.asks_again(&mut etcd));
    assert!(!late.arrives(&mut etcd), "all three are held");
}

#[test]
fn a_grant_without_a_place_does_not_pass_one_that_came_meanwhile() {
    let mut etcd = ModelEtcd::default();
    etcd.set_number(1);
    let mut late = ticket(1, 1).without_a_place();
    assert!(late.decides() && !late.arrives(&mut etcd) && late.decides());
    assert!(ticket(2, 1).goes_on(&mut etcd));
    assert!(!late.arrives(&mut etcd), "the only permit is held");
}

#[test]
fn a_grant_of_a_waiter_whose_key_has_gone_has_no_effect() {
    let mut etcd = ModelEtcd::default();
    etcd.set_number(1);
    let mut late = ticket(1, 1);
    assert!(late.decides() && !late.arrives(&mut etcd) && late.decides());
    etcd.txn(&late.keys.removal(&late.owner, false, None));
    // Those that came behind it have counted on the permit.
    assert!(ticket(2, 1).goes_on(&mut etcd));
    assert!(!late.arrives(&mut etcd));
}

#[test]
fn a_name_is_a_lock_or_a_semaphore() {
    let mut etcd = ModelEtcd::default();
    let mut one = ticket(1, 1);
    let lock = TxnRequest {
        success: ops([put("render/1f", "a lock", 7)]),
        ..TxnRequest::default()
    };
    etcd.txn(&lock);
    assert!(one.decides() && !one.arrives(&mut etcd));
    let step = one
        .keys
        .step(one.view.as_ref().unwrap(), &one.owner, true, 7);
    assert_eq!(step.unwrap_err().kind(), ErrorKind::WrongType);
    let view = one.view.as_ref().unwrap();
    assert!(!etcd.txn(&one.keys.renumber(view, 5)).succeeded);
    etcd.keys.remove(&b"render/1f"[..]);
    etcd.set_number(1);
    // A client that knows no semaphores waits behind the number, as behind a lock that somebody holds.
    etcd.txn(&lock);
    assert!(one.asks_again(&mut etcd));
}

#[test]
fn no_lock_enters_the_queue_with_the_number_of_a_semaphore() {
    let mut etcd = ModelEtcd::default();
    etcd.set_number(1);
    for kind in [LockKind::Mutex, LockKind::Read, LockKind::Write] {
        for patience in [Duration::ZERO, Duration::from_secs(1)] {
            let own = Ticket {
                kind,
                name: Name::new("render").unwrap(),
                owner: OwnerMint::new().fresh(),
            };
            let ask = AttemptRequest {
                patience,
                ..AttemptRequest::once(own, Duration::from_secs(1), ReplicaAck::Off)
            };
            let keys = QueueKeys::named(&Keys::new(""), &ask.ticket, 0x1f, false);
            let answer = etcd.txn(&queue::transaction(&ask, &keys, 7, None));
            assert_eq!(etcd.keys.len(), 1, "{kind:?} {patience:?}");
            let refused = queue::decide(&ask, &keys, &answer).err();
            let refused = refused.map(|error| error.kind());
            assert_eq!(refused, Some(ErrorKind::WrongType), "{kind:?} {patience:?}");
        }
    }
}

#[test]
fn a_forced_release_takes_the_permits_of_those_that_were_seen() {
    let mut etcd = ModelEtcd::default();
    etcd.set_number(3);
    let mut holders = [1, 2].map(|id| ticket(id, 1));
    assert!(holders.iter_mut().all(|one| one.goes_on(&mut etcd)));
    let all = ticket(0, 0).keys;
    let seen = PermitView::of(&all, &etcd.txn(&all.look())).unwrap();
    assert!(ticket(3, 1).goes_on(&mut etcd));
    assert!(!etcd.txn(&all.clearance(Some(&seen))).succeeded);
    let seen = PermitView::of(&all, &etcd.txn(&all.look())).unwrap();
    // One of them has gone by itself, and another one waits.
    holders[0].leaves(&mut etcd);
    assert!(!ticket(4, 3).goes_on(&mut etcd));
    assert!(etcd.txn(&all.clearance(Some(&seen))).succeeded);
    assert_eq!(etcd.counts(), (0, Some(3)));
}

/// Requests that are decided and arrive in any order, while tickets come and go and the number changes: no grant makes
/// one permit too many, and at rest nobody waits for permits that are available to it.
#[test]
fn no_order_of_requests_issues_a_permit_too_many() {
    for seed in 0..3000 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut etcd = ModelEtcd::default();
        let mut tickets: Vec<TestTicket> = (0..6)
            .map(|id| {
                let queues = dice.u8(..4) > 0;
                TestTicket {
                    queues,
                    ..ticket(id, dice.u16(1..4))
                }
            })
            .collect();
        for _ in 0..120 {
            let one = dice.choice(&mut tickets).unwrap();
            match dice.u8(..16) {
                0 => etcd.set_number(dice.i64(0..6)),
                // The lease of the key ends while a request is on its way.
                1 if one.sent.is_some() => {
                    etcd.txn(&one.keys.removal(&one.owner, false, None));
                }
                1..4 if one.sent.is_none() => one.leaves(&mut etcd),
                4..6 if one.sent.is_none() && !one.holds => one.view = None,
                6..11 if one.sent.is_none() && !one.holds => drop(one.decides()),
                _ => drop(one.arrives(&mut etcd)),
            }
        }
        for one in &mut tickets {
            while one.sent.is_some() {
                one.arrives(&mut etcd);
            }
        }
        // Each wakes the next: as many rounds as there are waiters.
        for _ in 0..tickets.len() {
            for one in tickets.iter_mut().filter(|one| one.queues && !one.holds) {
                one.asks_again(&mut etcd);
            }
        }
        for one in tickets.iter_mut().filter(|one| one.queues && !one.holds) {
            let view = PermitView::of(&one.keys, &etcd.txn(&one.keys.look())).unwrap();
            let turn = view.turn(&one.keys).0;
            assert_ne!(turn, PermitTurn::Gets, "seed {seed}: {view:?}");
        }
    }
}
