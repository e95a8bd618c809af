//! What a spin lock knows of the other processes that want it: nobody counts a client that asks again and again.

use crate::store::redis::Redis;
use crate::store::redis::layouts::answer::HeldByOther;
use crate::store::redis::pubsub::subscriber::released;
use crate::store::{Awaited, Released, Ticket};

impl Redis {
    /// The refusal of an attempt names the holder. If it is another client, such clients may ask for the lock again.
    pub(crate) fn saw_spinning(&self, ticket: &Ticket, refusal: HeldByOther<'_>) {
        let holder = refusal.head.and_then(|owner| owner.split_once(':'));
        if holder.is_some_and(|(client, _)| client != ticket.owner.client()) {
            self.shared.spinning.saw(&ticket.name);
        }
    }

    /// The outcome of the release of a lock. Of a spin lock it says whether others may ask for it, so that this process
    /// leaves them turns: otherwise its next task would always ask first.
    pub(crate) fn beside_spinners(&self, ticket: &Ticket, outcome: Released) -> Released {
        if !ticket.kind.is_spin() || !self.shared.spinning.is_recent(&ticket.name) {
            return outcome;
        }
        let awaited = match outcome {
            Released::Freed => Awaited::default(),
            Released::Awaited(awaited) => awaited,
            Released::NotHeld | Released::WrongType => return outcome,
        };
        released(Awaited {
            polled: true,
            ..awaited
        })
    }
}
