//! The command's process group: signals, and reaping its processes.

use std::convert::Infallible;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process_group, test_kill_process_group,
    waitid,
};
use tokio::signal::unix::{SignalKind, signal};

use super::link::News;

/// The message for a group that cannot be terminated.
pub(crate) const BEYOND_OUR_RIGHTS: &str = "a process that the command has started runs as another user and cannot be terminated; start tidelock as that user instead";

/// How often to reap orphans.
pub(crate) const REAP: Duration = Duration::from_secs(1);

/// A process group, identified by its leader.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(Pid);

impl Group {
    /// `None` if the number cannot be a group.
    pub(crate) fn of(leader: i32) -> Option<Self> {
        // 1 is init, and `kill` treats a group of 0 or 1 as "my group" or "every process".
        Pid::from_raw(leader)
            .filter(|pid| pid.as_raw_nonzero().get() > 1)
            .map(Self)
    }

    pub(crate) fn leader(self) -> Pid {
        self.0
    }

    /// Sends a signal to all processes in the group. It fails if the group is empty, or if this user may signal none of
    /// them.
    pub(crate) fn signal(self, signal: Signal) -> Result<(), Errno> {
        kill_process_group(self.0, signal)
    }

    /// Asks all processes to terminate. CONT follows TERM, because a stopped process handles TERM only after it
    /// continues.
    pub(crate) fn ask_to_end(self) {
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = self.signal(signal);
        }
    }

    /// Kills all processes at once. `false`: there are processes that this user may not signal.
    pub(crate) fn kill(self) -> bool {
        self.signal(Signal::KILL) != Err(Errno::PERM)
    }

    /// Whether this process is in the group, dead or alive.
    pub(crate) fn has(self, process: Pid) -> bool {
        getpgid(Some(process)) == Ok(self.0)
    }

    /// Reaps dead children, and returns whether the group is empty. A process that we may not signal counts as alive.
    pub(crate) fn is_gone(self) -> bool {
        while let Ok(Some(_)) = waitid(
            WaitId::Pgid(Some(self.0)),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        ) {}
        test_kill_process_group(self.0) == Err(Errno::SRCH)
    }

    /// Whether the group contains a child of this process, dead or alive. While it does, the kernel cannot reuse the
    /// group's number. Where a process cannot adopt orphans we cannot know, and answer `true`.
    pub(crate) fn has_a_child(self) -> bool {
        if !cfg!(target_os = "linux") {
            return true;
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pgid(Some(self.0)), look), Err(Errno::CHILD))
    }

    /// Reaps the leader, if it is a dead child of this process, and returns how it ended.
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

/// Reaps dead children of this process. `true`: there are no other children.
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

/// A state change of a watched child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// This signal stopped it.
    Stopped(i32),
    /// It is dead and not yet reaped, so the kernel cannot reuse its number.
    Dead,
}

/// Waits until the leader stops or dies. Reaps meanwhile all other dead children: this process adopts the orphans of the
/// command, which would otherwise be zombies until the command ends, and at some number of them it could not fork.
pub(crate) fn watch(leader: Pid) -> Change {
    let any = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    loop {
        match waitid(WaitId::All, any) {
            Ok(Some(_)) => {
                if let Some(change) = change_of(leader, WaitIdOptions::NOHANG) {
                    return change;
                }
                if !reap_others(|child| child == leader) {
                    break; // this kernel does not say which child it is: `waitid` would name it again at once
                }
            }
            Err(Errno::INTR) | Ok(None) => {}
            Err(_) => return Change::Dead,
        }
    }
    loop {
        if let Some(change) = change_of(leader, WaitIdOptions::empty()) {
            return change;
        }
    }
}

/// How the leader has changed. `None`: not yet, or a signal came.
fn change_of(leader: Pid, how: WaitIdOptions) -> Option<Change> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | how;
    match waitid(WaitId::Pid(leader), options) {
        Ok(Some(status)) if status.stopped() || status.trapped() => {
            // We consume the event; otherwise `waitid` would report the same stop again and again.
            let _ = waitid(
                WaitId::Pid(leader),
                WaitIdOptions::STOPPED | WaitIdOptions::NOHANG,
            );
            Some(Change::Stopped(
                status.stopping_signal().unwrap_or_default(),
            ))
        }
        Err(Errno::INTR) | Ok(None) => None,
        Ok(Some(_)) | Err(_) => Some(Change::Dead),
    }
}

/// Reaps the dead children of this process, except those to keep. `false`: there were none, or this kernel does not list
/// the children.
pub(crate) fn reap_others(keep: impl Fn(Pid) -> bool) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    let mut reaped = false;
    for child in children().into_iter().filter(|child| !keep(*child)) {
        reaped |= matches!(waitid(WaitId::Pid(child), options), Ok(Some(_)));
    }
    reaped
}

/// Reaps what other processes leave to this one, for the time in which it has no command. It sleeps until a child ends,
/// because many processes may wait on one machine.
pub(crate) async fn reap_orphans() -> Infallible {
    // We listen before we look. Otherwise a child that ends in between would stay.
    let Ok(mut ends) = signal(SignalKind::child()) else {
        return std::future::pending().await;
    };
    loop {
        reap_others(|_| false);
        if ends.recv().await.is_none() {
            return std::future::pending().await;
        }
    }
}

/// The children of this process, dead ones too. Empty where the kernel does not list them.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            let pids = list.split_ascii_whitespace();
            let pids = pids.filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw));
            pids.collect::<Vec<_>>()
        })
        .collect()
}

/// The exit status of a command as a message.
pub(crate) fn ended(status: ExitStatus) -> News {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => News::Exited(code),
        (None, signal) => News::Killed(signal.unwrap_or(9)),
    }
}
