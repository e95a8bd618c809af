//! W10: semaphores and the read-write lock beside those of Redisson and Curator.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use load::Names;
use testkit::foreign::Bench;
use testkit::process::cpu_time;
use testkit::servers::ZooKeeperServer;

use crate::figures::{middle, number, short, with_spread};
use crate::page::{Section, Table};
use crate::peers::{Peer, on_any_store};
use crate::process::Process;
use crate::shared::{Rule, SharedHolds};
use crate::stage::{Load, Samples, Stage, Team};

const PROCESSES: usize = 2;
const TASKS: usize = 8;
const PERMITS: usize = 4;
const HOLDS_MS: [u64; 2] = [0, 1];

/// The kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Permits with a holder and a lease.
    Permits,
    /// Permits that are only counted.
    Counting,
    /// A read-write lock; this percentage of the holds read.
    Sides(usize),
}

/// The kinds that are measured on Redis.
const ON_REDIS: [Kind; 4] = [
    Kind::Permits,
    Kind::Counting,
    Kind::Sides(95),
    Kind::Sides(50),
];

impl Kind {
    fn about(self, peer: Peer) -> String {
        let theirs = match (self, peer) {
            (Self::Permits, Peer::Foreign(Bench::Curator)) => "`InterProcessSemaphoreV2`",
            (Self::Permits, _) => "`RPermitExpirableSemaphore`",
            (Self::Counting, _) => "`RSemaphore`",
            (Self::Sides(_), _) => "`RReadWriteLock`",
        };
        let what = match self {
            Self::Permits => format!("{PERMITS} permits, `Semaphore`"),
            Self::Counting => format!("{PERMITS} permits without a holder, `CountingSemaphore`"),
            Self::Sides(percent) => format!("{percent} % reads, `ReadWriteLock`"),
        };
        format!("{what} beside {theirs}")
    }

    /// The kind on the command line of each side.
    fn word(self) -> &'static str {
        match self {
            Self::Permits => "permits",
            Self::Counting => "counting",
            Self::Sides(_) => "sides",
        }
    }

    fn number(self) -> usize {
        match self {
            Self::Permits | Self::Counting => PERMITS,
            Self::Sides(percent) => percent,
        }
    }

    fn rule(self) -> Rule {
        match self {
            Self::Permits | Self::Counting => Rule::Permits(PERMITS),
            Self::Sides(percent) => Rule::Sides { percent },
        }
    }

    /// The name of the lock. A name has one kind.
    fn name(self) -> String {
        format!("{} {}", self.word(), self.number())
    }
}

/// The server of a table: its URL, and its process, whose time counts.
struct Ground {
    url: String,
    pid: u32,
}

/// One side in one round.
#[derive(Debug)]
struct Sample {
    holds: SharedHolds,
    /// Microseconds of the processes and of the server for each acquisition.
    client: f64,
    server: f64,
}

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let redis = Ground {
        url: stage.server.url(),
        pid: stage.server.pid()?,
    };
    let mut section = Section {
        title: "W10: semaphores and read-write locks",
        text: TEXT.into(),
        ..Section::default()
    };
    for kind in ON_REDIS {
        let peer = Peer::Foreign(Bench::Redisson);
        let table = on_server(stage, &redis, kind, &[Peer::Tidelock, peer]);
        let about = format!("**Redis: {}**", kind.about(peer));
        section.tables.push((about, table));
    }
    let curator = Peer::Foreign(Bench::Curator);
    let about = format!("**ZooKeeper: {}**", Kind::Permits.about(curator));
    match on_zookeeper(stage, curator) {
        Ok(table) => section.tables.push((about, table)),
        // The results on Redis are still useful.
        Err(error) => stage.leave_out("W10", curator, &error),
    }
    Ok(section)
}

fn on_zookeeper(stage: &mut Stage, curator: Peer) -> Result<Table> {
    let server = ZooKeeperServer::start()?;
    let ground = Ground {
        url: server.url(),
        pid: server.pid()?,
    };
    let peers = [Peer::Tidelock, curator];
    Ok(on_server(stage, &ground, Kind::Permits, &peers))
}

