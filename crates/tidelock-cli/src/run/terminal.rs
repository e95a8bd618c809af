//! The terminal: whose turn it is to read from it and to get its Ctrl-C.

use std::fs::File;
use std::io::IsTerminal;

use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::signals;

/// The terminal this process belongs to, wherever its streams lead.
fn open() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

/// Puts a group into the foreground. A failure leaves the terminal as it is, which the shell mends.
pub(crate) fn give_to(group: Pid) {
    if let Some(terminal) = open() {
        put_in_front(&terminal, group);
    }
}

fn put_in_front(terminal: &File, group: Pid) {
    signals::may_set_foreground();
    let _ = tcsetpgrp(terminal, group);
}

/// What the wrapper knows of the terminal.
#[derive(Debug)]
pub(crate) struct Turn {
    /// How the terminal was set before the command could change it.
    before: Option<Termios>,
    /// The command has it.
    given: bool,
    /// The command stands still because it wants it.
    wanted: bool,
}

impl Turn {
    /// The command gets the terminal at once if this process has it. Not with stdout in a pipe: then others of the pipeline
    /// are in the foreground too (a pager, say), and would be stopped. There it gets it when it wants it.
    pub(crate) fn at_start() -> Self {
        Self {
            before: open().and_then(|terminal| tcgetattr(terminal).ok()),
            given: all_ours(),
            wanted: false,
        }
    }

    /// The command has it.
    pub(crate) fn is_given(&self) -> bool {
        self.given
    }

    /// The terminal has stopped the command. `true`: it has not been told yet that it waits for the terminal.
    pub(crate) fn want(&mut self) -> bool {
        !std::mem::replace(&mut self.wanted, true)
    }

    /// Hands the terminal over if the command waits for it and this process has it: from the start on in a pipeline, or
    /// because it was brought to the foreground, of which nobody is told. `true`: the command may go on.
    pub(crate) fn give_if_wanted(&mut self, group: Pid) -> bool {
        if !self.wanted {
            return false;
        }
        let front = open().and_then(|terminal| tcgetpgrp(terminal).ok());
        self.given = front == Some(getpgrp()) || front == Some(group);
        self.wanted = !self.given;
        if self.given {
            give_to(group);
        }
        self.given
    }

    /// `fg`, after the whole job was stopped: the command's turn. `true`: it has it now.
    pub(crate) fn give_if_ours(&mut self, group: Pid) -> bool {
        if self.given || !all_ours() {
            return false;
        }
        (self.given, self.wanted) = (true, false);
        give_to(group);
        true
    }

    /// Takes the foreground back when the command has ended. `mend`: it could not put the terminal in order by itself, so
    /// that is done here, as a shell would do if it saw that death.
    pub(crate) fn take_back(&self, mend: bool) {
        let Some(terminal) = self.given.then(open).flatten() else {
            return;
        };
        put_in_front(&terminal, getpgrp());
        if let Some(before) = self.before.as_ref().filter(|_| mend) {
            let _ = tcsetattr(terminal, OptionalActions::Now, before);
        }
    }
}

/// This process is in the foreground of its terminal, and both reads from it and writes to it.
fn all_ours() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && open().is_some_and(|terminal| tcgetpgrp(terminal).is_ok_and(|front| front == getpgrp()))
}
