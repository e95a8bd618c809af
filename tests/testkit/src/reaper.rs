//! Cleans up when a test process is killed, or when it keeps a server in a `static` that is never dropped: it kills the
//! remaining child processes and removes their directories and network namespaces.
//!
//! `PR_SET_PDEATHSIG` would need `unsafe`, and it fires when the *thread* that started the server ends. That is too
//! early for a server that several tests share. Instead, one shell per test process reads the ids of our children from
//! a pipe. When the pipe closes for any reason, the shell kills the children that are still listed and removes their
//! directories, which may be in memory.

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
nets=
set --
while read -r sign what; do
  case "$sign" in
    add) pids="$pids$what " ;;
    del) case "$pids" in *" $what "*) pids="${pids%% $what *} ${pids#* $what }" ;; esac ;;
    dir) set -- "$@" "$what" ;;
    net) nets="$nets $what" ;;
  esac
done
for pid in $pids; do kill -KILL "$pid" 2>/dev/null; done
for net in $nets; do [ -e "/run/netns/$net" ] && ip netns del "$net"; done
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
            // Ctrl-C signals the terminal's whole process group. The shell gets a group of its own so that it survives.
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

/// The process has been reaped. We must remove its id from the list, because the kernel may reuse the id.
pub(crate) fn forget(pid: u32) {
    // We ignore an error: without the shell, nothing would kill the id either.
    let _ = tell("del", pid);
}

/// This directory is removed at the end of this process, if it still exists.
pub(crate) fn watch_dir(dir: &Path) -> Result<()> {
    tell("dir", dir.display())
}

/// This network namespace is removed at the end of this process, if it still exists.
pub(crate) fn watch_namespace(name: &str) -> Result<()> {
    tell("net", name)
}
