//! Child processes can be read, frozen and put under another clock, and none is left behind.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use testkit::process::{self, FakeClock, Spawned};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_child_is_read_frozen_and_killed() -> Result<()> {
    let mut child = Spawned::start(Command::new("cat"))?;
    child.write_line("one")?;
    child.write_line("two")?;
    assert_eq!(child.wait_line("tw", SOON)?, "two");
    assert_eq!(child.seen(), ["one", "two"]);
    child.freeze()?;
    assert_eq!(process::state(child.pid())?, 'T');
    child.thaw()?;
    assert_eq!(process::threads(child.pid())?, 1);
    child.close_stdin();
    assert!(child.wait(SOON)?.success());
    Ok(())
}

#[test]
fn a_child_with_another_clock() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let clock = FakeClock::new(dir.path())?;
    clock.shift(-1_000_000_000)?;
    let mut command = Command::new("date");
    command.arg("+%s");
    clock.apply(&mut command);
    let seconds: u64 = Spawned::start(command)?.next_line(SOON)?.parse()?;
    assert!(seconds < 1_000_000_000, "{seconds}");
    Ok(())
}

/// What a program said that its wall clock shows, in seconds, and the true time before it was asked and after it answered.
struct Shown {
    wall: f64,
    before: Duration,
    after: Duration,
}

impl Shown {
    fn by(child: &mut Spawned) -> Result<Self> {
        let before = process::boot_time();
        child.write_line("what time is it")?;
        let said = child.wait_line("it is ", SOON)?;
        Ok(Self {
            wall: said.trim_start_matches("it is ").parse()?,
            before,
            after: process::boot_time(),
        })
    }

    /// Checks that the clock has jumped by so many seconds since it showed `from`, and has run at a rate between these two.
    /// The true time from one answer to the other is known up to the time that the answers took.
    fn must_follow(&self, from: &Self, jump: f64, [slowest, fastest]: [f64; 2]) {
        // The kernel may correct the wall clock a little meanwhile.
        const EXACT: f64 = 0.05;
        let went = self.wall - from.wall - jump;
        let least = self.before.saturating_sub(from.after).as_secs_f64();
        let most = self.after.saturating_sub(from.before).as_secs_f64();
        assert!(
            went > slowest * least - EXACT && went < fastest * most + EXACT,
            "it went on by {went} s in {least} to {most} s, at a rate of {slowest} to {fastest}"
        );
    }
}

/// The clocks of a program that runs already: it is set, runs fast, and shows the true time again.
fn clocks_are_changed(command: Command) -> Result<()> {
    let second = Duration::from_secs(1);
    let child = &mut Spawned::start(command)?;
    let pid = child.pid();
    let first = Shown::by(child)?;
    process::shift_wall_clock(pid, -100)?;
    let set = Shown::by(child)?;
    set.must_follow(&first, -100.0, [1.0, 1.0]);
    process::run_clocks(pid, 2.0)?;
    let fast = Shown::by(child)?;
    fast.must_follow(&set, 0.0, [1.0, 2.0]);
    std::thread::sleep(second);
    let still_fast = Shown::by(child)?;
    still_fast.must_follow(&fast, 0.0, [2.0, 2.0]);
    process::run_clocks(pid, 0.5)?;
    let slow = Shown::by(child)?;
    slow.must_follow(&still_fast, 0.0, [0.5, 2.0]);
    std::thread::sleep(second);
    let still_slow = Shown::by(child)?;
    still_slow.must_follow(&slow, 0.0, [0.5, 0.5]);
    process::right_clocks(pid)?;
    Shown::by(child)?.must_follow(&first, 0.0, [1.0, 1.0]);
    Ok(())
}

#[test]
fn the_clock_of_a_running_program_is_changed() -> Result<()> {
    const HELPER: &str = "TIDELOCK_TEST_CLOCK";
    if std::env::var_os(HELPER).is_some() {
        for _ in std::io::stdin().lines() {
            let now = std::time::SystemTime::now();
            let now = now.duration_since(std::time::UNIX_EPOCH)?;
            println!("it is {}", now.as_secs_f64());
        }
        return Ok(());
    }
    // `clock_gettime`.
    let mut command = Command::new(std::env::current_exe()?);
    let test = "the_clock_of_a_running_program_is_changed";
    command.args(["--exact", test, "--nocapture"]);
    clocks_are_changed({
        command.env(HELPER, "1");
        command
    })?;
    // `gettimeofday`.
    let mut command = Command::new("bash");
    command.args([
        "-c",
        "while read -r _; do echo \"it is $EPOCHREALTIME\"; done",
    ]);
    clocks_are_changed(command)
}

#[test]
fn a_killed_test_leaves_no_server_and_no_data() -> Result<()> {
    const HELPER: &str = "TIDELOCK_TEST_HELPER";
    if std::env::var_os(HELPER).is_some() {
        let server = testkit::servers::RedisServer::start()?;
        println!("server {} {}", server.pid()?, server.dir().display());
        std::thread::sleep(Duration::from_secs(600));
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([
            "--exact",
            "a_killed_test_leaves_no_server_and_no_data",
            "--nocapture",
        ])
        .env(HELPER, "1");
    let mut child = Spawned::start(command)?;
    let line = child.wait_line("server ", SOON)?;
    let mut words = line.split(' ').skip(1);
    let pid: u32 = words.next().unwrap_or_default().parse()?;
    let dir = PathBuf::from(words.next().unwrap_or_default());
    assert!(dir.is_dir(), "{}", dir.display());
    child.kill()?;
    let deadline = std::time::Instant::now() + SOON;
    while process::is_alive(pid) || dir.exists() {
        assert!(
            std::time::Instant::now() < deadline,
            "server {pid} or {} outlived its test",
            dir.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
