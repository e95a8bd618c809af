//! A member of a barrier: its hold, and its entry in the register.

use std::sync::Arc;
use std::time::Duration;

use crate::barrier::register::{BarrierRegister, WriteInDoubt};
use crate::barrier::state::{BarrierState, BarrierStep};
use crate::engine::ClientInner;
use crate::engine::lease::steward::StewardCommand;
use crate::error::{ErrorKind, Result};
use crate::guard::Guard;

/// A member that waits or is inside. Its drop removes it from the register in the background, and releases its hold.
pub(super) struct BarrierMember {
    pub(super) core: Arc<ClientInner>,
    pub(super) register: BarrierRegister,
    pub(super) guard: Guard,
    /// It may be in the register.
    is_present: bool,
    doubt: Arc<WriteInDoubt>,
}

impl BarrierMember {
    pub(super) fn new(core: &Arc<ClientInner>, register: BarrierRegister, guard: Guard) -> Self {
        Self {
            core: Arc::clone(core),
            register,
            guard,
            is_present: false,
            doubt: Arc::default(),
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
            .step(&self.core, step, (self.owner(), &self.doubt), patience)
            .await;
        let is_absent = match &done {
            Ok(state) => step.gives_up() && !state.is_inside(self.owner()),
            // A member that is in the state already never gets it.
            Err(error) => error.kind() == ErrorKind::InvalidOptions,
        };
        if is_absent && !self.doubt.is_open() {
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
        let doubt = Arc::clone(&self.doubt);
        let timers = self.core.steward.timers.clone();
        // After a lease the hold of this member has ended too, and the others remove it.
        let (limit, longest) = (
            self.core.settings.lease,
            self.core.settings.response_timeout,
        );
        let removal = async move {
            let removed = register.remove((&owner, &doubt), limit, longest, &timers);
            let removed = removed.await;
            if let Err(error) = removed {
                tracing::debug!(%error, "a member that has left a barrier was not removed; the others remove it when its lease has ended");
            }
        };
        let steward = &self.core.steward;
        steward.send(StewardCommand::Adopt(Box::pin(removal)));
    }
}
