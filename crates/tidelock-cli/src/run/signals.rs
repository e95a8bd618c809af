//! Signals: which are handed on, and which the supervisor does not hear.

use std::pin::Pin;

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::boot;

/// What is handed on to the command.
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

/// Those of them that end a program which does nothing about them.
const DEADLY: [Number; 6] = [
    Number::SIGINT,
    Number::SIGTERM,
    Number::SIGHUP,
    Number::SIGQUIT,
    Number::SIGUSR1,
    Number::SIGUSR2,
];

/// The signals this process gets.
pub(crate) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// From now on these signals do not do what they do by themselves. What was ignored at start stays ignored.
    pub(crate) fn catch() -> std::io::Result<Self> {
        let mut caught = Vec::new();
        for number in FORWARDED.map(|signal| signal as i32) {
            if !boot::ignored_at_start(number) {
                caught.push((number, signal(SignalKind::from_raw(number))?));
            }
        }
        Ok(Self(caught))
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|cx| {
            for (number, signal) in &mut self.0 {
                if Pin::new(signal).poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// The next one that ends a program: for the time before the command runs.
    pub(crate) async fn deadly(&mut self) -> i32 {
        loop {
            let number = self.next().await;
            if DEADLY.iter().any(|deadly| *deadly as i32 == number) {
                return number;
            }
        }
    }
}

/// Keeps this thread, and those it starts, from hearing what the terminal or a sweeping `pkill` says. Blocked, not ignored:
/// what a process ignores, its command would ignore as well. The shim hears again, before it becomes the command.
pub(crate) fn hear_nothing() {
    // Fails for no valid set.
    let _ = deaf().thread_block();
}

/// Undoes [`hear_nothing`], which children inherit, and [`may_set_foreground`].
pub(crate) fn hear_again() {
    let _ = deaf().thread_unblock();
}

fn deaf() -> SigSet {
    let mut deaf: SigSet = FORWARDED.into_iter().collect();
    deaf.extend([Number::SIGTTOU, Number::SIGTTIN, Number::SIGPIPE]);
    deaf
}

/// Lets this thread set the terminal's foreground group from the background, which would stop it otherwise.
pub(crate) fn may_set_foreground() {
    let _ = SigSet::from(Number::SIGTTOU).thread_block();
}
