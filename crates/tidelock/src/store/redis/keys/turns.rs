//! The channel on which a process hears of its turns in the queue of a fair lock, and the waiters behind its messages.

use crate::store::Name;
use crate::store::redis::keys::{channel, joined};

/// The channel on which all waiters of one process for a fair lock hear of their turns. The message is the number of the
/// acquisition whose turn it is.
pub(crate) fn turn_channel(name: &Name, client: &str) -> String {
    joined(&[&channel(name), ":", client])
}

/// The [`turn_channel`] of the waiter that has this [`fair_channel`](super::fair_channel).
pub(crate) fn turns_of(waiter: &str) -> Option<&str> {
    waiter.rsplit_once(':').map(|(turns, _)| turns)
}

/// The [`fair_channel`](super::fair_channel) of the waiter for which a message on a [`turn_channel`] is.
pub(crate) fn has_turn(turns: &str, message: &str) -> String {
    joined(&[turns, ":", message])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::keys::{fair_channel, hashed, of_fair_channel};
    use crate::types::OwnerMint;

    #[test]
    fn a_message_about_a_turn_leads_to_its_waiter() {
        let owner = OwnerMint::new().fresh();
        for given in ["stock", "{a}:b", "a:b", "ä 漢", "x{y}z"] {
            let name = Name::new(given).unwrap();
            let (own, turns) = (
                fair_channel(&name, owner.text()),
                turn_channel(&name, owner.client()),
            );
            assert_eq!(turns_of(&own), Some(&*turns));
            assert_eq!(has_turn(&turns, &owner.number().to_string()), own);
            assert_eq!(hashed(&turns), hashed(given));
            assert_eq!(of_fair_channel(&turns), None);
        }
    }
}
