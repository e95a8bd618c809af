//! The number and the claims of a semaphore, and the decision about one of its claims.
//!
//! A claim is the node of a holder or of a waiter. Its name says how many permits it wants, and it has data as soon as it
//! holds them. The order is that of `permit_order.rs`: a waiter gets its permits when they are available together with those
//! that are wanted ahead of it.
//!
//! So a view counts a claim ahead alike, whether it holds its permits or waits for them, and need not read it. Two kinds of
//! claims are different, and are read before a grant: one ahead that wants more permits than there are, which counts only if it
//! holds them; and those behind, which may hold permits if the number has changed since this claim came.

use std::collections::HashMap;

use crate::error::{Error, ErrorKind, Result};
use crate::store::permit_order::{PermitTurn, decide};
use crate::store::zookeeper::claims;
use crate::store::zookeeper::entry::QueueNode;

/// Reads the number, and then the claims.
///
/// A grant proves that the number is the same as in the view. Read in this order, the claims are from a moment in between. In the other
/// order the number might have changed after the claims were read and before it was read, and a claim could have got permits
/// that the view does not show.
pub(crate) fn number_before_claims<N, C>(
    number: impl FnOnce() -> N,
    claims: impl FnOnce() -> C,
) -> (N, C) {
    let number = number();
    (number, claims())
}

/// How many permits there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SemaphoreNumber {
    pub(crate) total: i64,
    /// The name of the node under this one. A number that somebody deletes and makes again has another.
    pub(crate) epoch: String,
    pub(crate) version: i32,
    /// The transaction that changed the number last.
    pub(crate) changed: i64,
}

impl SemaphoreNumber {
    /// Decodes the node with the number.
    ///
    /// # Errors
    /// [`ErrorKind::WrongType`] if it has none.
    pub(crate) fn read(data: &[u8], version: i32, changed: i64) -> Result<Self> {
        let text = std::str::from_utf8(data).ok();
        let parts = text.and_then(|text| text.split_once(' '));
        let parts = parts.filter(|(_, epoch)| is_epoch(epoch));
        let number = parts.and_then(|(total, epoch)| Some((total.parse().ok()?, epoch)));
        let Some((total, epoch)) = number else {
            return Err(Error::new(ErrorKind::WrongType)
                .because("the node that should have the number of permits has no number"));
        };
        Ok(Self {
            total,
            epoch: epoch.to_owned(),
            version,
            changed,
        })
    }

    /// Encodes it.
    pub(crate) fn written(total: i64, epoch: &str) -> String {
        format!("{total} {epoch}")
    }
}

/// The epoch is a part of a path.
fn is_epoch(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A holder of permits, or a waiter for some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) node: String,
    pub(crate) permits: u16,
}

/// The number and the claims of a semaphore.
#[derive(Debug)]
pub(crate) struct ClaimView {
    /// `None`: the semaphore has no number yet.
    pub(crate) number: Option<SemaphoreNumber>,
    /// In the order of their arrival.
    pub(crate) claims: Vec<Claim>,
    /// Whether a claim holds its permits, as far as it was read.
    holds: HashMap<String, bool>,
}

/// The next step of a claim.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClaimStep {
    /// Whether these claims hold permits must be read first.
    Read(Vec<String>),
    /// The permits are available to it.
    Gets,
    /// They are not, until this changes, or the number.
    Waits(ClaimWatch),
    /// It is not there: its session has expired.
    Gone,
}

/// What a waiter watches besides the number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClaimWatch {
    /// Nothing: it wants more than there are.
    Nothing,
    /// The waiter directly ahead. As long as that one has not got its permits, this one cannot get its own.
    Claim(String),
    /// The list of claims. It is the first waiter, and the next holder that leaves may be any.
    All,
}

impl ClaimView {
    pub(crate) fn new(number: Option<SemaphoreNumber>, nodes: Vec<String>) -> Self {
        let claims = claims::in_order(nodes);
        Self {
            number,
            claims: claims
                .into_iter()
                .map(|(node, permits)| Claim { node, permits })
                .collect(),
            holds: HashMap::new(),
        }
    }

    /// Adds what was read of a claim. `None`: it has left since the claims were listed.
    pub(crate) fn learn(&mut self, node: &str, holds: Option<bool>) {
        match holds {
            Some(holds) => drop(self.holds.insert(node.to_owned(), holds)),
            None => self.claims.retain(|claim| claim.node != node),
        }
    }

    /// How many claims are ahead of this one.
    pub(crate) fn ahead_of(&self, own: &QueueNode) -> usize {
        let at = self.claims.iter().position(|claim| claim.node == own.name);
        at.unwrap_or_default()
    }

