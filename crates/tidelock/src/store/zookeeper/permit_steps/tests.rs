//! The transactions of a semaphore on a small model of ZooKeeper, in schedules that would issue a permit twice.

use super::*;
use crate::store::permit_order::{PermitTurn, decide};
use crate::store::zookeeper::claims;
use crate::store::zookeeper::entry::QueueNode;
use crate::store::zookeeper::permit_view::{ClaimStep, ClaimView, number_before_claims};

mod model;

use model::{ModelZooKeeper, paths};

/// The answer to the first of the two reads.
#[derive(Debug)]
struct NumberRead(Option<SemaphoreNumber>);

/// One acquisition, as far as it has come.
#[derive(Debug)]
struct TestTicket {
    prefix: String,
    permits: u16,
    own: Option<QueueNode>,
    /// The number was read, and the claims were not.
    numbered: Option<NumberRead>,
    view: Option<ClaimView>,
    /// A grant on its way.
    sent: Option<[NodeChange; 3]>,
    holds: bool,
}

fn ticket(id: i64, permits: u16) -> TestTicket {
    TestTicket {
        prefix: format!("_c_{id}-{permits}-permits-"),
        permits,
        own: None,
        numbered: None,
        view: None,
        sent: None,
        holds: false,
    }
}

impl TestTicket {
    /// Makes one step of an attempt, and puts a grant on its way. False: it waits or holds.
    fn goes_a_step(&mut self, server: &mut ModelZooKeeper) -> bool {
        let Some(own) = &self.own else {
            self.own = Some(server.claim(&self.prefix));
            return true;
        };
        let Some(view) = &mut self.view else {
            match self.numbered.take() {
                None => self.numbered = Some(NumberRead(server.number())),
                Some(NumberRead(number)) => {
                    self.view = Some(ClaimView::new(number, server.list()));
                }
            }
            return true;
        };
        match view.step(Some(own), self.permits) {
            ClaimStep::Read(nodes) => {
                for node in nodes {
                    view.learn(&node, server.holds(&node));
                }
                true
            }
            ClaimStep::Gets => {
                let number = view.number.as_ref().unwrap();
                let note = b"its owner".to_vec();
                self.sent = Some(paths().grant(number, &own.name, note));
                true
            }
            ClaimStep::Gone => {
                self.own = None;
                self.view = None;
                true
            }
            ClaimStep::Waits(_) => {
                self.holds = server.holds(&own.name) == Some(true);
                self.view = None;
                false
            }
        }
    }

    /// Its grant arrives. Returns whether it has got permits by that.
    fn arrives(&mut self, server: &mut ModelZooKeeper) -> bool {
        let Some(grant) = self.sent.take() else {
            return false;
        };
        self.view = None;
        match server.multi(&grant) {
            Ok(()) => {
                let (held, total) = server.counts();
                let fits = total.is_some_and(|total| held <= total);
                assert!(fits, "{held} of {total:?}: {server:?}");
                self.holds = true;
            }
            Err(PermitPaths::OWN) => {
                let own = self.own.as_ref().unwrap();
                self.holds = server.holds(&own.name) == Some(true);
            }
            Err(_) => {}
        }
        self.holds
    }

    /// Goes on until its grant is on its way, or it holds or waits.
    fn decides(&mut self, server: &mut ModelZooKeeper) -> bool {
        while !self.holds && self.sent.is_none() && self.goes_a_step(server) {}
        self.sent.is_some()
    }

    /// Goes on until it holds permits or has to wait.
    fn goes_on(&mut self, server: &mut ModelZooKeeper) -> bool {
        while self.decides(server) {
            self.arrives(server);
        }
        self.holds
    }

    fn leaves(&mut self, server: &mut ModelZooKeeper) {
        if let Some(own) = self.own.take() {
            server.remove(&own.name);
        }
        (self.holds, self.view, self.numbered) = (false, None, None);
    }
}

