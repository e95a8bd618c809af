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
