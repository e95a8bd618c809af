//! Shows an attempt of this process in the record that operators see of it. It writes to no store.

use std::sync::Arc;

use crate::engine::ClientInner;
use crate::engine::job_runs::JobRun;
use crate::engine::runtime::clock::BootInstant;
use crate::name::Name;
use crate::once::{Mark, MarkState};

/// An attempt that runs. If it is dropped before [`end`](Self::end), it is shown as ended without a confirmed mark.
pub(super) struct OwnRun {
    core: Arc<ClientInner>,
    /// `None`: its end was told.
    run: Option<JobRun>,
}

impl OwnRun {
    pub(super) fn begin(
        core: &Arc<ClientInner>,
        name: &Name,
        mark: &Mark,
        began: BootInstant,
    ) -> Self {
        let run = JobRun {
            name: name.clone(),
            slot: mark.slot.clone(),
            state: mark.state.as_str(),
            attempt: mark.attempt,
            token: mark.token,
            began,
            since: began,
        };
        core.job_runs.note(run.clone());
        Self {
            core: Arc::clone(core),
            run: Some(run),
        }
    }

    /// The store has confirmed this mark.
    pub(super) fn end(mut self, state: MarkState) {
        self.tell(state.as_str());
    }

    fn tell(&mut self, state: &'static str) {
        if let Some(mut run) = self.run.take() {
            (run.state, run.since) = (state, self.core.timers.now());
            self.core.job_runs.note(run);
        }
    }
}

impl Drop for OwnRun {
    fn drop(&mut self) {
        self.tell("unconfirmed");
    }
}
