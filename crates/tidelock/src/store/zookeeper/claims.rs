//! The order of the claims of a semaphore.

use crate::store::zookeeper::keys::PERMITS;
use crate::store::zookeeper::sequence::SequenceNumber;

/// The claims of a semaphore, first come first, each with the permits that it wants.
pub(crate) fn in_order(nodes: Vec<String>) -> Vec<(String, u16)> {
    let numbered = nodes.into_iter().filter_map(|node| {
        let (number, permits) = claim(&node)?;
        Some((number, node, permits))
    });
    let mut claims: Vec<(SequenceNumber, String, u16)> = numbered.collect();
    claims.sort_unstable();
    let claims = claims.into_iter();
    claims.map(|(_, node, permits)| (node, permits)).collect()
}

/// The number of a claim, and the permits that it wants. `None`: it is another kind of node.
fn claim(node: &str) -> Option<(SequenceNumber, u16)> {
    let (ticket, digits) = node.rsplit_once(PERMITS)?;
    let (_, permits) = ticket.rsplit_once('-')?;
    Some((SequenceNumber::of(digits)?, permits.parse().ok()?))
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
        let late = strings(&["a-1-permits--2147483648", "b-2-permits-2147483646"]);
        let wanted = in_order(late).into_iter().map(|(_, permits)| permits);
        assert_eq!(wanted.collect::<Vec<_>>(), [2, 1]);
    }

    fn strings(nodes: &[&str]) -> Vec<String> {
        nodes.iter().map(|node| (*node).to_owned()).collect()
    }
}
