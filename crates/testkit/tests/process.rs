//! Children are read, frozen, put under another clock, and never left behind.

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

#[test]
fn a_killed_test_leaves_no_server() -> Result<()> {
    const HELPER: &str = "TIDELOCK_TEST_HELPER";
    if std::env::var_os(HELPER).is_some() {
        let server = testkit::servers::RedisServer::start()?;
        println!("server {}", server.pid()?);
        std::thread::sleep(Duration::from_secs(600));
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--exact", "a_killed_test_leaves_no_server", "--nocapture"])
        .env(HELPER, "1");
    let mut child = Spawned::start(command)?;
    let line = child.wait_line("server ", SOON)?;
    let pid: u32 = line.rsplit(' ').next().unwrap_or_default().parse()?;
    child.kill()?;
    let deadline = std::time::Instant::now() + SOON;
    while process::is_alive(pid) {
        assert!(
            std::time::Instant::now() < deadline,
            "server {pid} outlived its test"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