    /// Decides about the claim for so many permits. `own`: its node. `None`: it has none, and stands behind all others.
    pub(crate) fn step(&self, own: Option<&QueueNode>, permits: u16) -> ClaimStep {
        let at = match own {
            Some(own) => self.claims.iter().position(|claim| claim.node == own.name),
            None => Some(self.claims.len()),
        };
        let Some(at) = at else {
            return ClaimStep::Gone;
        };
        let Some(number) = &self.number else {
            return ClaimStep::Waits(ClaimWatch::Nothing);
        };
        let (ahead, behind) = (&self.claims[..at], self.claims.iter().skip(at + 1));
        let holds = |claim: &&Claim| self.holds.get(&claim.node) == Some(&true);
        let waiting: Vec<&Claim> = ahead.iter().filter(|claim| !holds(claim)).collect();
        let held = self.claims.iter().filter(holds);
        let held = held.map(|claim| i64::from(claim.permits)).sum();
        let wanted = waiting.iter().map(|claim| claim.permits);
        let mut turns = decide(number.total, held, wanted.chain([permits]));
        match turns.pop().unwrap_or(PermitTurn::PassedOver) {
            PermitTurn::PassedOver => ClaimStep::Waits(ClaimWatch::Nothing),
            PermitTurn::Waits => {
                let mut before = waiting.iter().zip(turns);
                let before = before.rfind(|(_, turn)| *turn != PermitTurn::PassedOver);
                ClaimStep::Waits(match before {
                    Some((claim, PermitTurn::Waits)) => ClaimWatch::Claim(claim.node.clone()),
                    _ => ClaimWatch::All,
                })
            }
            PermitTurn::Gets => {
                let passed_over = ahead
                    .iter()
                    .filter(|it| i64::from(it.permits) > number.total);
                // All that came after the last change of the number have left room for this one.
                let may_hold = own.is_some_and(|own| own.zxid < number.changed);
                let behind = behind.filter(|_| may_hold);
                let unsure = passed_over.chain(behind).map(|claim| &claim.node);
                let unsure = unsure.filter(|node| !self.holds.contains_key(*node));
                let unsure: Vec<String> = unsure.cloned().collect();
                if unsure.is_empty() {
                    ClaimStep::Gets
                } else {
                    ClaimStep::Read(unsure)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_number_is_read_and_nothing_else_is_one() {
        for total in [0, 7, -1, i64::MAX] {
            let text = SemaphoreNumber::written(total, "1f");
            let number = SemaphoreNumber::read(text.as_bytes(), 3, 9).unwrap();
            assert_eq!((number.total, &*number.epoch), (total, "1f"));
            assert_eq!((number.version, number.changed), (3, 9));
        }
        for junk in ["", "7", "7 ", "x 1f", "7 1f/2", "7 ..", "7 1f 2", " 1f"] {
            let refused = SemaphoreNumber::read(junk.as_bytes(), 0, 0).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::WrongType, "{junk}");
        }
    }

    fn view(total: i64, changed: i64, wanted: &[u16]) -> ClaimView {
        let number = SemaphoreNumber {
            total,
            epoch: "1f".to_owned(),
            version: 0,
            changed,
        };
        let nodes = wanted.iter().enumerate();
        let nodes = nodes.map(|(at, permits)| node(at, *permits)).collect();
        ClaimView::new(Some(number), nodes)
    }

    fn node(at: usize, permits: u16) -> String {
        format!("_c_x{at}-{permits}-permits-{at:010}")
    }

    fn own(at: usize, permits: u16, zxid: i64) -> QueueNode {
        let name = node(at, permits);
        QueueNode { name, zxid }
    }

    /// However many wait, one claim is watched, and none is read as long as the number is the same.
    #[test]
    fn each_waiter_watches_one_node_and_reads_none() {
        let wanted = [2; 100];
        let view = view(4, 1, &wanted);
        for at in 0..wanted.len() {
            let step = view.step(Some(&own(at, 2, 2)), 2);
            match at {
                0 | 1 => assert_eq!(step, ClaimStep::Gets),
                2 => assert_eq!(step, ClaimStep::Waits(ClaimWatch::All)),
                _ => {
                    let before = ClaimWatch::Claim(node(at - 1, 2));
                    assert_eq!(step, ClaimStep::Waits(before));
                }
            }
        }
        assert_eq!(
            view.step(None, 2),
            ClaimStep::Waits(ClaimWatch::Claim(node(99, 2)))
        );
        assert_eq!(view.step(None, 5), ClaimStep::Waits(ClaimWatch::Nothing));
        assert_eq!(view.step(Some(&own(100, 2, 2)), 2), ClaimStep::Gone);
        let ahead = [0, 7, 100].map(|at| view.ahead_of(&own(at, 2, 2)));
        assert_eq!(ahead, [0, 7, 0]);
    }

    #[test]
    fn those_that_may_hold_permits_out_of_turn_are_read() {
        // The first wants more than there are, the last came after this one.
        let wanted = [4, 1, 1];
        let mut seen = view(3, 9, &wanted);
        let this = own(1, 1, 8);
        let unsure = ClaimStep::Read(vec![node(0, 4), node(2, 1)]);
        assert_eq!(seen.step(Some(&this), 1), unsure);
        let newer = own(1, 1, 10);
        assert_eq!(
            seen.step(Some(&newer), 1),
            ClaimStep::Read(vec![node(0, 4)])
        );
        seen.learn(&node(0, 4), Some(false));
        assert_eq!(seen.step(Some(&newer), 1), ClaimStep::Gets);
        seen.learn(&node(2, 1), Some(true));
        assert_eq!(seen.step(Some(&this), 1), ClaimStep::Gets);
        seen.learn(&node(0, 4), Some(true));
        assert_eq!(seen.step(Some(&this), 1), ClaimStep::Waits(ClaimWatch::All));
        let mut left = view(1, 9, &[1, 1]);
        left.learn(&node(1, 1), None);
        assert_eq!(left.step(Some(&own(0, 1, 8)), 1), ClaimStep::Gets);
        let unnumbered = ClaimView::new(None, vec![node(0, 1)]);
        let waits = ClaimStep::Waits(ClaimWatch::Nothing);
        assert_eq!(unnumbered.step(Some(&own(0, 1, 8)), 1), waits);
    }
}
