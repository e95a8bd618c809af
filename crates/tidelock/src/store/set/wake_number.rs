//! The number that a set gives a wake: which member armed it, and the member's own number of it.
//!
//! The acquire loop keeps one number with a wake, and passes it to the next attempt. A member may be a set itself, and
//! needs its own number back: otherwise it would take one of its parts for another, and the wake would not be armed where
//! the caller is refused. So the number holds both. It also names the member to start with after a collision, when no
//! wake is armed there.

use crate::store::Wake;

/// The wake of a set with so many members that this member has armed.
pub(crate) fn armed(wake: Wake, member: usize, members: usize) -> Wake {
    let own = wake.part();
    wake.of_part(of_armed(own, member, members))
}

/// A number that does not fit is cut. The attempt then starts with another member, and its caller may be woken late.
fn of_armed(own: usize, member: usize, members: usize) -> usize {
    let own = own.saturating_add(1).saturating_mul(members);
    own.saturating_add(member)
}

/// The number of a caller that starts with this member and has no wake of it.
pub(crate) fn unarmed(member: usize) -> usize {
    member
}

/// Reads a number: the member, and the member's own number of the wake. `None`: no wake is armed there.
pub(crate) fn read(number: usize, members: usize) -> (usize, Option<usize>) {
    (number % members, (number / members).checked_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_was_made() {
        for members in 1..4 {
            for member in 0..members {
                assert_eq!(read(unarmed(member), members), (member, None));
                for own in 0..9 {
                    let number = of_armed(own, member, members);
                    assert_eq!(read(number, members), (member, Some(own)));
                }
            }
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_still_one() {
        let number = of_armed(usize::MAX / 2, 1, 3);
        let (member, own) = read(number, 3);
        assert!(member < 3 && own.is_some());
    }
}
