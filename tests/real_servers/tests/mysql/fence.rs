//! The fencing check in the user's own transaction: which transactions pass, and which are refused.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use testkit::servers::MariaDb;
use tidelock::{AcquireOptions, ErrorKind, FencedGuard};

use super::{LEASE, client, soon};

/// The user's own connection: a `mysql` process that reads statements and prints results.
struct Session {
    child: Child,
    stdin: ChildStdin,
    lines: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Session {
    fn open(server: &MariaDb) -> Result<Self> {
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
    async fn ask(&mut self, sql: &str) -> Result<String> {
        writeln!(self.stdin, "{sql};")?;
        self.stdin.flush()?;
        soon("an answer", self.lines.recv())
            .await
            .context("no answer")
    }

    /// Begins a transaction with the fencing check. Returns the server's result.
    async fn begin(&mut self, guard: &FencedGuard) -> Result<String> {
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

const PASSES: &str = "18446744073709551615";

/// While a fenced transaction is open, the lease is renewed and the lock can be released, but nobody else is granted
/// the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_fence_holds_up_grants_and_nothing_else() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let mut session = Session::open(&server)?;
    let guard = a.lock("it's stöck").fenced().acquire().await?;
    let answer = session.begin(&guard).await?;
    assert_eq!(answer, PASSES);
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_held(), "it was renewed");
    guard.release().await?;
    let patience = AcquireOptions::new().wait(Duration::from_secs(1));
    let early = b.lock("it's stöck").fenced().acquire_with(patience).await;
    assert!(early.is_err(), "the transaction is still open");
    session.ask("COMMIT; SELECT 'done'").await?;
    let next = soon("the next holder", b.lock("it's stöck").fenced().acquire()).await?;
    next.release().await?;
    Ok(())
}

/// An older token is an error: while the newer one is held, after its release, and after its row was removed.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_token_fails_the_transaction() -> Result<()> {
    let server = MariaDb::start()?;
    let (a, b) = (client(&server.url()).await?, client(&server.url()).await?);
    let mut session = Session::open(&server)?;
    let once = AcquireOptions::new().expires_after(Duration::from_millis(300));
    let old = a.lock("stock").fenced().acquire_with(once).await?;
    old.lost().await;
    // Nobody has acquired the lock since, so the token of the expired lease is still the newest one and passes.
    assert_eq!(session.begin(&old).await?, PASSES);
    session.ask("ROLLBACK; SELECT 'done'").await?;
    let new = soon("the next holder", b.lock("stock").fenced().acquire()).await?;
    let refused = session.begin(&old).await?;
    assert!(
        refused.contains("a_newer_tidelock_token_exists"),
        "{refused}"
    );
    session.ask("ROLLBACK; SELECT 'done'").await?;
    assert_eq!(session.begin(&new).await?, PASSES);
    session.ask("ROLLBACK; SELECT 'done'").await?;
    new.release().await?;
    let refused = session.begin(&old).await?;
    assert!(
        refused.contains("a_newer_tidelock_token_exists"),
        "{refused}"
    );
    session
        .ask("ROLLBACK; DELETE FROM tidelock_locks; SELECT 'done'")
        .await?;
    let refused = session.begin(&old).await?;
    assert!(
        refused.contains("a_newer_tidelock_token_exists"),
        "{refused}"
    );
    Ok(())
}

/// The largest token has no successor. The attempt fails at once, and nobody holds the lock.
#[tokio::test(flavor = "multi_thread")]
async fn t68_a_token_without_a_next_one_is_refused_and_nothing_is_taken() -> Result<()> {
    let server = MariaDb::start()?;
    let client = client(&server.url()).await?;
    let lock = client.lock("stock").fenced();
    lock.acquire().await?.release().await?;
    server.query("UPDATE tidelock_locks SET token = 18446744073709551615")?;
    let patient = AcquireOptions::new().wait(Duration::from_secs(20));
    let begun = std::time::Instant::now();
    for error in [
        lock.try_acquire().await.map(drop).unwrap_err(),
        lock.acquire_with(patient).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(error.to_string().contains("token"), "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "waited");
    assert!(!lock.inspect().await?.is_locked());
    server.query("UPDATE tidelock_locks SET token = 18446744073709551614")?;
    let guard = lock.acquire().await?;
    assert_eq!(guard.token().get(), u64::MAX);
    guard.release().await?;
    Ok(())
}
