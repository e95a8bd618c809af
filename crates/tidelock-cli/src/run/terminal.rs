//! The terminal: whose turn it is to read from it and to get its Ctrl-C.

use std::io::IsTerminal;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::signals;

/// Whether this process is in the foreground of a terminal that a command of its own should get. Not with stdout in a pipe:
/// then others of the pipeline are in the foreground too (a pager, say), and would be stopped.
pub(crate) fn is_ours() -> bool {
    let input = std::io::stdin();
    input.is_terminal()
        && std::io::stdout().is_terminal()
        && tcgetpgrp(&input).is_ok_and(|front| front == getpgrp())
}

/// Puts a group into the foreground. A failure leaves the terminal as it is, which the shell mends.
pub(crate) fn give_to(group: Pid) {
    signals::may_set_foreground();
    let _ = tcsetpgrp(std::io::stdin(), group);
}

/// Takes the foreground back.
pub(crate) fn take_back() {
    give_to(getpgrp());
}