#[test]
fn permits_go_to_the_claims_in_the_order_of_their_arrival() {
    let mut server = ModelZooKeeper::default();
    let mut waits = [(1, 3), (2, 6), (3, 4), (4, 1)].map(|(id, permits)| ticket(id, permits));
    // Without a number all of them wait.
    assert!(waits.iter_mut().all(|one| !one.goes_on(&mut server)));
    server.set_number(4);
    let turns = waits.each_mut().map(|one| one.goes_on(&mut server));
    // The second asks for more than there are and keeps nobody out; the last would find a permit, and waits its turn.
    assert_eq!(turns, [true, false, false, false]);
    waits[0].leaves(&mut server);
    let turns = waits.each_mut().map(|one| one.goes_on(&mut server));
    assert_eq!(turns, [false, false, true, false]);
    server.set_number(11);
    let turns = waits[1..].iter_mut().map(|one| one.goes_on(&mut server));
    assert_eq!(turns.collect::<Vec<_>>(), [true; 3]);
    assert_eq!(server.counts(), (11, Some(11)));
}

#[test]
fn a_claim_is_not_granted_after_the_number_shrank() {
    let mut server = ModelZooKeeper::default();
    server.set_number(2);
    assert!(ticket(1, 1).goes_on(&mut server));
    let mut late = ticket(2, 1);
    assert!(late.decides(&mut server));
    server.set_number(1);
    assert!(!late.arrives(&mut server), "the only permit is held");
    assert!(!late.goes_on(&mut server));
}

#[test]
fn a_claim_is_not_granted_after_the_number_grew() {
    let mut server = ModelZooKeeper::default();
    server.set_number(2);
    let (mut passed_over, mut late) = (ticket(1, 3), ticket(2, 2));
    assert!(!passed_over.goes_on(&mut server));
    assert!(late.decides(&mut server));
    server.set_number(3);
    assert!(passed_over.goes_on(&mut server));
    assert!(!late.arrives(&mut server), "all three are held");
}

/// The new number has the version of the old one.
#[test]
fn a_claim_is_not_granted_by_a_number_that_was_made_again() {
    let mut server = ModelZooKeeper::default();
    server.make_number(2, "1f").unwrap();
    assert!(ticket(1, 1).goes_on(&mut server));
    let mut late = ticket(2, 1);
    assert!(late.decides(&mut server));
    server.delete_number();
    server.make_number(1, "2f").unwrap();
    assert!(!late.arrives(&mut server), "the only permit is held");
    assert!(server.make_number(9, "3f").is_err(), "it has a number");
}

/// The reply to the first grant was lost, and the number has become smaller since.
#[test]
fn a_claim_is_granted_once() {
    let mut server = ModelZooKeeper::default();
    server.set_number(2);
    let mut one = ticket(1, 2);
    assert!(one.decides(&mut server));
    let grant = one.sent.clone().unwrap();
    server.multi(&grant).unwrap();
    assert!(one.arrives(&mut server), "it finds its own permits");
    assert_eq!(server.multi(&grant), Err(PermitPaths::OWN));
    one.holds = false;
    server.set_number(1);
    assert!(one.goes_on(&mut server), "it finds its own permits");
    one.leaves(&mut server);
    assert_eq!(server.multi(&grant).map_err(|at| at > 0), Err(true));
    assert_eq!(server.counts(), (0, Some(1)));
}

/// A claim got its permits while a larger number stood, behind one that waited.
#[test]
fn a_claim_behind_that_holds_permits_is_counted_after_a_change_of_the_number() {
    let mut server = ModelZooKeeper::default();
    server.set_number(1);
    let (mut first, mut behind) = (ticket(1, 2), ticket(2, 1));
    assert!(!first.goes_on(&mut server) && behind.goes_on(&mut server));
    server.set_number(2);
    assert!(!first.goes_on(&mut server), "one of two is held");
    behind.leaves(&mut server);
    assert!(first.goes_on(&mut server));
}

/// A claim ahead got its permits before the number shrank, and now wants more than there are.
#[test]
fn a_holder_ahead_of_more_than_there_are_is_counted() {
    let mut server = ModelZooKeeper::default();
    server.set_number(3);
    let (mut three, mut one) = (ticket(1, 3), ticket(2, 1));
    assert!(three.goes_on(&mut server));
    server.set_number(2);
    assert!(!one.goes_on(&mut server), "three of two are held");
    three.leaves(&mut server);
    assert!(one.goes_on(&mut server));
}

