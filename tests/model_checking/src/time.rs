//! Time passes: on the servers, and on each client unless its clock falls behind.

use crate::config::{Bug, Config};
use crate::parts::{JUMP, LEASE, NEVER, PROVED, Phase, Stamp};
use crate::state::State;

impl State {
    /// One tick of the servers' clock. `behind` has a bit for each client whose clock misses the tick. Returns `None`
    /// if a clock would fall behind by more than `drift` within a lease, or if a running client must first be told of a
    /// loss.
    pub(crate) fn tick(&mut self, config: &Config, behind: u8) -> Option<()> {
        let drift = config.drift;
        let mut clients = self.clients.iter();
        if !config.has(Bug::NeverTells)
            && clients.any(|client| client.is_up() && client.is_overdue())
        {
            return None;
        }
        for server in [
            Some(&mut self.primary),
            self.replica.as_mut(),
            self.old.as_mut(),
        ]
        .into_iter()
        .flatten()
        {
            if let Some(record) = &mut server.record {
                record.left = record.left.saturating_sub(1);
            }
        }
        let is_behind = |client: u8| behind & (1 << client) != 0;
        for message in &mut self.messages {
            if message.body.counts() && !message.deaf {
                message
                    .stamp
                    .pass(is_behind(message.ticket.client), drift)?;
            }
        }
        for (index, client) in (0u8..).zip(&mut self.clients) {
            let behind = is_behind(index);
            if let Some(hold) = client.hold.as_mut().filter(|hold| !hold.told) {
                hold.proof.pass(behind, drift)?;
            }
            if let Phase::Refused { recheck } | Phase::Sleeping { recheck } = &mut client.phase
                && *recheck != NEVER
                && !behind
            {
                *recheck = recheck.saturating_sub(1);
            }
        }
        Some(())
    }

    /// An operator sets the server's clock, which also counts the leases.
    pub(crate) fn step_clock(&mut self, ahead: bool) {
        if let Some(record) = self
            .primary
            .record
            .as_mut()
            .filter(|record| record.left > 0)
        {
            record.left = if ahead {
                record.left.saturating_sub(JUMP)
            } else {
                (record.left + JUMP).min(LEASE + JUMP)
            };
        }
        if ahead {
            self.excuse_all();
        }
    }

    /// An operator frees the lock by force.
    pub(crate) fn force(&mut self) {
        self.primary.record = None;
        self.publish(false);
        self.excuse_all();
    }

    /// Invalidates every proof up to now. The holders are told at the next renewal.
    fn excuse_all(&mut self) {
        let messages = self.messages.iter_mut();
        let counting = messages.filter(|message| message.body.counts() && !message.deaf);
        counting.for_each(|message| message.stamp.excused = true);
        let holds = self
            .clients
            .iter_mut()
            .filter_map(|client| client.hold.as_mut());
        holds.for_each(|hold| hold.proof.excused = true);
    }
}

impl Stamp {
    fn pass(&mut self, behind: bool, drift: u8) -> Option<()> {
        if !self.proves() {
            return Some(());
        }
        if behind {
            self.skew += 1;
            return (self.skew <= drift).then_some(());
        }
        self.age = (self.age + 1).min(PROVED);
        if !self.proves() {
            self.skew = 0;
        }
        Some(())
    }
}
