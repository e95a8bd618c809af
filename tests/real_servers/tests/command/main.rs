//! The `tidelock` command on real servers, as the release build that users run. Tests that do not depend on the store
//! are in the command's own crate, on SQLite.

mod connecting;
mod demo;
mod ending;
mod etcd;
mod keys;
mod leaving;
mod looking;
mod mysql;
mod once;
mod postgres;
mod running;
mod scanning;
mod screen;
mod secrets;
mod tmux;
mod top;
mod top_everywhere;
mod topologies;
mod web;
mod zookeeper;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::process::Spawned;
use testkit::servers::RedisServer;

/// A limit for steps that are much faster unless they hang.
const SOON: Duration = Duration::from_secs(20);

/// The output of a command, and its exit code.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    /// The JSON objects on stdout.
    fn objects(&self) -> Result<Vec<Value>> {
        let all = serde_json::Deserializer::from_str(&self.out).into_iter();
        all.map(|value| value.with_context(|| self.out.clone()))
            .collect()
    }

    /// Fails unless the exit code is `code` and stderr contains `words`.
    fn must(&self, code: i32, words: &str) -> Result<()> {
        ensure!(
            self.code == code && self.err.contains(words),
            "{code} {words:?}: {} {:?}",
            self.code,
            self.err
        );
        Ok(())
    }
}

/// A `tidelock` command line for this store. Environment variables that would affect it are unset.
fn tidelock(url: &str, args: &[&str]) -> Result<Command> {
    // A shell starts a background process with INT ignored, and `run` keeps that setting, so we reset it.
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,QUIT,TERM");
    command.arg(testkit::tidelock_bin()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDELOCK_") {
            command.env_remove(name);
        }
    }
    command.env("TIDELOCK_STORE", url).args(args);
    Ok(command)
}

/// Runs the command to its end.
fn say(url: &str, args: &[&str]) -> Result<Said> {
    ended(tidelock(url, args)?)
}

/// As [`say`], for a command that is refused and says why. It looks for the holder for a second; on a busy machine the look may
/// take longer, and then the command is run again, up to three times in all.
fn refused(url: &str, args: &[&str]) -> Result<Said> {
    let mut said = say(url, args)?;
    for _ in 0..2 {
        if !said.err.contains("the store does not say who holds it") {
            break;
        }
        said = say(url, args)?;
    }
    Ok(said)
}

/// What `show` tells of the lock `job` as soon as its holder is described there. A process describes itself in the background,
/// beside the grant.
fn shown_job(url: &str) -> Result<Value> {
    let begun = Instant::now();
    loop {
        let shown = say(url, &["show", "--json", "job"])?.objects()?;
        let lock = shown.into_iter().next().context("nothing is shown")?;
        if !lock["holders"][0]["program"].is_null() {
            return Ok(lock);
        }
        ensure!(
            begun.elapsed() < SOON,
            "its holder is not described: {lock}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ended(mut command: Command) -> Result<Said> {
    let output = command.stdin(Stdio::null()).output()?;
    Ok(Said {
        code: output.status.code().context("killed by a signal")?,
        out: String::from_utf8(output.stdout)?,
        err: String::from_utf8(output.stderr)?,
    })
}

/// Starts `tidelock run` with a shell script, and returns when the script has printed `in`.
fn run(server: &RedisServer, flags: &[&str], script: &str) -> Result<Spawned> {
    let args = [flags, &["run", "job", "--", "sh", "-c", script]].concat();
    let mut run = Spawned::start(tidelock(&server.url(), &args)?)?;
    run.wait_line("in", SOON)?;
    Ok(run)
}
