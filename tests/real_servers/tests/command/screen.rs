//! The screen of `tidelock top` on a server that hangs. Its keys are tested in the command's own crate.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use testkit::servers::RedisServer;

use crate::{SOON, tidelock};

/// A response timeout that no test waits for.
const LONG_MS: &str = "600000";

/// `tidelock top` at a terminal, which `script` provides.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    output: Receiver<Vec<u8>>,
    shown: Vec<u8>,
}

impl Terminal {
    fn open(server: &RedisServer) -> Result<Self> {
        let top = tidelock(&server.url(), &["top"])?;
        let mut script = Command::new("script");
        for (name, value) in top.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        let mut script = script
            .args(["-q", "-e", "-c"])
            .arg(r#"stty cols 140 rows 30; exec "$bin" top"#)
            .arg("/dev/null")
            .env("bin", testkit::tidelock_bin()?)
            .env("TIDELOCK_RESPONSE_TIMEOUT_MS", LONG_MS)
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let keys = script.stdin.take().context("no stdin")?;
        let mut out = script.stdout.take().context("no stdout")?;
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let shown = Vec::new();
        Ok(Self {
            script,
            keys,
            output,
            shown,
        })
    }

    /// Waits until these letters have been drawn side by side.
    fn until(&mut self, letters: &str) -> Result<()> {
        let begun = Instant::now();
        while !String::from_utf8_lossy(&self.shown).contains(letters) {
            let left = SOON.saturating_sub(begun.elapsed());
            let more = self.output.recv_timeout(left);
            let shown = || String::from_utf8_lossy(&self.shown).into_owned();
            let more = more.with_context(|| format!("no {letters:?}: {:?}", shown()))?;
            self.shown.extend(more);
        }
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Killing `script` closes the terminal, and with it `top` ends.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// A request is on its way whose answer would be awaited for minutes, and the connection can be closed in order only after it.
#[test]
fn the_screen_ends_after_q_although_the_store_hangs() -> Result<()> {
    let server = RedisServer::start()?;
    let mut terminal = Terminal::open(&server)?;
    terminal.until("contended")?;
    server.freeze()?;
    terminal.until("s old")?;
    terminal.keys.write_all(b"q")?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = terminal.script.try_wait()? {
            break status;
        }
        ensure!(begun.elapsed() < SOON, "it waits for the store");
        // No event tells of the end of a process that is also waited for in time.
        std::thread::sleep(SOON / 1000);
    };
    ensure!(status.success(), "{status}");
    Ok(())
}
