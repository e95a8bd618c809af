//! `tidelock run`: runs a command under a lock.
//!
//! It uses three processes, so that the failure of any one of them cannot let the command outlive the lease:
//!
//! - this process, the *wrapper*, acquires the lock, renews it, and sends the newest proved deadline to the supervisor;
//! - the *supervisor* owns the command's process group and terminates it before the deadline: when no new deadline
//!   arrives (the wrapper is frozen, or the store is out of reach), when the wrapper has died, or when the lock is
//!   lost;
//! - the *shim* becomes the command, after it has asked the kernel to kill it when the supervisor dies.
//!
//! The wrapper keeps the same deadline as the supervisor, half a margin later. It terminates the supervisor and the
//! group when the supervisor is frozen or dead. Neither process waits for the other, or for the readers of stderr.

#[cfg(unix)]
pub(crate) mod boot;
#[cfg(unix)]
mod events;
#[cfg(unix)]
mod group;
#[cfg(unix)]
mod lead;
#[cfg(unix)]
mod link;
#[cfg(unix)]
mod once;
#[cfg(unix)]
mod orders;
#[cfg(unix)]
mod plan;
#[cfg(unix)]
mod running;
#[cfg(unix)]
mod shim;
#[cfg(unix)]
pub(crate) mod signals;
#[cfg(unix)]
mod supervisor;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod wrapper;

#[cfg(unix)]
pub(crate) use {lead::lead, once::once, shim::exec, supervisor::supervise, wrapper::run};

#[cfg(not(unix))]
mod elsewhere {
    use std::time::Duration;

    use crate::args::{ExecArgs, JobArgs, StoreArgs};
    use crate::exit::{Failure, Outcome};
    use crate::lead::LeadArgs;
    use crate::once::OnceArgs;

    fn unsupported() -> Failure {
        Failure::usage(
            "running commands needs process groups and signals: not supported on this system",
        )
    }

    pub(crate) fn run(_: &StoreArgs, _: Option<Duration>, _: &JobArgs) -> Outcome {
        Err(unsupported())
    }

    pub(crate) fn once(_: &StoreArgs, _: &OnceArgs) -> Outcome {
        Err(unsupported())
    }

    pub(crate) fn lead(_: &StoreArgs, _: &LeadArgs) -> Outcome {
        Err(unsupported())
    }

    pub(crate) fn supervise() -> Outcome {
        Err(unsupported())
    }

    pub(crate) fn exec(_: ExecArgs) -> Outcome {
        Err(unsupported())
    }
}
#[cfg(not(unix))]
pub(crate) use elsewhere::{exec, lead, once, run, supervise};
