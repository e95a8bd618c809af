//! Hosts of a network: they reach each other unless they are parted, and nothing of them outlives its process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::hosts::{Host, Network, Partition};
use testkit::process::Spawned;

const SOON: Duration = Duration::from_secs(20);

/// A socket on the host. A message arrives at once, or never.
fn socket(host: &Host) -> Result<UdpSocket> {
    let socket = host.within(|| UdpSocket::bind((host.addr(), 7)))??;
    socket.set_read_timeout(Some(Duration::from_millis(300)))?;
    Ok(socket)
}

/// Whether a message of the first arrives at the second.
fn arrives(from: &UdpSocket, to: &UdpSocket) -> Result<bool> {
    from.send_to(b"hello", to.local_addr()?)?;
    let mut text = [0; 16];
    Ok(to
        .recv(&mut text)
        .is_ok_and(|size| text.starts_with(b"hello") && size == 5))
}

#[test]
fn a_partition_stops_what_it_names_and_nothing_else() -> Result<()> {
    if Network::left_out("partitions of a network")? {
        return Ok(());
    }
    let network = Network::new()?;
    let hosts = network.hosts(3)?;
    let sockets: Vec<UdpSocket> = hosts.iter().map(socket).collect::<Result<_>>()?;
    let [a, b, c] = &sockets[..] else { panic!() };
    let passing = || -> Result<Vec<bool>> {
        let ways = [(a, b), (b, a), (a, c), (c, a)];
        ways.iter().map(|(from, to)| arrives(from, to)).collect()
    };
    assert_eq!(passing()?, [true, true, true, true]);
    network.cut(&Partition::one_way(&hosts[..1], &hosts[1..2]))?;
    assert_eq!(passing()?, [false, true, true, true]);
    network.cut(&Partition::between(&hosts[..1], &hosts[1..]))?;
    assert_eq!(passing()?, [false, false, false, false]);
    assert!(arrives(b, c)?);
    network.cut(&Partition::each_alone(&hosts[..2]))?;
    assert_eq!(passing()?, [false, false, true, true]);
    network.heal()?;
    assert_eq!(passing()?, [true, true, true, true]);
    network.slow_down(&hosts[1], Duration::from_millis(30))?;
    assert!(arrives(a, b)?);
    network.heal()
}

/// Not a test: the next one runs it in a process of its own, and kills that process.
#[test]
#[ignore = "makes a host and waits"]
fn makes_a_host_and_waits() -> Result<()> {
    let network = Network::new()?;
    let host = network.host()?;
    let sleeper = Spawned::start({
        let mut command = host.command("sleep");
        command.arg("600");
        command
    })?;
    let names = std::fs::read_dir("/run/netns")?.flatten();
    let own = format!("tidelock-{}-", std::process::id());
    for name in names.filter(|name| name.file_name().to_string_lossy().starts_with(&own)) {
        println!("made {}", name.path().display());
    }
    println!("sleeper {}", sleeper.pid());
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}

#[test]
fn a_killed_process_leaves_no_host_behind() -> Result<()> {
    if Network::left_out("the end of hosts with their process")? {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        "--exact",
        "makes_a_host_and_waits",
        "--ignored",
        "--nocapture",
    ]);
    let mut process = Spawned::start(command)?;
    let told = process.wait_line("sleeper ", SOON)?;
    let sleeper: u32 = told.trim_start_matches("sleeper ").parse()?;
    let made = process
        .seen()
        .iter()
        .filter_map(|line| line.split_once("made "));
    let made: Vec<String> = made.map(|(_, path)| path.to_owned()).collect();
    assert_eq!(made.len(), 2, "{made:?}");
    assert!(made.iter().all(|path| Path::new(path).exists()));
    process.kill()?;
    let end = Instant::now() + SOON;
    let left = || made.iter().any(|path| Path::new(path).exists());
    while left() || testkit::process::is_alive(sleeper) {
        assert!(Instant::now() < end, "{made:?} or {sleeper} is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
