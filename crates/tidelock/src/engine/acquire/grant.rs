//! A grant becomes a hold: the proof of its lease, the leader term, and the entry in the lease table.

use crate::engine::runtime::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;

use crate::engine::acquire::observation::hold_span;
use crate::engine::acquire::pending_ticket::PendingTicket;
use crate::engine::acquire::request::AcquireRequest;
use crate::engine::lease::hold::Hold;
use crate::engine::lease::status::HoldStatus;
use crate::engine::lease::table::LeaseEntry;
use crate::engine::lease::upgrade_slot::UpgradeSlot;
use crate::engine::local_queue::leader::Leader;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BootInstant, Grant, Wake};
use crate::types::FencingToken;

/// A grant whose lease is proved.
pub(crate) struct ProvedGrant {
    grant: Grant,
    /// When the attempt was sent.
    sent: BootInstant,
    status: HoldStatus,
}

impl ProvedGrant {
    /// Proves the lease from the time at which the attempt was sent.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the reply took so long that the lease proves nothing. The ticket is withdrawn.
    pub(crate) fn new(
        request: &AcquireRequest,
        pending: &mut PendingTicket<'_>,
        grant: Grant,
        sent: BootInstant,
    ) -> Result<Self> {
        let steward = &request.context.core.steward;
        let lease = request.terms.lease;
        let valid_until = sent + steward.drift.proved(lease);
        let mut status = HoldStatus::new(pending.granted(), valid_until, steward.timers.clock());
        if request.terms.renewed {
            status = status.renewed_since(sent, lease);
        }
        let status = status.bound(grant.bond.clone(), steward.drift);
        if status.is_proved() {
            return Ok(Self {
                grant,
                sent,
                status,
            });
        }
        drop(pending.start_over()); // nobody waits for the withdrawal
        Err(Error::new(ErrorKind::Unavailable)
            .because("the store took longer to answer than the lease lasts; set a longer lease"))
    }

    /// Makes the hold. From here on its drop releases the lock. With a leader, the hold begins a leader term, and the
    /// queue keeps the wake for the next leader.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] if the client was closed: the hold is released.
    pub(crate) fn into_hold(
        self,
        request: &AcquireRequest,
        pending: &mut PendingTicket<'_>,
        leader: Option<Leader>,
        wake: Option<Wake>,
    ) -> Result<Arc<Hold>> {
        let context = &request.context;
        if let Some(queues) = &context.queues {
            let name = &request.name;
            queues.granted(name, || context.store.releases_seen(name));
        }
        // The term begins before the insert: the status in the table must have it, so that a loss ends the term.
        let term = leader.and_then(|leader| leader.begin(request.terms, &self.grant, wake));
        let status = Arc::new(self.status.leading(term.as_ref()));
        status.set_token(self.grant.token);
        pending.becomes_hold();
        let core = &context.core;
        status.record_begin(&core.steward.instruments, core.timers.now());
        let caps = request.options.max_hold;
        let guest = pending.take_guest();
        let entry = LeaseEntry {
            store: Arc::clone(&context.store),
            status: Arc::clone(&status),
            location: request.location,
            renew_at: match (request.terms.renewed, self.grant.renew_soon) {
                (true, true) => self.sent + request.terms.lease / 15,
                (true, false) => self.sent + request.terms.lease / 3,
                (false, _) => BootInstant::FAR,
            },
            asked: false,
            ends_at: caps.map_or(BootInstant::FAR, |cap| self.sent + cap),
            guest: guest.clone(),
        };
        let upgrade = UpgradeSlot::of(status.granted().ticket.kind);
        let hold = Hold {
            entry: context.core.steward.table.insert(entry),
            context: Arc::clone(context) as _,
            token: self.grant.token,
            generation: self.grant.token,
            is_written: AtomicBool::new(false),
            status,
            guest: guest.as_ref().map(Arc::downgrade).unwrap_or_default(),
            acknowledged: self.grant.acknowledged,
            extension: AtomicU64::new(0),
            disarmed: AtomicBool::new(false),
            term,
            upgrade,
            span: hold_span(&request.name, self.grant.token),
        };
        // We check for `close` after the insert. `close` sets its flag before it reads the table, so either we see the
        // flag or `close` sees the hold.
        context.core.refuse_if_closed()?;
        guest.map_or(Ok(()), |guest| guest.holds(hold.entry))?;
        tracing::debug!(lock = %request.name, token = hold.token.map(FencingToken::get), lease = ?request.terms.lease, "acquired");
        Ok(Arc::new(hold))
    }
}
