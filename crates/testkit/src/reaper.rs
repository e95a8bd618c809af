//! Ends what a test process leaves behind when it is itself killed, or keeps in a `static` that is never dropped, and
//! removes its directories.
//!
//! `PR_SET_PDEATHSIG` would need `unsafe`, and fires when the *thread* that started the server ends, which for a
//! server shared by several tests is too early. So one shell per test process reads the ids of our children from a pipe
//! and kills those still listed when the pipe closes, however that comes about. Then it removes their directories, which
//! may lie in memory.

use std::fmt::Display;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result};

const SCRIPT: &str = r#"
trap '' INT TERM HUP
pids=" "
set --
while read -r sign what; do
  case "$sign" in
    add) pids="$pids$what " ;;
    del) case "$pids" in *" $what "*) pids="${pids%% $what *} ${pids#* $what }" ;; esac ;;
    dir) set -- "$@" "$what" ;;
  esac
done
for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
[ $# = 0 ] || rm -rf -- "$@" || { sleep 1; rm -rf -- "$@"; }
"#;

fn pipe() -> Result<&'static Mutex<ChildStdin>> {
    static PIPE: OnceLock<Option<Mutex<ChildStdin>>> = OnceLock::new();
    PIPE.get_or_init(|| {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C goes to the whole group of the terminal; this one must outlive it.
            .process_group(0)
            .spawn()
            .ok()?;
        shell.stdin.take().map(Mutex::new)
    })
    .as_ref()
    .context("the shell that cleans up after killed tests did not start")
}

fn tell(word: &str, what: impl Display) -> Result<()> {
    let mut pipe = pipe()?.lock().unwrap_or_else(PoisonError::into_inner);
    pipe.write_all(format!("{word} {what}\n").as_bytes())
        .context("the shell that cleans up after killed tests is gone")
}

/// From now on `pid` dies with this process.
pub(crate) fn watch(pid: u32) -> Result<()> {
    tell("add", pid)
}

/// `pid` has been waited for; its number may soon belong to somebody else.
pub(crate) fn forget(pid: u32) {
    // Too late to matter: without the shell nobody would kill the number either.
    let _ = tell("del", pid);
}

/// This directory goes with this process, if it has not gone before.
pub(crate) fn watch_dir(dir: &Path) -> Result<()> {
    tell("dir", dir.display())
}
