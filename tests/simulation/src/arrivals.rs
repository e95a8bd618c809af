//! Checks the order of a fair lock where its requests arrive at the store: nobody gets the lock while a waiter that came
//! earlier still has its place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidelock::Result;
use tidelock::store::{
    Attempt, AttemptReply, AttemptRequest, Backend, BoxFuture, OwnerId, Released, Store, Ticket,
};
use tidelock::testing::{Twist, Twisted};
use tokio::time::Instant;

/// How many leases the reference store keeps the place of a waiter that does not ask again.
const PLACE_LEASES: u32 = 3;

/// The arrivals of one store, as all its clients together see them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrivals(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    queues: BTreeMap<String, Queue>,
    overtaken: Option<String>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The waiters in order of arrival, and until when each keeps its place.
    waiting: Vec<(OwnerId, Instant)>,
    /// Owners that were granted the lock and have not released it. They may ask again.
    granted: Vec<OwnerId>,
}

impl Arrivals {
    /// Watches a client's requests. `lease`: the client's.
    pub(crate) fn watch(&self, store: Store, lease: Duration) -> Store {
        let watch = Watch {
            arrivals: self.clone(),
            place: lease * PLACE_LEASES,
        };
        Twisted::wrap(store, watch)
    }

    /// The first grant that was out of order.
    pub(crate) fn overtaken(&self) -> Option<String> {
        self.with(|known| known.overtaken.clone())
    }

    fn with<R>(&self, look: impl FnOnce(&mut Known) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Known {
    fn decided(&mut self, ask: &AttemptRequest, outcome: &Result<Attempt>, place: Duration) {
        let Ticket { name, owner, .. } = &ask.ticket;
        let (now, queue) = (
            Instant::now(),
            self.queues.entry(name.to_string()).or_default(),
        );
        queue.waiting.retain(|(_, until)| *until > now);
        match outcome {
            Ok(Attempt::Acquired(_)) if !queue.granted.contains(owner) => {
                let first = queue.waiting.first();
                if let Some((first, _)) = first.filter(|(first, _)| first != owner) {
                    self.overtaken.get_or_insert_with(|| {
                        format!("{owner} was granted {name} before {first}, which came earlier")
                    });
                }
                queue.waiting.retain(|(waiter, _)| waiter != owner);
                queue.granted.push(owner.clone());
            }
            Ok(Attempt::Held(_)) if !ask.patience.is_zero() => {
                // It was granted the lock before, the reply was lost, and the hold has ended: it waits once more. As one
                // that was granted it would keep its place in this list after its next grant.
                queue.granted.retain(|granted| granted != owner);
                let until = now + place;
                let own = queue.waiting.iter_mut().find(|(waiter, _)| waiter == owner);
                match own {
                    Some(own) => own.1 = until,
                    None => queue.waiting.push((owner.clone(), until)),
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, ticket: &Ticket) {
        if let Some(queue) = self.queues.get_mut(ticket.name.as_str()) {
            queue.waiting.retain(|(waiter, _)| *waiter != ticket.owner);
            queue.granted.retain(|owner| *owner != ticket.owner);
        }
    }
}

#[derive(Debug)]
struct Watch {
    arrivals: Arrivals,
    place: Duration,
}

impl Twist for Watch {
    fn attempt<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ask: &'a AttemptRequest,
    ) -> BoxFuture<'a, AttemptReply> {
        Box::pin(async move {
            let reply = inner.attempt(ask).await;
            if ask.ticket.kind.is_fair() {
                let decided = |known: &mut Known| known.decided(ask, &reply.outcome, self.place);
                self.arrivals.with(decided);
            }
            reply
        })
    }

    fn release<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let released = inner.release(ticket).await;
            self.arrivals.with(|known| known.ended(ticket));
            released
        })
    }

    fn withdraw<'a>(
        &'a self,
        inner: &'a dyn Backend,
        ticket: &'a Ticket,
    ) -> BoxFuture<'a, Result<Released>> {
        Box::pin(async move {
            let released = inner.withdraw(ticket).await;
            self.arrivals.with(|known| known.ended(ticket));
            released
        })
    }
}
