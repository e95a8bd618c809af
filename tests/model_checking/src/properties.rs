//! The guarantees, as properties that hold in every state.

use stateright::Property;

use crate::parts::{Life, NEVER, Phase};
use crate::state::State;
use crate::world::World;

/// No two clients are valid holders.
pub const ONE_HOLDER: &str = "one valid holder at a time";
/// A running client is told of its loss before the store grants the lock to another client.
pub const TOLD_FIRST: &str = "a loss is told before the next grant";
/// The resource accepts writes in the order of the grants.
pub const FENCING: &str = "token-checked writes never go backwards";
/// A ticket owns nothing once its release or withdrawal was answered.
pub const NOTHING_LEFT: &str = "an acquisition that is over leaves nothing";
/// After a release, every sleeping waiter has a wake in flight, unless the wake was lost.
pub const PROMPT: &str = "a release wakes who waits";
/// While a client waits for a free lock, some step is always possible.
pub const NOT_STUCK: &str = "no waiter is stuck beside a free lock";

/// States that a clean run must reach. Otherwise its properties could hold only because nothing happens.
pub const REACHED: [&str; 3] = [
    "a waiter sleeps",
    "a holder is told of a loss",
    "all acquisitions are over",
];

pub(crate) fn all() -> Vec<Property<World>> {
    vec![
        Property::always(ONE_HOLDER, |_, state: &State| state.has_one_holder()),
        Property::always(TOLD_FIRST, |_, state: &State| state.told_first()),
        Property::always(FENCING, |_, state: &State| !state.backwards),
        Property::always(NOTHING_LEFT, |_, state: &State| state.nothing_is_left()),
        Property::always(PROMPT, |_, state: &State| state.is_prompt()),
        Property::always(NOT_STUCK, not_stuck),
        Property::sometimes(REACHED[0], |_, state: &State| {
            let mut clients = state.clients.iter();
            clients.any(|client| matches!(client.phase, Phase::Sleeping { .. }))
        }),
        Property::sometimes(REACHED[1], |_, state: &State| {
            let mut holds = state
                .clients
                .iter()
                .filter_map(|client| client.hold.as_ref());
            holds.any(|hold| hold.told)
        }),
        Property::sometimes(REACHED[2], |world: &World, state: &State| {
            let mut clients = state.clients.iter();
            clients.all(|client| client.number >= world.0.turns && client.chores.is_empty())
        }),
    ]
}

impl State {
    /// Proofs that an operator invalidated do not count: their holders are told at the next renewal.
    fn has_one_holder(&self) -> bool {
        let valid = self.clients.iter().filter(|client| client.is_valid());
        let holds = valid.filter_map(|client| client.hold.as_ref());
        holds.filter(|hold| !hold.proof.excused).count() < 2
    }

    fn told_first(&self) -> bool {
        let owner = self.primary.live().map(|record| record.owner);
        (0..self.clients.len()).all(|c| {
            let client = &self.clients[c];
            let held = client.hold.as_ref();
            let untold = held.is_some_and(|hold| !hold.told && !hold.proof.excused);
            !untold || !client.is_up() || owner.is_none_or(|owner| owner == self.ticket(c))
        })
    }

    /// Not checked after a failover. A release is not acknowledged, so a failover may forget it; the lock then ends
    /// with its lease.
    fn nothing_is_left(&self) -> bool {
        self.failed_over
            || self.primary.live().is_none_or(|record| {
                let owner = &self.clients[usize::from(record.owner.client)];
                owner.life == Life::Dead || !self.is_settled(record.owner)
            })
    }

    fn is_prompt(&self) -> bool {
        let released = self.primary.record.is_none();
        !released
            || self.clients.iter().all(|client| {
                !matches!(client.phase, Phase::Sleeping { recheck } if recheck > 0)
                    || client.woken
                    || client.wake
                    || client.missed
                    || client.at_old
            })
    }
}

fn not_stuck(world: &World, state: &State) -> bool {
    let waits = |client: &crate::parts::Client| {
        client.is_up()
            && matches!(client.phase, Phase::Sleeping { recheck } if recheck == 0 || recheck == NEVER)
            && !client.woken
    };
    !state.messages.is_empty()
        || state.primary.live().is_some()
        || !state.clients.iter().any(waits)
        || world.moves(state)
}
