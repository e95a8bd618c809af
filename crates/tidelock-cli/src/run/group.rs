//! The command's process group.

use std::process::ExitStatus;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};

use super::link::News;

/// A process group, by the process that leads it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(Pid);

impl Group {
    /// `None` for a number that is no process.
    pub(crate) fn of(leader: i32) -> Option<Self> {
        // 1 is init, and a group of 0 or 1 would mean "mine" or "everybody".
        Pid::from_raw(leader)
            .filter(|pid| pid.as_raw_nonzero().get() > 1)
            .map(Self)
    }

    pub(crate) fn leader(self) -> Pid {
        self.0
    }

    /// Sends a signal to all in the group. A failure means that there is nobody.
    pub(crate) fn signal(self, signal: Signal) {
        let _ = kill_process_group(self.0, signal);
    }

    /// Asks all to end; what is stopped must go on to hear it.
    pub(crate) fn ask_to_end(self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Whether anybody is left, after having collected what is dead.
    pub(crate) fn is_gone(self) -> bool {
        while let Ok(Some(_)) = waitid(
            WaitId::Pgid(Some(self.0)),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        ) {}
        test_kill_process_group(self.0).is_err()
    }
}

/// What a watched child did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// This signal stopped it.
    Stopped(i32),
    /// It is dead, and not yet collected: its number cannot belong to anybody else.
    Dead,
}

/// Waits until the leader stops or dies.
pub(crate) fn watch(leader: Pid) -> Change {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::Pid(leader), options) {
            Ok(Some(status)) if status.stopped() || status.trapped() => {
                // Taken away, or it would be told again and again.
                let _ = waitid(
                    WaitId::Pid(leader),
                    WaitIdOptions::STOPPED | WaitIdOptions::NOHANG,
                );
                return Change::Stopped(status.stopping_signal().unwrap_or_default());
            }
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Change::Dead,
        }
    }
}

/// How a command ended, as news.
pub(crate) fn ended(status: ExitStatus) -> News {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => News::Exited(code),
        (None, signal) => News::Killed(signal.unwrap_or(9)),
    }
}
