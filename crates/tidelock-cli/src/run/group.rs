//! The command's process group.

use std::process::ExitStatus;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid,
};

use super::link::News;

/// What is said of a group that cannot be ended.
pub(crate) const BEYOND_OUR_RIGHTS: &str = "something the command has started runs as another user, and may not be ended by this one; start tidelock as that user instead";

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

    /// Sends a signal to all in the group. A failure means that there is nobody, or nobody whom this user may signal.
    pub(crate) fn signal(self, signal: Signal) -> Result<(), Errno> {
        kill_process_group(self.0, signal)
    }

    /// Asks all to end; what is stopped must go on to hear it.
    pub(crate) fn ask_to_end(self) {
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = self.signal(signal);
        }
    }

    /// Ends all at once. `false`: somebody is there whom this user may not signal.
    pub(crate) fn kill(self) -> bool {
        self.signal(Signal::KILL) != Err(Errno::PERM)
    }

    /// Whether nobody is left, after having collected what is dead. Whoever may not be signalled is left.
    pub(crate) fn is_gone(self) -> bool {
        while let Ok(Some(_)) = waitid(
            WaitId::Pgid(Some(self.0)),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        ) {}
        test_kill_process_group(self.0) == Err(Errno::SRCH)
    }

    /// Whether a child of this process is in it, dead or alive. As long as one is, no other group can have its number. Where
    /// orphans cannot be adopted, this cannot be known, and there may be one.
    pub(crate) fn has_a_child(self) -> bool {
        if !cfg!(target_os = "linux") {
            return true;
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pgid(Some(self.0)), look), Err(Errno::CHILD))
    }

    /// Collects the leader, if it is a child of this process and dead.
    pub(crate) fn collect_leader(self) -> Option<News> {
        let status = waitid(
            WaitId::Pid(self.0),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
        let status = status.ok().flatten()?;
        let code = status.exit_status().map(News::Exited);
        code.or_else(|| status.terminating_signal().map(News::Killed))
    }
}

/// Collects children of this process that are dead. `true`: there are no others.
pub(crate) fn no_child_is_left() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    loop {
        match waitid(WaitId::All, look) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
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
            Err(Errno::INTR) | Ok(None) => {}
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
