//! The channel on which a process hears of its turns in the queue of a fair lock.

use super::*;
use crate::store::Name;
use crate::store::redis::keys::fair_channel;
use crate::store::redis::keys::turns::turn_channel;
use crate::types::{OwnerId, OwnerMint};

/// Two waiters of this process for one lock.
struct Waiters {
    owners: [OwnerId; 2],
    turns: String,
    channels: [String; 2],
}

impl Waiters {
    fn new() -> Self {
        let (mint, name) = (OwnerMint::new(), Name::new("stock").unwrap());
        let owners = [mint.fresh(), mint.fresh()];
        Self {
            turns: turn_channel(&name, owners[0].client()),
            channels: [0, 1].map(|at: usize| fair_channel(&name, owners[at].text())),
            owners,
        }
    }

    fn arm(&self, on: &Played, at: usize) -> Option<Wake> {
        on.registry.arm_for_turn(&self.turns, &self.channels[at])
    }
}

#[tokio::test]
async fn a_turn_wakes_the_waiter_that_it_names() {
    let (on, waiters) = (Played::start(PublishModes::Plain), Waiters::new());
    assert!(waiters.arm(&on, 0).is_none(), "it would hear nothing");
    on.subscribed(&waiters.turns);
    let mut wakes = [0, 1].map(|at| waiters.arm(&on, at).unwrap());
    let number = |at: usize| waiters.owners[at].number().to_string().into_bytes();
    for (payload, woken) in [
        (number(0), [true, false]),
        (number(1), [false, true]),
        (b"x".to_vec(), [false, false]),
        (vec![0xff], [false, false]),
    ] {
        on.publishes(Plain, &waiters.turns, &payload);
        assert_eq!(wakes.each_mut().map(is_woken), woken, "{payload:?}");
    }
    // Messages may have been missed.
    on.registry.wake(&waiters.turns);
    assert_eq!(wakes.each_mut().map(is_woken), [true, true]);
}

/// Others would be woken out of turn. The beat wakes the one whose turn it is.
#[tokio::test]
async fn waiters_for_turns_are_not_woken_if_the_next_connection_is_lost_too() {
    let (on, waiters) = (Played::start(PublishModes::Plain), Waiters::new());
    on.subscribed(&waiters.turns);
    let mut wakes = [0, 1].map(|at| waiters.arm(&on, at).unwrap());
    let connection = on.connection();
    for _ in 0..2 {
        on.registry.disconnected(&connection);
        let again = format!("SUBSCRIBE {}", waiters.turns);
        assert_eq!(sends(&connection), [again]);
    }
    assert_eq!(wakes.each_mut().map(is_woken), [false, false]);
}

#[tokio::test(start_paused = true)]
async fn the_channel_of_turns_is_left_after_its_last_waiter() {
    let (on, waiters) = (Played::start(PublishModes::Plain), Waiters::new());
    on.subscribed(&waiters.turns);
    let connection = on.connection();
    let is_left = || {
        assert!(on.registry.sweep(&connection));
        !sends(&connection).is_empty()
    };
    let [first, mut second] = [0, 1].map(|at| waiters.arm(&on, at).unwrap());
    let again = waiters.arm(&on, 0).unwrap();
    advance(IDLE_SUBSCRIPTION_LIFETIME * 2).await;
    assert!(!is_left());
    // The news that the first wake is gone comes after the next one was armed.
    drop(first);
    on.registry.idle(&waiters.channels[0]);
    assert_eq!(on.registry.sharing(&waiters.turns).len(), 2);
    drop(again);
    on.registry.idle(&waiters.channels[0]);
    assert_eq!(on.registry.sharing(&waiters.turns).len(), 1);
    on.registry.wake(&waiters.turns);
    assert!(is_woken(&mut second));
    advance(IDLE_SUBSCRIPTION_LIFETIME * 2).await;
    assert!(!is_left());
    drop(second);
    on.registry.idle(&waiters.channels[1]);
    advance(IDLE_SUBSCRIPTION_LIFETIME).await;
    assert!(is_left());
}
