//! The order of the claims of a semaphore.

use crate::store::zookeeper::keys::PERMITS;
use crate::store::zookeeper::sequence::{self, by_distance, wrapped};

/// The claims of a semaphore, first come first, each with the permits that it wants.
pub(crate) fn in_order(nodes: Vec<String>) -> Vec<(String, u16)> {
    let numbered = nodes.into_iter().filter_map(|node| {
        let (number, permits) = claim(&node)?;
        Some((number, (node, permits)))
    });
    by_distance(numbered.collect())
}

/// Whether the order of these claims is not certain.
pub(crate) fn are_far_apart(claims: &[(String, u16)]) -> bool {
    sequence::are_far_apart(claims.iter().filter_map(|(node, _)| Some(claim(node)?.0)))
}

/// The number of a claim, and the permits that it wants. `None`: it is another kind of node.
fn claim(node: &str) -> Option<(i32, u16)> {
    let (ticket, digits) = node.rsplit_once(PERMITS)?;
    let (_, permits) = ticket.rsplit_once('-')?;
    Some((wrapped(digits)?, permits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::zookeeper::keys::prefix;
    use crate::store::{LockKind, Name, Ticket};
    use crate::types::OwnerMint;

    #[test]
    fn a_claim_says_how_many_permits_it_wants() {
        let ticket = Ticket {
            kind: LockKind::Permits(30),
            name: Name::new("render").unwrap(),
            owner: OwnerMint::new().fresh(),
        };
        let own = |number: &str| format!("{}{number}", prefix(&ticket));
        let (second, first) = (own("0000000007"), own("0000000006"));
        let nodes = strings(&[&second, "x", "-permits-1", "a-x-permits-0000000001", &first]);
        assert_eq!(in_order(nodes), [(first, 30), (second, 30)]);
        let wrapped = strings(&["a-1-permits--2147483648", "b-2-permits-2147483647"]);
        let wanted = in_order(wrapped).into_iter().map(|(_, permits)| permits);
        assert_eq!(wanted.collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn claims_whose_order_is_not_certain_are_far_apart() {
        let claims = |numbers: &[i32]| -> Vec<(String, u16)> {
            let node = |number: &i32| (format!("_c_x-1-permits-{number:010}"), 1);
            numbers.iter().map(node).collect()
        };
        for near in [
            &[][..],
            &[7],
            &[0, 1 << 30],
            &[i32::MAX, i32::MIN, i32::MIN + 5],
        ] {
            assert!(!are_far_apart(&claims(near)), "{near:?}");
        }
        for far in [
            &[0, (1 << 30) + 1][..],
            &[i32::MAX - (1 << 30), 9, i32::MIN + 1],
        ] {
            assert!(are_far_apart(&claims(far)), "{far:?}");
        }
    }

    fn strings(nodes: &[&str]) -> Vec<String> {
        nodes.iter().map(|node| (*node).to_owned()).collect()
    }
}
