//! The shim: has the kernel kill it when the supervisor dies, then executes the command in its own process.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, kill_process};

use super::{boot, signals, terminal};
use crate::args::ExecArgs;
use crate::exit::{self, Failure, Outcome};

/// Executes the command in this process. Returns only on failure.
pub(crate) fn exec(args: ExecArgs) -> Outcome {
    boot::die_with_parent();
    let parent = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if parent != Some(args.parent) {
        // The supervisor died before the kernel registered the death signal, so its death did not kill us. We do it
        // ourselves.
        let _ = kill_process(getpid(), Signal::KILL);
    }
    // Stops until the wrapper knows this group; then the supervisor continues it.
    let _ = kill_process(getpid(), Signal::STOP);
    if args.terminal {
        terminal::give_to(getpid());
    }
    let mut words = args.command.into_iter();
    let Some(program) = words.next() else {
        return Err(Failure::usage(format!("{}: no command", args.name)));
    };
    // The command must not inherit blocked signals.
    signals::hear_again();
    let error = Command::new(&program).args(words).exec();
    let code = match error.kind() {
        ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::CANNOT_EXECUTE,
    };
    Err(Failure::new(
        code,
        format!(
            "{}: cannot run {}: {error}",
            args.name,
            program.to_string_lossy()
        ),
    ))
}
