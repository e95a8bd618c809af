//! Programs that run a command under a lock, from the start of the program to its end.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use testkit::servers::EtcdServer;

use crate::figures::{median, per_second, ratio, short, with_spread};
use crate::goals::Goal;
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::stage::{Samples, Stage, Team, of};

/// The number of processes that compete.
const AT_ONCE: usize = 4;
const NAME: &str = "launched";

/// One program in one round.
#[derive(Debug)]
struct Sample {
    /// From the start to the end of `true` under the lock, in milliseconds.
    alone: f64,
    /// Turns a second, of several processes at once.
    turns: f64,
}

/// Adds what was measured to the section. A store that fails is left out.
pub(super) fn measure(stage: &mut Stage, section: &mut Section) {
    let mut table = Table::new(&[
        "store",
        "",
        "start to end of `true`, ms",
        "time of `tidelock run` ÷ this",
        "turns/s",
    ]);
    for (store, pair) in [
        (
            "one machine",
            Pair::sqlite as fn(&mut Stage) -> Result<Pair>,
        ),
        ("etcd", Pair::etcd),
    ] {
        match pair(stage) {
            Ok(pair) => {
                let samples = pair.measure(stage);
                rows(&mut table, store, &samples);
                if pair.peer == Peer::Flock {
                    section.goals.push(goal(&samples));
                }
            }
            Err(error) => stage.leave_out("W9", Peer::Tidelock, &error.context(store)),
        }
    }
    section.tables.push((ABOUT.into(), table));
}

const ABOUT: &str = "Programs that run a command under a lock. The time is from the start of the program to its end, with `true` as the command. For the
turns, four processes at a time compete for one name, and the command makes and removes a folder, which fails if another process is inside.
Beside `flock`, `tidelock run` uses a file (`sqlite:`); beside `etcdctl lock`, both use the same etcd server. `tidelock` is the release
build of this repository with all stores; packages have a smaller one:";

fn rows(table: &mut Table, store: &str, samples: &Samples<Sample>) {
    let ours = of(samples, Peer::Tidelock).unwrap_or_default();
    for (peer, samples) in samples {
        let name = match peer {
            Peer::Tidelock => "`tidelock run`",
            _ => peer.name(),
        };
        table.row([
            store.to_owned(),
            name.to_owned(),
            with_spread(samples, |s| s.alone),
            short(ratio(ours, samples, |s| s.alone)),
            with_spread(samples, |s| s.turns),
        ]);
    }
}

fn goal(samples: &Samples<Sample>) -> Goal {
    let both = of(samples, Peer::Tidelock).zip(of(samples, Peer::Flock));
    Goal::at_most(
        "W9: `tidelock run` on `sqlite:` against `flock`, start to end of `true`",
        3.0,
        " ×",
        both.map(|(ours, theirs)| ratio(ours, theirs, |s| s.alone)),
    )
}

/// `tidelock run` and the other program.
struct Pair {
    peer: Peer,
    url: String,
    /// For `flock`: the file that it locks.
    file: PathBuf,
    /// The folder that a command makes and removes.
    inside: PathBuf,
    etcd: Option<EtcdServer>,
    program: PathBuf,
}

impl Pair {
    fn sqlite(stage: &mut Stage) -> Result<Self> {
        Ok(Self {
            peer: Peer::Flock,
            url: format!("sqlite:{}", stage.file().with_extension("db").display()),
            file: stage.file(),
            inside: stage.file(),
            etcd: None,
            program: testkit::tidelock_bin()?,
        })
    }

    fn etcd(stage: &mut Stage) -> Result<Self> {
        let server = EtcdServer::start()?;
        Ok(Self {
            peer: Peer::Etcdctl,
            url: server.url(),
            file: stage.file(),
            inside: stage.file(),
            etcd: Some(server),
            program: testkit::tidelock_bin()?,
        })
    }

