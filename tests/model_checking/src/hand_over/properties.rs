//! The promises of the hand-over, as properties that hold in every state.

use stateright::Property;

use crate::hand_over::HandOver;
use crate::hand_over::state::{Life, Phase, Queue};

/// No two clients hold the lock.
pub const ONE_OWNER: &str = "one holder at a time";
/// A client that holds the lock owns it in the store.
pub const OWNER_OWNS: &str = "a holder owns the lock in the store";
/// An acquisition that is over neither owns the lock nor waits in the queue.
pub const NOTHING_REMAINS: &str = "an acquisition that is over leaves nothing";
/// No waiter is thrown out of the queue while its process counts as alive.
pub const ALIVE_STAYS: &str = "a live waiter keeps its place";

/// States that a clean run must reach. Otherwise its properties could hold only because nothing happens.
pub const SEEN: [&str; 2] = [
    "a hand-over has granted the lock",
    "all acquisitions are over",
];

pub(super) fn all() -> Vec<Property<HandOver>> {
    vec![
        Property::always(ONE_OWNER, |_, state: &Queue| state.holders().count() < 2),
        Property::always(OWNER_OWNS, |_, state: &Queue| {
            let owner = state.held.as_ref().map(|held| held.owner);
            state.holders().all(|c| Some(state.ticket(c)) == owner)
        }),
        Property::always(NOTHING_REMAINS, |_, state: &Queue| state.nothing_remains()),
        Property::always(ALIVE_STAYS, |_, state: &Queue| !state.evicted_alive),
        Property::sometimes(SEEN[0], |_, state: &Queue| state.handed_over),
        Property::sometimes(SEEN[1], |run: &HandOver, state: &Queue| {
            let mut clients = state.clients.iter();
            clients.all(|client| client.number >= run.turns)
        }),
    ]
}

impl Queue {
    fn holders(&self) -> impl Iterator<Item = usize> {
        (0..self.clients.len())
            .filter(|c| matches!(self.clients[*c].phase, Phase::Holding { proved } if proved > 0))
    }

    /// A process that was killed cannot clean up.
    fn nothing_remains(&self) -> bool {
        let owner = self.held.as_ref().map(|held| held.owner);
        owner.iter().chain(&self.waiters).all(|ticket| {
            let client = &self.clients[usize::from(ticket.client)];
            client.life == Life::Dead || ticket.number == client.number
        })
    }
}
