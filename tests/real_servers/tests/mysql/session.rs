//! A connection of the user, beside those of the client.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};

use anyhow::{Context, Result};
use testkit::servers::MariaDb;
use tidelock::FencedGuard;

use super::soon;

/// The user's own connection: a `mysql` process that reads statements and prints results.
pub(crate) struct Session {
    child: Child,
    stdin: ChildStdin,
    lines: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Session {
    pub(crate) fn open(server: &MariaDb) -> Result<Self> {
        let mut command = server.client();
        let command = command.arg("--force").stdin(Stdio::piped());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().context("a pipe")?;
        let (sender, lines) = tokio::sync::mpsc::unbounded_channel();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let readers: [Option<Box<dyn std::io::Read + Send>>; 2] = [
            out.map(|out| Box::new(out) as _),
            err.map(|err| Box::new(err) as _),
        ];
        for reader in readers.into_iter().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(reader).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Self {
            child,
            stdin,
            lines,
        })
    }

    /// Runs statements and returns the first line of the result.
    pub(crate) async fn ask(&mut self, sql: &str) -> Result<String> {
        writeln!(self.stdin, "{sql};")?;
        self.stdin.flush()?;
        soon("an answer", self.lines.recv())
            .await
            .context("no answer")
    }

    /// Begins a transaction with the fencing check. Returns the server's result.
    pub(crate) async fn begin(&mut self, guard: &FencedGuard) -> Result<String> {
        let fence = guard.sql_fence()?;
        let (name, token) = (fence.name.replace('\'', "''"), fence.token);
        self.ask(&format!(
            "SET @name = '{name}', @token = {token}; PREPARE fence FROM '{}'; START TRANSACTION; EXECUTE fence USING @name, @token",
            fence.statement
        ))
        .await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