    fn measure(&self, stage: &mut Stage) -> Samples<Sample> {
        let mut teams: Vec<Team> = [Peer::Tidelock, self.peer].map(nobody).into();
        let (runs, time) = if stage.args.quick {
            (5, 200)
        } else {
            (20, 500)
        };
        // We do not count the first starts, which read the programs from disk.
        stage.each("W9", &mut teams, |_, team| self.alone(team.peer, 3));
        stage.rounds("W9", &mut teams, |_, team| {
            Ok(Sample {
                alone: self.alone(team.peer, runs)?,
                turns: self.turns(team.peer, Duration::from_millis(time))?,
            })
        })
    }

    /// This program with a command under its lock.
    fn command(&self, peer: Peer, under: &[&str]) -> Result<Command> {
        let mut command = match (peer, &self.etcd) {
            (Peer::Flock, _) => {
                let mut flock = Command::new("flock");
                flock.arg(&self.file);
                flock
            }
            (Peer::Etcdctl, Some(server)) => {
                let mut etcdctl = server.etcdctl();
                etcdctl.args(["lock", NAME, "--"]);
                etcdctl
            }
            (Peer::Tidelock, _) => {
                let mut run = Command::new(&self.program);
                run.args(["--store", &self.url, "run", NAME, "--"]);
                run
            }
            _ => bail!("{} runs no command", peer.name()),
        };
        command.args(under);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }

    /// The median of so many runs, in milliseconds.
    fn alone(&self, peer: Peer, runs: usize) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..runs {
            let mut command = self.command(peer, &["true"])?;
            let start = Instant::now();
            run(&mut command)?;
            times.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(median(times))
    }

    /// The turns a second of several processes.
    fn turns(&self, peer: Peer, time: Duration) -> Result<f64> {
        let inside = self.inside.to_str().context("a path that is no text")?;
        // It fails if another process is inside.
        let under = ["sh", "-c", "mkdir \"$0\" && rmdir \"$0\"", inside];
        let stops = AtomicBool::new(false);
        // At least one turn for each, so that there is a figure on a busy machine too.
        let again = || -> Result<usize> {
            let mut count = 0;
            while count == 0 || !stops.load(Ordering::Relaxed) {
                run(&mut self.command(peer, &under)?)?;
                count += 1;
            }
            Ok(count)
        };
        let start = Instant::now();
        let count = thread::scope(|scope| {
            let all: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(again)).collect();
            thread::sleep(time);
            stops.store(true, Ordering::Relaxed);
            let mut sum = 0;
            for one in all {
                match one.join() {
                    Ok(count) => sum += count?,
                    Err(_) => bail!("a thread that starts programs has panicked"),
                }
            }
            Ok(sum)
        })?;
        Ok(per_second(count, start.elapsed()))
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{:?}, {}: {}",
        command,
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn nobody(peer: Peer) -> Team {
    Team {
        peer,
        processes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(dir: &std::path::Path) -> Pair {
        Pair {
            peer: Peer::Flock,
            url: String::new(),
            file: dir.join("file"),
            inside: dir.join("inside"),
            etcd: None,
            program: PathBuf::new(),
        }
    }

    #[test]
    fn turns_that_overlap_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let pair = pair(dir.path());
        assert!(pair.turns(Peer::Flock, Duration::from_millis(50)).unwrap() > 0.0);
        // As if another process had come in and never left.
        std::fs::create_dir(&pair.inside).unwrap();
        let error = pair.turns(Peer::Flock, Duration::from_millis(50));
        assert!(error.unwrap_err().to_string().contains("exists"));
    }

    #[test]
    fn the_target_is_three_times_flock() {
        let sample = |alone| vec![Sample { alone, turns: 1.0 }];
        let samples = vec![(Peer::Tidelock, sample(6.0)), (Peer::Flock, sample(1.0))];
        let row = goal(&samples).row();
        assert_eq!(row[2..], ["6.00 ×", "**missed** by 2.00 ×"]);
        let mut table = Table::new(&["store", "", "ms", "of it", "turns/s"]);
        rows(&mut table, "one machine", &samples);
        assert!(
            table
                .markdown()
                .contains("| one machine | `flock` | 1.00 | 6.00 | 1.00 |")
        );
    }
}
