//! `tidelock run`: a command under a lock.
//!
//! Three processes, so that no single one can let the command outlive the lease:
//!
//! - this one, the *wrapper*, takes the lock, keeps it, and tells the supervisor the newest proved deadline;
//! - the *supervisor* owns the command's process group and ends it in time before the deadline: when the news stop (the
//!   wrapper is frozen, or the store out of reach), when the wrapper is gone, or when the lock is lost;
//! - the *shim* becomes the command, after it has tied its own life to the supervisor's.
//!
//! The wrapper keeps the same deadline as the supervisor, half a margin later: it ends the supervisor and the group when the
//! supervisor is frozen or dead. Neither waits for the other, nor for whoever reads what is said.

#[cfg(unix)]
pub(crate) mod boot;
#[cfg(unix)]
mod group;
#[cfg(unix)]
mod hearing;
#[cfg(unix)]
mod link;
#[cfg(unix)]
mod orders;
#[cfg(unix)]
mod plan;
#[cfg(unix)]
mod running;
#[cfg(unix)]
mod shim;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod supervisor;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod wrapper;

#[cfg(unix)]
pub(crate) use {shim::exec, supervisor::supervise, wrapper::run};

#[cfg(not(unix))]
mod elsewhere {
    use std::time::Duration;

    use crate::args::{ExecArgs, JobArgs, StoreArgs};
    use crate::exit::{Failure, Outcome};

    fn unsupported() -> Failure {
        Failure::usage(
            "running commands needs process groups and signals: not supported on this system",
        )
    }

    pub(crate) fn run(_: &StoreArgs, _: Option<Duration>, _: &JobArgs) -> Outcome {
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
pub(crate) use elsewhere::{exec, run, supervise};
