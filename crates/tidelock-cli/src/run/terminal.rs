//! The terminal: which process group is in the foreground, reads from it and gets its Ctrl-C.

use std::fs::File;
use std::io::IsTerminal;

use nix::sys::signal::{SigSet, Signal as Number};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, kill_process_group, test_kill_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The controlling terminal of this process, regardless of its standard streams.
fn open() -> Option<File> {
    File::options().read(true).write(true).open("/dev/tty").ok()
}

/// Puts a group into the foreground. If this fails, the terminal stays unchanged, and the shell restores it.
pub(crate) fn give_to(group: Pid) {
    if let Some(terminal) = open() {
        put_in_front(&terminal, group);
    }
}

fn put_in_front(terminal: &File, group: Pid) {
    // From the background, SIGTTOU would stop the process.
    let _ = SigSet::from(Number::SIGTTOU).thread_block();
    let _ = tcsetpgrp(terminal, group);
}

/// The wrapper's view of the terminal.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The terminal's settings before the command could change them. `None`: it was not ours yet. A shell that reads a line has
    /// settings of its own.
    before: Option<Termios>,
    /// The command's group is in the foreground.
    given: bool,
    /// The command is stopped because it needs the terminal.
    wanted: bool,
    /// The command did not get the terminal at the start: other processes of this group may want it.
    is_shared: bool,
}

impl Turn {
    /// The command gets the terminal at once if this process has it, unless stdout is a pipe. In a pipeline other
    /// processes are in the foreground too (a pager, say), and this would stop them. There the command gets the
    /// terminal when it needs it.
    pub(crate) fn at_start() -> Self {
        let given = all_ours();
        Self {
            before: settings_if_ours(),
            given,
            wanted: false,
            is_shared: !given,
        }
    }

    /// Whether the command's group is in the foreground.
    pub(crate) fn is_given(&self) -> bool {
        self.given
    }

    /// The terminal has stopped the command. `true`: this is the first stop since the command last had the terminal.
    pub(crate) fn want(&mut self) -> bool {
        !std::mem::replace(&mut self.wanted, true)
    }

    /// Gives the terminal to the command if the command waits for it and this process has it. This process may have it
    /// from the start, in a pipeline, or after `fg`, which sends no notification. `true`: the command may continue.
    pub(crate) fn give_if_wanted(&mut self, group: Pid) -> bool {
        if !self.wanted {
            return false;
        }
        let front = open().and_then(|terminal| tcgetpgrp(terminal).ok());
        self.given = front == Some(getpgrp()) || front == Some(group);
        self.note_settings();
        self.wanted = !self.given;
        if self.given {
            give_to(group);
        }
        self.given
    }

    /// After `fg` of a job that was stopped as a whole, gives the terminal to the command. `true`: the command has it
    /// now.
    pub(crate) fn give_if_ours(&mut self, group: Pid) -> bool {
        if self.given || !all_ours() {
            return false;
        }
        (self.given, self.wanted) = (true, false);
        self.note_settings();
        give_to(group);
        true
    }

    /// A process of this group has read the terminal while the command has it, as a pager does in a pipeline, and was stopped. It gets
    /// the terminal, and the command again when it reads. Otherwise the command could wait for good for the pager to read its output.
    pub(crate) fn lend_to_ours(&mut self, group: Pid) {
        let Some(terminal) = self.given.then(open).flatten() else {
            return;
        };
        if tcgetpgrp(&terminal) == Ok(group) {
            self.given = false;
            put_in_front(&terminal, getpgrp());
            continue_ours();
        }
    }

    fn note_settings(&mut self) {
        if self.before.is_none() {
            self.before = settings_if_ours();
        }
    }

    /// Takes the foreground back when the command has ended, unless somebody else has it now: the shell, after `bg`. `mend`:
    /// restores the terminal's settings, because the command could not do it itself; a shell does the same after such a death.
    pub(crate) fn take_back(&self, group: Option<Pid>, mend: bool) {
        let Some(terminal) = self.given.then(open).flatten() else {
            return;
        };
        let is_of_others = |front: &Pid| {
            let is_alive = test_kill_process_group(*front) != Err(Errno::SRCH);
            ![Some(getpgrp()), group].contains(&Some(*front)) && is_alive
        };
        if tcgetpgrp(&terminal).is_ok_and(|front| is_of_others(&front)) {
            return;
        }
        put_in_front(&terminal, getpgrp());
        if let Some(before) = self.before.as_ref().filter(|_| mend) {
            let _ = tcsetattr(terminal, OptionalActions::Now, before);
        }
        if self.is_shared {
            // A pager may have read the terminal in the last moment, and was stopped.
            continue_ours();
        }
    }
}

/// Whether this process group is in the foreground of its terminal, with both stdin and stdout on a terminal.
fn all_ours() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && is_in_front()
}

/// Whether this process group is in the foreground of its terminal.
pub(crate) fn is_in_front() -> bool {
    in_front().is_some()
}

/// The terminal, if this process group is in its foreground.
fn in_front() -> Option<File> {
    open().filter(|terminal| tcgetpgrp(terminal).is_ok_and(|front| front == getpgrp()))
}

fn settings_if_ours() -> Option<Termios> {
    in_front().and_then(|terminal| tcgetattr(terminal).ok())
}

/// Continues the processes of this process's own group.
pub(crate) fn continue_ours() {
    let _ = kill_process_group(getpgrp(), Signal::CONT);
}
