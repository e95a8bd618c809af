//! The screen of `tidelock top` at a terminal that people use: tmux shows, line by line, what a person would see there. The
//! pictures come from a recording, so each screen is known to the last letter.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{SOON, tidelock};

/// Starts `top`, and says afterwards how it ended and whether the terminal is as it was.
const SCRIPT: &str = r#"before=$(stty -g)
sh -c 'echo $$ > "$pid"; exec "$bin" top --every 1h --replay "$recording"'
echo "code $?"
test "$before" = "$(stty -g)" && echo as it was
cat"#;

/// A server of tmux with one window.
struct Tmux {
    folder: TempDir,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/tmux")
}

fn say(mut tmux: Command) -> Result<String> {
    let said = tmux
        .output()
        .context("tmux: run `cargo xtask servers`, which installs it")?;
    let error = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{tmux:?}: {error}");
    Ok(String::from_utf8(said.stdout)?)
}

impl Tmux {
    /// Starts `top` in a window of this size.
    fn open((width, height): (u16, u16)) -> Result<Self> {
        let tmux = Self {
            folder: tempfile::tempdir()?,
        };
        let (width, height) = (width.to_string(), height.to_string());
        let mut start = tmux.command()?;
        start
            .args(["-f", "/dev/null", "new-session", "-d"])
            .args(["-x", &width, "-y", &height, "sh", "-c", SCRIPT]);
        say(start)?;
        Ok(tmux)
    }

    /// tmux, in the environment of the command. The window gets that of the first one.
    fn command(&self) -> Result<Command> {
        let mut tmux = Command::new("tmux");
        for (name, value) in tidelock("redis://cache-1", &[])?.get_envs() {
            match value {
                Some(value) => tmux.env(name, value),
                None => tmux.env_remove(name),
            };
        }
        tmux.env("bin", testkit::tidelock_bin()?)
            .env("pid", self.folder.path().join("pid"))
            .env("recording", folder().join("recording.jsonl"))
            .env("LC_ALL", "C.UTF-8")
            .env("NO_COLOR", "1")
            .env_remove("TMUX")
            .arg("-u")
            .arg("-S")
            .arg(self.folder.path().join("socket"));
        Ok(tmux)
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        let mut tmux = self.command()?;
        tmux.args(args);
        say(tmux)
    }

    fn press(&self, key: &str) -> Result<()> {
        self.ask(&["send-keys", key]).map(drop)
    }

    /// What the window shows, without the spaces at the ends of its lines.
    fn shown(&self) -> Result<String> {
        let shown = self.ask(&["capture-pane", "-p"])?;
        let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
        Ok(lines.join("\n").trim_end().to_owned())
    }

    /// Waits until the window shows it.
    fn until(&self, is_it: impl Fn(&str) -> bool) -> Result<String> {
        let begun = Instant::now();
        loop {
            let shown = self.shown()?;
            if is_it(&shown) {
                return Ok(shown);
            }
            ensure!(begun.elapsed() < SOON, "{shown}");
            // tmux tells nobody that a window has changed.
            std::thread::sleep(SOON / 1000);
        }
    }

    /// Waits until the window shows all of a file, and nothing else. With `TIDELOCK_WRITE_DOCS` the file is written: `sign`
    /// is a part of what it is to show.
    fn until_golden(&self, file: &str, sign: &str) -> Result<()> {
        let path = folder().join(file);
        if std::env::var_os("TIDELOCK_WRITE_DOCS").is_some() {
            let mut last = self.until(|shown| shown.contains(sign))?;
            // The rest of it may still be drawn.
            loop {
                std::thread::sleep(SOON / 40);
                let shown = self.shown()?;
                if std::mem::replace(&mut last, shown) == self.shown()? {
                    break;
                }
            }
            std::fs::write(&path, format!("{last}\n"))?;
        }
        let golden = std::fs::read_to_string(&path)?;
        ensure!(golden.contains(sign), "{file} shows something else");
        let is_golden = self.until(|shown| shown == golden.trim_end());
        is_golden.map(drop).with_context(|| golden.clone())
    }

    /// Waits until `top` has ended with this code. The terminal has to be as it was.
    fn until_end(&self, code: u8) -> Result<()> {
        let end = format!("code {code}\nas it was");
        let shown = self.until(|shown| shown.contains("code "))?;
        ensure!(self.until(|shown| shown.ends_with(&end)).is_ok(), "{shown}");
        let flags = ["display-message", "-p", "#{alternate_on} #{cursor_flag}"];
        let flags = self.ask(&flags)?;
        ensure!(flags == "0 1\n", "another screen, or no cursor: {flags}");
        // The terminal echoes the keys again.
        self.press("seen")?;
        self.until(|shown| shown.ends_with("seen")).map(drop)
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.ask(&["kill-server"]);
    }
}

#[test]
fn a_terminal_shows_each_view_in_its_size_and_is_as_it_was_after_q() -> Result<()> {
    let tmux = Tmux::open((120, 18))?;
    tmux.until_golden("locks.txt", "[1 Locks]")?;
    tmux.press("4")?;
    tmux.until_golden("leaders.txt", "[4 Leaders+once]")?;
    tmux.press("2")?;
    tmux.until_golden("queues.txt", "[2 Queues]")?;
    tmux.ask(&["resize-window", "-x", "72", "-y", "12"])?;
    tmux.until_golden("narrow.txt", "nothing, s  ")?;
    tmux.ask(&["resize-window", "-x", "120", "-y", "18"])?;
    tmux.until_golden("queues.txt", "[2 Queues]")?;
    tmux.press("q")?;
    tmux.until_end(0)
}

#[test]
fn a_terminal_is_as_it_was_after_a_signal() -> Result<()> {
    let tmux = Tmux::open((120, 18))?;
    tmux.until_golden("locks.txt", "[1 Locks]")?;
    let pid = std::fs::read_to_string(tmux.folder.path().join("pid"))?;
    testkit::process::terminate(pid.trim().parse()?)?;
    tmux.until_end(143)
}