fn on_server(stage: &mut Stage, ground: &Ground, kind: Kind, peers: &[Peer]) -> Table {
    let mut teams = Vec::new();
    for &peer in peers {
        match team(ground, kind, peer) {
            Ok(team) => teams.push(team),
            Err(error) => stage.leave_out("W10", peer, &error),
        }
    }
    let mut table = Table::new(&[
        "",
        "hold ms",
        "acquisitions/s",
        "wait p50 µs",
        "wait p99 µs",
        "of writers, p99 µs",
        "client µs each",
        "server µs each",
        "too many at once",
    ]);
    for hold in HOLDS_MS {
        let samples = rounds(stage, ground, kind, &mut teams, hold);
        for (peer, samples) in &samples {
            table.row(row(*peer, hold, samples));
        }
    }
    table
}

fn team(ground: &Ground, kind: Kind, peer: Peer) -> Result<Team> {
    let command = || -> Result<Command> {
        let mut command = if peer == Peer::Tidelock {
            on_any_store(kind.word(), &ground.url)?
        } else {
            let mut command = peer.command(&ground.url)?;
            command.arg(kind.word());
            command
        };
        command.arg(kind.number().to_string());
        Ok(command)
    };
    let start = |_| Process::start(command()?);
    let processes: Result<Vec<Process>> = (0..PROCESSES).map(start).collect();
    Ok(Team {
        peer,
        processes: processes?,
    })
}

fn rounds(
    stage: &mut Stage,
    ground: &Ground,
    kind: Kind,
    teams: &mut Vec<Team>,
    hold: u64,
) -> Samples<Sample> {
    let (warm, long) = if stage.args.quick {
        (100, 250)
    } else {
        (300, 700)
    };
    let name = kind.name();
    let load = |millis| Load {
        processes: PROCESSES,
        tasks: TASKS,
        names: Names::One,
        name: &name,
        hold: Duration::from_millis(hold),
        time: Duration::from_millis(millis),
    };
    stage.each("W10", teams, |stage, team| {
        stage.run(team, &load(warm * u64::from(team.peer.warm_up())))
    });
    stage.rounds("W10", teams, |stage, team| {
        let before = cpu_time(ground.pid)?;
        let seen = stage.run(team, &load(long))?;
        let server = cpu_time(ground.pid)?.saturating_sub(before);
        let holds = SharedHolds::of(&seen.stamps, kind.rule(), seen.start, seen.stop);
        let violations = holds.violations;
        // Figures of a lock that does not keep its promise would be of no use.
        ensure!(violations == 0, "{violations} times too many at once");
        let count: usize = seen.stamps.iter().map(Vec::len).sum();
        let each = |time: Duration| time.as_secs_f64() * 1e6 / number(count);
        Ok(Sample {
            holds,
            client: each(seen.cpu),
            server: each(server),
        })
    })
}

fn row(peer: Peer, hold: u64, samples: &[Sample]) -> [String; 9] {
    let violations: usize = samples.iter().map(|s| s.holds.violations).sum();
    [
        peer.name().to_owned(),
        hold.to_string(),
        with_spread(samples, |s| s.holds.per_second),
        with_spread(samples, |s| s.holds.wait_p50),
        short(middle(samples, |s| s.holds.wait_p99)),
        short(middle(samples, |s| s.holds.writers_p99)),
        short(middle(samples, |s| s.client)),
        short(middle(samples, |s| s.server)),
        violations.to_string(),
    ]
}

const TEXT: &str = "
Two processes of eight tasks each acquire the same name again and again, with empty holds and with holds of a millisecond: a
semaphore of four permits, one for each hold, and a read-write lock with 95 % or 50 % of reads. A formula that all sides share
decides which hold of a task reads. The times of client and server are processor time for each acquisition with its release.

The semaphores promise different things. Permits of tidelock's `Semaphore` and of Curator come back when their process dies. Redisson's
`RPermitExpirableSemaphore` without a lease time keeps a permit of a dead process until somebody removes it, and neither
`RSemaphore` nor `CountingSemaphore` knows its holders.

The servers are as in W9. The stamps of each round are checked: a side that lets too many hold at once is left out.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_name_of_its_own() {
        let mut names: Vec<String> = ON_REDIS.map(Kind::name).into();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ON_REDIS.len());
    }

    #[test]
    fn a_side_that_has_no_writers_has_a_dash_for_them() {
        let holds = SharedHolds::of(&[], Rule::Permits(1), 0, 1_000);
        let (client, server) = (5.0, 7.0);
        let row = row(
            Peer::Tidelock,
            1,
            &[Sample {
                holds,
                client,
                server,
            }],
        );
        assert_eq!(row[1], "1");
        assert_eq!(row[5..], ["–", "5.00", "7.00", "0"]);
    }
}
