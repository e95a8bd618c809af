//! A process that takes a lock with rslock, told what to do by lines; see ../README.md.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rslock::{Lock, LockManager};

struct Peer {
    manager: LockManager,
    name: String,
    lease: Duration,
    held: Option<Lock>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [host, port, name, lease] = &args[..] else {
        return Err(io::Error::other("HOST PORT NAME LEASE_MS"));
    };
    let mut peer = Peer {
        manager: LockManager::new(vec![format!("redis://{host}:{port}/")]),
        name: name.clone(),
        lease: Duration::from_millis(lease.parse().map_err(io::Error::other)?),
        held: None,
    };
    println!("ready");
    for line in io::stdin().lock().lines() {
        let answer = peer.obey(&line?).await;
        println!("{}", answer.unwrap_or_else(|error| format!("error {error}")));
    }
    Ok(())
}

impl Peer {
    async fn obey(&mut self, line: &str) -> io::Result<String> {
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words[..] {
            ["try"] => {
                self.manager.set_retry(0, Duration::ZERO);
                self.held = self.manager.lock(&*self.name, self.lease).await.ok();
                if self.held.is_some() { "yes" } else { "no" }.to_owned()
            }
            ["extend"] => {
                let held = self.held.as_ref().ok_or(io::Error::other("nothing held"))?;
                match self.manager.extend(held, self.lease).await {
                    Ok(_) => "extended".to_owned(),
                    Err(_) => "lost".to_owned(),
                }
            }
            ["release"] => {
                let held = self.held.take().ok_or(io::Error::other("nothing held"))?;
                // It does not say whether it was still held: asked before.
                let ours = self.manager.is_freed(&held).await.is_ok_and(|freed| !freed);
                self.manager.unlock(&held).await;
                if ours { "released" } else { "lost" }.to_owned()
            }
            ["hammer", rounds, hold, path] => {
                let rounds = rounds.parse().map_err(io::Error::other)?;
                let hold = Duration::from_micros(hold.parse().map_err(io::Error::other)?);
                self.hammer(rounds, hold, path).await?
            }
            _ => "what?".to_owned(),
        })
    }

    async fn hammer(&mut self, rounds: u64, hold: Duration, path: &str) -> io::Result<String> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let mut overlaps = 0;
        self.manager.set_retry(100_000, Duration::from_millis(2));
        for _ in 0..rounds {
            let lock = self.manager.acquire_no_guard(&*self.name, self.lease).await;
            let lock = lock.map_err(io::Error::other)?;
            let (alone, counter) = enter(&file)?;
            tokio::time::sleep(hold).await;
            overlaps += u64::from(!leave(&file, counter)? || !alone);
            self.manager.unlock(&lock).await;
        }
        Ok(format!(
            r#"{{"acquisitions":{rounds},"overlaps":{overlaps}}}"#
        ))
    }
}

fn me() -> u64 {
    u64::from(std::process::id())
}

/// Whether nobody was inside, and the counter to hand to `leave`.
fn enter(file: &File) -> io::Result<(bool, u64)> {
    let alone = get(file, 0)? == 0;
    put(file, 0, me())?;
    Ok((alone, get(file, 8)?))
}

/// Whether nobody came in meanwhile.
fn leave(file: &File, counter: u64) -> io::Result<bool> {
    put(file, 8, counter + 1)?;
    let alone = get(file, 0)? == me();
    put(file, 0, 0)?;
    Ok(alone)
}

fn get(file: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u64::from_le_bytes(bytes))
}

fn put(file: &File, at: u64, value: u64) -> io::Result<()> {
    file.write_all_at(&value.to_le_bytes(), at)
}
