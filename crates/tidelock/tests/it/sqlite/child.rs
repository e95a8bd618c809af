//! This test binary, started again as another process.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const ROLE: &str = "TIDELOCK_TEST_ROLE";
const FILE: &str = "TIDELOCK_TEST_FILE";
const ROUNDS: &str = "TIDELOCK_TEST_ROUNDS";

/// Another process, killed with this value.
pub(crate) struct Other {
    process: Child,
    says: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start(role: &str, file: &Path, rounds: u32) -> Self {
        Self::start_in(&[], role, file, rounds)
    }

    /// Starts it as the last argument of another command.
    pub(crate) fn start_in(wrapper: &[&str], role: &str, file: &Path, rounds: u32) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut words = wrapper
            .iter()
            .map(std::ffi::OsStr::new)
            .chain([program.as_os_str()]);
        let mut process = Command::new(words.next().unwrap())
            .args(words)
            .args([
                "sqlite::child::plays_its_role",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, role)
            .env(FILE, file)
            .env(ROUNDS, rounds.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(process.stdout.take().unwrap());
        Self { process, says }
    }

    /// The next line it says, without the mark.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.says.read_line(&mut line).unwrap() > 0,
                "the child has ended"
            );
            // The test runner writes its own words before the first one.
            if let Some((_, word)) = line.split_once('@') {
                return word.trim().to_owned();
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// What it had said and nobody had heard, up to the last whole line.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.says, &mut rest).unwrap();
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        whole
            .lines()
            .filter_map(|line| line.split_once('@'))
            .map(|(_, word)| word.to_owned())
            .collect()
    }

    pub(crate) fn finish(mut self) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.says, &mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn say(word: impl std::fmt::Display) {
    println!("@{word}");
    std::io::stdout().flush().unwrap();
}

#[test]
fn plays_its_role() {
    // Run as a test among others, it has no role.
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let file = PathBuf::from(std::env::var(FILE).unwrap());
    let rounds = std::env::var(ROUNDS).unwrap().parse().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "hold" => hold(&file, rounds).await,
            "hammer" => hammer(&file, rounds).await,
            "wait" => wait(&file).await,
            "stop" => stop(&file).await,
            "full" => super::faults::fill_the_disk(&file).await,
            "echo" => echo(&file, rounds).await,
            _ => panic!("no role {role:?}"),
        }
    });
}

/// Acquires and releases, the last time without releasing; says each token.
async fn hold(file: &Path, rounds: u32) {
    let client = super::client(file, Duration::from_millis(600)).await;
    let lock = client.fenced_lock("ledger");
    for round in 1.. {
        let guard = lock.acquire().await.unwrap();
        say(guard.token().unwrap());
        if round >= rounds {
            std::future::pending::<()>().await;
        }
        guard.release().await.unwrap();
    }
}

/// Adds one to a number in a plain file, as a careless service does.
async fn hammer(file: &Path, rounds: u32) {
    let client = super::client(file, Duration::from_secs(10)).await;
    let lock = client.lock("word");
    let (word, inside) = (file.with_extension("word"), file.with_extension("inside"));
    for _ in 0..rounds {
        let guard = lock.acquire().await.unwrap();
        std::fs::File::create_new(&inside).expect("nobody else is inside");
        let count: u32 = std::fs::read_to_string(&word).unwrap().parse().unwrap();
        tokio::task::yield_now().await;
        std::fs::write(&word, (count + 1).to_string()).unwrap();
        std::fs::remove_file(&inside).unwrap();
        guard.release().await.unwrap();
    }
}

/// Waits for a lock that is held, for ever.
async fn wait(file: &Path) {
    let client = super::client(file, Duration::from_secs(30)).await;
    let lock = client.lock("held");
    say("waiting");
    drop(lock.acquire().await.unwrap());
    say("got it");
}

/// Stays for ever inside a transaction that has written something.
async fn stop(file: &Path) {
    let tool = rusqlite::Connection::open(file).unwrap();
    tool.execute_batch(
        "BEGIN IMMEDIATE; INSERT INTO locks (name, owner, revision, lease, ends, domain, token, since)
         VALUES ('half', 'x:1', 1, 1000000000, 9000000000000000000, 'nowhere+0.0', 1, 0)",
    )
    .unwrap();
    say("inside");
    std::future::pending::<()>().await;
}

/// Acquires what the parent releases, says when it had it, and gives it back.
async fn echo(file: &Path, rounds: u32) {
    let client = super::client(file, Duration::from_secs(30)).await;
    let (ball, back) = (client.lock("ball"), client.lock("back"));
    for _ in 0..rounds {
        let mine = back.acquire().await.unwrap();
        say("ready");
        let guard = ball.acquire().await.unwrap();
        say(boot_nanos());
        guard.release().await.unwrap();
        mine.release().await.unwrap();
        say("over");
        while !ball.inspect().await.unwrap().is_locked() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A clock that two processes share.
pub(crate) fn boot_nanos() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
