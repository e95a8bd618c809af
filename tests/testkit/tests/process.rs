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

/// A program that shows its wall clock at each line that it is sent, and how far that has moved between two lines, beside
/// the true time.
struct Shown {
    child: Spawned,
    wall: f64,
    at: Duration,
}

impl Shown {
    fn start(command: Command) -> Result<Self> {
        let mut child = Spawned::start(command)?;
        let wall = Self::ask(&mut child)?;
        let at = process::boot_time();
        Ok(Self { child, wall, at })
    }

    fn ask(child: &mut Spawned) -> Result<f64> {
        child.write_line("what time is it")?;
        let said = child.wait_line("it is ", SOON)?;
        Ok(said.trim_start_matches("it is ").parse()?)
    }

    /// By how much its clock has gained since the last call, in seconds.
    fn gained(&mut self) -> Result<f64> {
        let wall = Self::ask(&mut self.child)?;
        let at = process::boot_time();
        let gained = wall - self.wall - at.saturating_sub(self.at).as_secs_f64();
        (self.wall, self.at) = (wall, at);
        Ok(gained)
    }
}

/// The clocks of a program that runs already: it is set, runs fast, and shows the true time again.
fn clocks_are_changed(command: Command) -> Result<()> {
    let close = |gained: f64, wanted: f64| {
        assert!(
            (gained - wanted).abs() < 0.15,
            "gained {gained} s, not {wanted} s"
        );
    };
    let mut shown = Shown::start(command)?;
    let pid = shown.child.pid();
    process::shift_wall_clock(pid, -100)?;
    close(shown.gained()?, -100.0);
    process::run_clocks(pid, 2.0)?;
    std::thread::sleep(Duration::from_secs(1));
    close(shown.gained()?, 1.0);
    process::run_clocks(pid, 0.5)?;
    close(shown.gained()?, 0.0);
    std::thread::sleep(Duration::from_secs(1));
    close(shown.gained()?, -0.5);
    process::right_clocks(pid)?;
    close(shown.gained()?, 99.5);
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