/// Between the two reads the number shrinks and grows again, and in between others act.
#[test]
fn the_number_is_read_before_the_claims() {
    /// Returns what was read, and how the number and the claims change between the two reads.
    fn reads(in_order: bool) -> (ModelZooKeeper, TestTicket) {
        let mut server = ModelZooKeeper::default();
        server.set_number(1);
        let mut big = ticket(1, 2);
        assert!(!big.goes_on(&mut server));
        let mut late = ticket(2, 1);
        assert!(late.goes_a_step(&mut server), "it has a claim");
        let server = std::cell::RefCell::new(server);
        // The one that was passed over gets its permits, as long as there are two.
        let mut between = Some(|| {
            let mut server = server.borrow_mut();
            server.set_number(2);
            assert!(big.goes_on(&mut server));
            server.set_number(1);
        });
        let mut read = |what: &str| {
            if what == "the second" {
                between.take().unwrap()();
            }
            let server = server.borrow();
            let node = { server.list() }
                .into_iter()
                .find(|node| node.starts_with("_c_1-"));
            let node = node.unwrap();
            let holds = server.holds(&node);
            (server.number(), server.list(), node, holds)
        };
        let (number, (_, list, big, holds)) = if in_order {
            let mut calls = ["the first", "the second"].into_iter();
            let read = std::cell::RefCell::new(&mut read);
            let calls = std::cell::RefCell::new(&mut calls);
            let next = || (read.borrow_mut())(calls.borrow_mut().next().unwrap());
            let (number, claims) = number_before_claims(next, next);
            (number.0, claims)
        } else {
            let claims = read("the first");
            (read("the second").0, claims)
        };
        let mut view = ClaimView::new(number, list);
        view.learn(&big, holds);
        late.view = Some(view);
        (server.into_inner(), late)
    }
    let (mut server, mut late) = reads(true);
    assert!(!late.decides(&mut server) || !late.arrives(&mut server));
    // In the other order its grant would take effect while two of one are held.
    let (mut server, mut late) = reads(false);
    assert!(late.decides(&mut server));
    server.multi(&late.sent.take().unwrap()).unwrap();
    assert_eq!(server.counts(), (3, Some(1)));
}

/// Requests that are decided and arrive in any order, while tickets come and go and the number changes: no grant makes
/// one permit too many, and at rest nobody waits for permits that are available to it.
#[test]
fn no_order_of_requests_on_zookeeper_issues_a_permit_too_many() {
    for seed in 0..2000 {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut server = ModelZooKeeper::default();
        let mut tickets: Vec<TestTicket> = (0..6).map(|id| ticket(id, dice.u16(1..4))).collect();
        for _ in 0..200 {
            let one = dice.choice(&mut tickets).unwrap();
            match dice.u8(..24) {
                0 => server.set_number(dice.i64(0..6)),
                1 if dice.u8(..8) == 0 => server.delete_number(),
                // The session ends while a request is on its way.
                2 => {
                    if let Some(own) = &one.own {
                        server.remove(&own.name);
                        one.holds = false;
                    }
                }
                // The reply to the grant is lost.
                3 if one.sent.is_some() => {
                    let grant = one.sent.clone().unwrap();
                    one.arrives(&mut server);
                    if dice.bool() {
                        one.sent = Some(grant);
                    }
                    one.holds = false;
                }
                4..7 if one.sent.is_none() => one.leaves(&mut server),
                7..19 if one.sent.is_none() && !one.holds => drop(one.goes_a_step(&mut server)),
                _ => drop(one.arrives(&mut server)),
            }
        }
        for one in &mut tickets {
            one.arrives(&mut server);
        }
        // Each wakes the next: as many rounds as there are waiters.
        for _ in 0..tickets.len() {
            for one in tickets.iter_mut().filter(|one| !one.holds) {
                one.view = None;
                one.goes_on(&mut server);
            }
        }
        let Some(number) = server.number() else {
            continue;
        };
        let held = server.counts().0;
        let waiting = claims::in_order(server.list()).into_iter();
        let waiting = waiting.filter(|(node, _)| server.holds(node) == Some(false));
        let wanted = waiting.map(|(_, permits)| permits);
        let turns = decide(number.total, held, wanted);
        let rests = turns.iter().all(|turn| *turn != PermitTurn::Gets);
        assert!(rests, "seed {seed}: {server:?}");
    }
}
