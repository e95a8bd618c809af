//! A pending ticket: it is sent to the store until it becomes a hold, and withdrawn otherwise.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::acquire::request::AcquireRequest;
use crate::engine::instruments::CleanupCause;
use crate::engine::lease::granted::GrantedTicket;
use crate::engine::lease::guests::Guest;
use crate::engine::lease::pending_release::PendingRelease;
use crate::engine::lease::steward::StewardCommand;
use crate::error::Result;
use crate::store::{AttemptRequest, Liveness, Ticket};

/// A pending ticket. Its drop withdraws it if the store may know it; otherwise a late acquire could hold the lock, or a
/// queue position could remain, without an owner.
pub(crate) struct PendingTicket<'a> {
    request: &'a Arc<AcquireRequest>,
    pub(crate) ask: AttemptRequest,
    /// A request of this ticket has an unknown outcome: the ticket may hold the lock, or may still be granted it.
    pub(crate) in_doubt: bool,
    /// A hold has the ticket, or its withdrawal is with the steward. Then the drop does nothing.
    settled: bool,
    /// The attempt in flight at the clients of the other members, if it is one of a set. They wait for it.
    guest: Option<Arc<Guest>>,
}

impl<'a> PendingTicket<'a> {
    /// A ticket with a fresh owner. The first attempt has no patience: it does not arm a wake.
    pub(crate) fn new(request: &'a Arc<AcquireRequest>) -> Self {
        let terms = &request.terms;
        let fresh = request.context.core.mint.fresh();
        let ticket = Ticket {
            kind: terms.kind,
            name: request.name.clone(),
            owner: match &request.upgrade_of {
                Some(claim) => fresh.upgrading(&claim.owner),
                None if terms.kind.is_upgradeable() => fresh.upgradeable(),
                None => fresh,
            },
        };
        let ask = AttemptRequest {
            delay: terms.delay,
            downgrade_of: request.downgrade_of.clone(),
            upgrade_of: request.upgrade_of.as_ref().map(|claim| claim.owner.clone()),
            liveness: Liveness::new(Arc::clone(request) as _),
            ..AttemptRequest::once(ticket, terms.lease, terms.wish)
        };
        Self {
            request,
            ask,
            in_doubt: false,
            settled: false,
            guest: None,
        }
    }

    /// Call it before an attempt: the clients of the other members of a set wait for it when they close. Otherwise its
    /// grant would come when one of them has closed its store, and the part there could not be released.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if one of them is closed.
    pub(crate) fn enter_hosts(&mut self) -> Result<()> {
        let context = &self.request.context;
        let Some(hosts) = context.store.hosts() else {
            return Ok(());
        };
        let guest = self.guest.get_or_insert_with(|| Guest::new(hosts, context));
        guest.enter()
    }

    /// The attempt has ended. Its hold takes over what the clients of the other members wait for.
    pub(crate) fn take_guest(&mut self) -> Option<Arc<Guest>> {
        self.guest.take()
    }

    /// Whether the caller waits for a turn in the queue of the store, and would hear of it at no further cost.
    pub(crate) fn hears_turns(&self) -> bool {
        let Self { request, ask, .. } = self;
        if request.only_asks() || !ask.ticket.kind.is_queued() {
            return false;
        }
        let releases = request.context.store.front().extensions().releases;
        releases.is_some_and(|it| it.hears_turns(&ask.ticket))
    }

    /// The store has granted the ticket, and the hold has it from here on.
    pub(crate) fn becomes_hold(&mut self) {
        self.settled = true;
    }

    /// The ticket for its hold or its withdrawal.
    pub(crate) fn granted(&self) -> GrantedTicket {
        GrantedTicket {
            ticket: self.ask.ticket.clone(),
            lease: self.ask.lease,
            wish: self.ask.wish,
            in_doubt: self.in_doubt,
        }
    }

    /// Withdraws the ticket and takes a fresh one. The receiver resolves when the store no longer knows the old ticket.
    pub(crate) fn start_over(&mut self) -> oneshot::Receiver<Result<()>> {
        let (answer, answered) = oneshot::channel();
        self.withdraw(Some(answer), CleanupCause::LostReply);
        let mut fresh = Self::new(self.request);
        fresh.ask.patience = self.ask.patience;
        // In a queue of the store the wake belongs to the owner, so the fresh one needs its own.
        let store = &self.request.context.store;
        let queued = store.queues_in_store(self.ask.ticket.kind);
        fresh.ask.armed_by = self.ask.armed_by.filter(|_| !queued);
        *self = fresh;
        answered
    }

    /// Passes the withdrawal to the steward, which retries it and reports to `answer`.
    fn withdraw(&mut self, answer: Option<oneshot::Sender<Result<()>>>, cause: CleanupCause) {
        self.settled = true;
        self.in_doubt = true; // the withdrawal leaves a tombstone
        let steward = &self.request.context.core.steward;
        // We retry for twice the lease. The acquire may lie in the buffers of a frozen server, and may be granted for a
        // whole lease when that server resumes.
        let limit = (self.ask.lease * 2).max(Duration::from_secs(60));
        steward.send(StewardCommand::Release(PendingRelease {
            store: Arc::clone(&self.request.context.store),
            granted: self.granted(),
            repeated: true,
            until: steward.timers.now() + limit,
            reader: None,
            term: None,
            kept: Duration::ZERO,
            token: None,
            is_logged: true,
            answer,
            cleanup: Some(cause),
            guest: self.guest.take(),
        }));
    }
}

impl Drop for PendingTicket<'_> {
    /// Withdraws the ticket if the store may know it. Does nothing if a hold has it.
    fn drop(&mut self) {
        let store = &self.request.context.store;
        let queues = !self.ask.patience.is_zero() && store.queues_in_store(self.ask.ticket.kind);
        let known = self.in_doubt || queues || store.front().capabilities().queues;
        if known && !self.settled {
            let cause = if self.in_doubt {
                CleanupCause::LostReply
            } else {
                CleanupCause::Cancelled
            };
            self.withdraw(None, cause);
        }
    }
}
