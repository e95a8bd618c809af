//! Runs this test binary again as another process.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tidelock::{Client, Guard};

const ROLE: &str = "TIDELOCK_TEST_ROLE";
const FILE: &str = "TIDELOCK_TEST_FILE";
const ROUNDS: &str = "TIDELOCK_TEST_ROUNDS";

/// Another process, which is killed when this is dropped.
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
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(process.stdout.take().unwrap());
        Self { process, says }
    }

    /// The next line of its output, without the marker.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.says.read_line(&mut line).unwrap() > 0,
                "the child has ended"
            );
            // The test runner prints text before the first line of ours.
            if let Some((_, word)) = line.split_once('@') {
                return word.trim().to_owned();
            }
        }
    }

    /// Asks a holder whether it still holds its lock.
    pub(crate) fn still_holds(&mut self) -> bool {
        self.state() == "held"
    }

    /// The holder's reply, with the reason if it has lost the lock.
    pub(crate) fn state(&mut self) -> String {
        let asked = self.process.stdin.as_mut().unwrap();
        asked.write_all(b"?\n").unwrap();
        self.hear()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits until the process waits in the kernel's lock queue, behind `ahead` others. All of them are blocked in the
    /// kernel, on a byte of `-lock`: the first on the byte of the holder, so this process is one more than those ahead. A
    /// thread that merely sleeps proves no position: on a busy machine it may sleep before it has asked for the byte, and
    /// a process that starts later may overtake it.
    #[cfg(target_os = "linux")]
    pub(crate) fn until_it_queues(&self, file: &Path, ahead: usize) {
        let lock_file = format!("{}-lock", file.display());
        while self.in_queue().is_none() || blocked(Path::new(&lock_file)) <= ahead {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of wakes of the thread that waits there.
    #[cfg(target_os = "linux")]
    pub(crate) fn wake_ups(&self) -> u64 {
        let status = std::fs::read_to_string(self.in_queue().unwrap().join("status")).unwrap();
        let mut lines = status.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse().unwrap()
    }

    /// The thread that sleeps there.
    #[cfg(target_os = "linux")]
    fn in_queue(&self) -> Option<PathBuf> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let mut tasks = tasks.map(|task| task.unwrap().path());
        let read = |task: &Path, file| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        tasks.find(|task| {
            read(task, "comm").trim() == "tidelock-queue" && read(task, "stat").contains(") S ")
        })
    }

    /// Stops the process and waits until all of its threads have stopped. The main thread alone proves nothing: on a
    /// busy machine another thread still runs for a while after it, and may acquire the lock.
    #[cfg(target_os = "linux")]
    pub(crate) fn stop(&self) {
        self.send(rustix::process::Signal::STOP);
        while !self.all_threads_have_stopped() {
            std::thread::yield_now();
        }
    }

    #[cfg(target_os = "linux")]
    fn all_threads_have_stopped(&self) -> bool {
        let mut tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks.all(|task| {
            // A thread that has just ended has no state any more.
            std::fs::read_to_string(task.unwrap().path().join("stat"))
                .map_or(true, |stat| stat.contains(") T "))
        })
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn go_on(&self) {
        self.send(rustix::process::Signal::CONT);
    }

    #[cfg(target_os = "linux")]
    fn send(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The unread output, up to the last complete line.
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

    /// The number of rounds that a child reports when it ends.
    pub(crate) fn rounds(mut self) -> u64 {
        let rounds = self.hear().parse().unwrap();
        self.finish();
        rounds
    }

    pub(crate) fn finish(mut self) {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.says, &mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // The process may have exited already.
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
    // When this runs as an ordinary test, there is no role.
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
            "hold" => hold(&file, rounds, Duration::from_millis(600)).await,
            "hold long" => hold(&file, rounds, Duration::from_secs(2)).await,
            "hammer" => {
                hammer(&file, Duration::from_secs(10), |round| round < rounds).await;
            }
            "hammer for a while" => {
                let end = Instant::now() + Duration::from_secs(6);
                // A short lease: an idle connection checks its files every tenth of it.
                let lease = Duration::from_secs(3);
                say(hammer(&file, lease, |_| Instant::now() < end).await);
            }
            "wait" => drop(wait(&file).await),
            "queue up" => {
                drop(wait(&file).await);
                std::future::pending::<()>().await;
            }
            #[cfg(target_os = "linux")]
            "queue up while busy" => {
                let client = super::client(&file, Duration::from_secs(10)).await;
                // The looks at this queue are jobs without a pause.
                let _busy = tokio::spawn(client.fair_lock("other").acquire());
                drop(wait_as(&client).await);
                std::future::pending::<()>().await;
            }
            "queue up and keep it" => {
                let _guard = wait(&file).await;
                std::future::pending::<()>().await;
            }
            #[cfg(target_os = "linux")]
            "wait in order" => super::fair::wait_in_order(&file, rounds, |word| say(word)).await,
            #[cfg(target_os = "linux")]
            what @ ("read" | "write" | "upgrade" | "read on and on") => {
                super::sides::hold_sides(what, &file, rounds, |word| say(word)).await;
            }
            #[cfg(target_os = "linux")]
            "sides" => super::sides::sides(&file, rounds).await,
            "share permits" => {
                super::permits::share_permits(&file, rounds, |word| say(word)).await;
            }
            "keep permits" => super::permits::keep_permits(&file, rounds, |word| say(word)).await,
            "stop" => stop(&file).await,
            "full" => super::faults::fill_the_disk(&file).await,
            "refused on a full disk" => super::faults::be_refused_on_a_full_disk(&file).await,
            "echo" => echo(&file, rounds).await,
            "mounted twice" => super::names::lock_through_two_mounts(&file).await,
            "mounted alone" => super::names::open_a_mounted_file(&file).await,
            what => {
                super::removed::remove(what, &file);
                say("done");
            }
        }
    });
}

/// Acquires and releases, except the last time, when it keeps the lock. Prints each token.
async fn hold(file: &Path, rounds: u32, lease: Duration) {
    let client = super::client(file, lease).await;
    let lock = client.lock("ledger").fenced();
    for round in 1.. {
        let guard = lock.acquire().await.unwrap();
        say(guard.token());
        if round >= rounds {
            answer(&guard).await;
        }
        guard.release().await.unwrap();
    }
}

/// Prints whether it still holds the lock, each time the parent asks.
async fn answer(guard: &Guard) {
    let (asked, mut questions) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = asked.send(line);
        }
    });
    while questions.recv().await.is_some() {
        if guard.is_held() {
            say("held");
        } else {
            say(guard.lost().await);
        }
    }
    std::future::pending::<()>().await;
}

