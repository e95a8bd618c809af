//! Curator's `InterProcessMutex` and `InterProcessReadWriteLock`, in a Java process that executes commands from stdin.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use super::build;
use crate::process::Spawned;

/// The limit for the start: the JVM takes its time, and Curator has to connect.
const START: Duration = Duration::from_secs(60);

/// Starts a process with the locks of that path, and returns once it is connected. Its commands are `acquire`, `try
/// MS`, `release` and `hammer ROUNDS THREADS WORD_FILE HOLD_US`, for the mutex; for the read-write lock, `read` or
/// `write` follows the command (`sides` for the hammer). Its answers are `acquired`, `refused`, `released`, a report
/// like that of the other hammers, or `failed …`, each after the time of `CLOCK_MONOTONIC`.
///
/// # Errors
/// Fails when there is no JDK or Maven, when the build fails, or when ZooKeeper cannot be reached.
pub fn curator_peer(server: SocketAddr, path: &str, session: Duration) -> anyhow::Result<Spawned> {
    let class_path = build::curator()?;
    let mut command = Command::new("java");
    command
        .args([
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
        ])
        .arg("-cp")
        .arg(format!("{0}/peer.jar:{0}/lib/*", class_path.display()))
        .arg("tidelock.curator.Peer")
        .args([server.to_string(), path.to_owned()])
        .arg(session.as_millis().to_string());
    let mut peer = Spawned::start(command).context(build::MISSING)?;
    peer.wait_line("ready", START)?;
    Ok(peer)
}

/// The command that starts Curator for the benchmark on the server at that `HOST:PORT`, with the JVM's defaults.
pub(crate) fn curator_bench(place: &str) -> anyhow::Result<Command> {
    let class_path = build::curator()?;
    let mut command = Command::new("java");
    command
        .arg("-cp")
        .arg(format!("{0}/peer.jar:{0}/lib/*", class_path.display()))
        .args(["tidelock.curator.Bench", place]);
    Ok(command)
}
