//! Signals: which ones the wrapper forwards to the command, and which ones the supervisor blocks.

use std::pin::Pin;

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{boot, terminal};
use crate::exit::say;

/// The signals that are forwarded to the command.
const FORWARDED: [Number; 9] = [
    Number::SIGINT,
    Number::SIGTERM,
    Number::SIGHUP,
    Number::SIGQUIT,
    Number::SIGUSR1,
    Number::SIGUSR2,
    Number::SIGWINCH,
    Number::SIGTSTP,
    Number::SIGCONT,
];

/// The forwarded signals with a default action that terminates a process.
const DEADLY: [Number; 6] = [
    Number::SIGINT,
    Number::SIGTERM,
    Number::SIGHUP,
    Number::SIGQUIT,
    Number::SIGUSR1,
    Number::SIGUSR2,
];

/// The signals that ask a process to end. The others that terminate by default may have a meaning for the command: HUP
/// often asks it to read its configuration again, and QUIT asks a JVM for the stacks of its threads.
const ENDING: [Number; 2] = [Number::SIGINT, Number::SIGTERM];

/// Those that may have a meaning for a command which runs, and have none for one that is being terminated: the terminal
/// has gone, or a user has pressed Ctrl-\.
const ENDING_WITH_THE_COMMAND: [Number; 2] = [Number::SIGHUP, Number::SIGQUIT];

/// The caught signals of this process.
pub(crate) struct Signals {
    caught: Vec<(i32, Signal)>,
    ended_by: Option<i32>,
    /// Never read: a signal that is caught has its default action in the processes that this one starts.
    _child: Signal,
}

impl Signals {
    /// Replaces the default actions of the signals that are forwarded, and of TTIN, which would stop this process. A signal that was ignored at start stays ignored, except CHLD: then
    /// the kernel would reap the command, and nobody would learn its exit code. (The standard library gives PIPE its default action
    /// in each process that it starts.)
    pub(crate) fn catch() -> std::io::Result<Self> {
        let mut caught = Vec::new();
        // TTIN tells that another process of this group has read the terminal in the background.
        let all = FORWARDED.into_iter().chain([Number::SIGTTIN]);
        for number in all.map(|signal| signal as i32) {
            if !boot::ignored_at_start(number) {
                caught.push((number, signal(SignalKind::from_raw(number))?));
            }
        }
        Ok(Self {
            caught,
            ended_by: None,
            _child: signal(SignalKind::child())?,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> i32 {
        let number = std::future::poll_fn(|cx| {
            for (number, signal) in &mut self.caught {
                if Pin::new(signal).poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await;
        if ENDING.iter().any(|ending| *ending as i32 == number) {
            self.ended_by = Some(number);
        }
        number
    }

    /// This signal came while the command is being terminated. HUP and QUIT ask this process to end then.
    pub(crate) fn came_with_the_end(&mut self, number: i32) {
        if ENDING_WITH_THE_COMMAND
            .iter()
            .any(|ending| *ending as i32 == number)
        {
            self.ended_by = Some(number);
        }
    }

    /// The signal that has asked this process to end, if one came.
    pub(crate) fn ended_by(&self) -> Option<i32> {
        self.ended_by
    }

    /// Waits for the next signal that terminates a process by default. For the time when no command runs.
    pub(crate) async fn deadly(&mut self) -> i32 {
        loop {
            let number = self.next().await;
            if number == Number::SIGTSTP as i32 && terminal::is_in_front() {
                // Ctrl-Z has stopped the rest of a pipeline, and the shell would wait for this process.
                terminal::continue_ours();
                say("not stopped: a stopped process would keep the lock");
            }
            if DEADLY.iter().any(|deadly| *deadly as i32 == number) {
                return number;
            }
        }
    }
}

/// Blocks, for this thread and the threads it starts, the signals of the terminal and of a broad `pkill`. Blocked, not
/// ignored: the command would inherit ignored signals. The shim unblocks them before it executes the command.
pub(crate) fn hear_nothing() {
    // Cannot fail for a valid set.
    let _ = deaf().thread_block();
}

/// Undoes [`hear_nothing`], which child processes inherit, and what [`terminal::give_to`] blocks.
pub(crate) fn hear_again() {
    let _ = deaf().thread_unblock();
}

fn deaf() -> SigSet {
    let mut deaf: SigSet = FORWARDED.into_iter().collect();
    deaf.extend([Number::SIGTTOU, Number::SIGTTIN, Number::SIGPIPE]);
    deaf
}

/// Lets this thread, and the threads it starts, use the terminal in the background: a read fails, and a write succeeds.
/// Otherwise SIGTTIN, or SIGTTOU after `stty tostop`, would stop the whole process, and it could not renew its lock. Child processes inherit this.
pub(crate) fn go_on_in_background() {
    let of_terminal: SigSet = [Number::SIGTTIN, Number::SIGTTOU].into_iter().collect();
    let _ = of_terminal.thread_block();
}