/// Increments a number in a plain file without any other protection. Returns the number of increments.
async fn hammer(file: &Path, lease: Duration, goes_on: impl Fn(u32) -> bool) -> u32 {
    let client = super::client(file, lease).await;
    let lock = client.lock("word");
    let (word, inside) = (file.with_extension("word"), file.with_extension("inside"));
    let mut round = 0;
    while goes_on(round) {
        let guard = lock.acquire().await.unwrap();
        std::fs::File::create_new(&inside).expect("nobody else is inside");
        let count: u32 = std::fs::read_to_string(&word).unwrap().parse().unwrap();
        tokio::task::yield_now().await;
        std::fs::write(&word, (count + 1).to_string()).unwrap();
        std::fs::remove_file(&inside).unwrap();
        guard.release().await.unwrap();
        round += 1;
    }
    round
}

/// Waits without a timeout for a lock that another process holds.
async fn wait(file: &Path) -> Guard {
    wait_as(&super::client(file, Duration::from_secs(10)).await).await
}

async fn wait_as(client: &Client) -> Guard {
    let lock = client.lock("held");
    say("waiting");
    let guard = lock.acquire().await.unwrap();
    say("got it");
    guard
}

/// How many processes the kernel blocks on a byte of this file.
#[cfg(target_os = "linux")]
fn blocked(file: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;

    let inode = format!(":{} ", std::fs::metadata(file).unwrap().ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let lines = locks.lines();
    lines
        .filter(|line| line.contains("-> OFDLCK") && line.contains(&inode))
        .count()
}

/// Blocks inside a transaction that has written something.
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

/// Acquires the lock when the parent releases it, prints the time of the grant, and releases it.
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
