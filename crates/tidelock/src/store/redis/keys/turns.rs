//! The channel on which a process hears of its turns in the queue of a fair lock, and the waiters behind its messages.

use crate::store::Name;
use crate::store::redis::keys::{CHANNEL, channel, joined};

/// The channel on which all waiters of one process for a fair lock hear of their turns. The message is the number of the
/// acquisition whose turn it is.
pub(crate) fn turn_channel(name: &Name, client: &str) -> String {
    joined(&[&channel(name), ":", client])
}

/// The channel of the lock, if the given channel is a [`turn_channel`]. A braced name that ends like one is taken for one.
pub(crate) fn of_turn_channel(given: &str) -> Option<&str> {
    let (lock, client) = given.rsplit_once(':')?;
    // The clients of tidelock have a UUID of version 8.
    let is_ours = client.as_bytes().get(14) == Some(&b'8')
        && client.len() == 36
        && uuid::Uuid::try_parse(client).is_ok();
    (is_ours && lock.starts_with(CHANNEL)).then_some(lock)
}

/// Whether waiters for a fair lock hear of their turns on the channel: one of them, or all those of a process.
pub(crate) fn is_of_turns(given: &str) -> bool {
    super::of_fair_channel(given).is_some() || of_turn_channel(given).is_some()
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
            assert_eq!(of_turn_channel(&turns), Some(&*channel(&name)));
            assert_eq!(of_turn_channel(&own), None);
            assert!(is_of_turns(&own) && is_of_turns(&turns));
            assert!(!is_of_turns(&channel(&name)));
        }
    }

    /// The owners of Redisson have a UUID of version 4, and a lock may have any name.
    #[test]
    fn a_channel_that_only_looks_like_one_of_turns_is_none() {
        let client = OwnerMint::new().fresh().client().to_owned();
        let redisson = "0123abcd-0123-4123-8123-0123456789ab";
        for other in [
            format!("redisson_lock__channel:{{x}}:{redisson}"),
            format!("redisson_lock__channel:{{x}}:{client}0"),
            format!("redisson_lock__channel:{{x}}:{}", client.replace('-', "x")),
            format!("redisson_rwlock:{{x}}:{client}"),
            "redisson_lock__channel".to_owned(),
        ] {
            assert_eq!(of_turn_channel(&other), None, "{other}");
            assert!(!is_of_turns(&other), "{other}");
        }
        assert_eq!(turns_of("stock"), None);
    }
}
