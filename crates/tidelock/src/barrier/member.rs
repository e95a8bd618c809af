//! A member of a barrier: its hold, and its entry in the register.

use std::sync::Arc;
use std::time::Duration;

use crate::barrier::register::BarrierRegister;
use crate::barrier::state::{BarrierState, BarrierStep};
use crate::engine::ClientInner;
use crate::engine::lease::steward::StewardCommand;
use crate::error::Result;
use crate::guard::Guard;

/// A member that waits or is inside. Its drop removes it from the register in the background, and releases its hold.
pub(super) struct BarrierMember {
    pub(super) core: Arc<ClientInner>,
    pub(super) register: BarrierRegister,
    pub(super) guard: Guard,
    /// It may be in the register.
    is_present: bool,
}

impl BarrierMember {
    pub(super) fn new(core: &Arc<ClientInner>, register: BarrierRegister, guard: Guard) -> Self {
        Self {
            core: Arc::clone(core),
            register,
            guard,
            is_present: false,
        }
    }

    pub(super) fn owner(&self) -> &str {
        self.guard.hold().granted().ticket.owner.text()
    }

    /// Does a step, through an outage of at most `patience`.
    pub(super) async fn step(
        &mut self,
        step: BarrierStep,
        patience: Duration,
    ) -> Result<BarrierState> {
        // Set before the request: it may take effect although the caller leaves.
        self.is_present = true;
        let done = self
            .register
            .step(&self.core, step, self.owner(), patience)
            .await;
        if step == BarrierStep::Leave && done.is_ok() {
            self.is_present = false;
        }
        done
    }
}

impl Drop for BarrierMember {
    fn drop(&mut self) {
        if !self.is_present {
            return;
        }
        let (register, owner) = (self.register.clone(), self.owner().to_owned());
        let timers = self.core.steward.timers.clone();
        // After a lease the hold of this member has ended too, and the others remove it.
        let (limit, longest) = (
            self.core.settings.lease,
            self.core.settings.response_timeout,
        );
        let removal = async move {
            let removed = register.remove(&owner, limit, longest, &timers).await;
            if let Err(error) = removed {
                tracing::debug!(%error, "a member that has left a barrier was not removed; the others remove it when its lease has ended");
            }
        };
        let steward = &self.core.steward;
        steward.send(StewardCommand::Adopt(Box::pin(removal)));
    }
}
