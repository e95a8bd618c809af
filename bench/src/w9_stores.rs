//! W9: tidelock on each store beside the usual lock of that store.

mod launched;
mod store;

use std::time::Duration;

use anyhow::{Result, ensure};
use load::Names;
use testkit::foreign::Bench;

use crate::contention::Contention;
use crate::figures::{micros, middle, number, per_second, percentile, ratio, short, with_spread};
use crate::goals::Goal;
use crate::machine;
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::process::Process;
use crate::stage::{Load, Samples, Seen, Stage, Team};
use crate::w9_stores::store::{Server, Store};

/// One task in each, so that every turn is the store's: nothing can be handed on within a process.
const PROCESSES: usize = 4;
/// How many tasks of one process have a name each.
const MANY: usize = 64;

/// One side in one round.
#[derive(Debug)]
struct Sample {
    /// The time for one pair without contention, in microseconds.
    p50: f64,
    /// Pairs of many tasks without contention.
    pairs: f64,
    /// One name for all processes.
    hot: Contention,
}

/// What was measured on one store.
struct Found {
    store: Store,
    version: String,
    samples: Samples<Sample>,
    /// Requests or statements for each turn of the hot name.
    sent: Vec<(Peer, f64)>,
}

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let mut section = Section {
        title: "W9: each store beside its usual lock",
        text: TEXT.into(),
        ..Section::default()
    };
    let mut all = Vec::new();
    for store in Store::ALL {
        match on_store(stage, store) {
            Ok(found) => all.push(found),
            // The other stores are worth measuring.
            Err(error) => stage.leave_out("W9", Peer::Tidelock, &error.context(store.name())),
        }
    }
    ensure!(!all.is_empty(), "no store could be measured");
    section.tables = vec![
        (String::new(), table(&all)),
        (
            "tidelock against each peer, above 1 if tidelock is faster; the median of the ratios of each round:".into(),
            against(&all),
        ),
    ];
    section.goals = goals(&all);
    launched::measure(stage, &mut section);
    section.tables.push((
        "The sides that only this section has:".into(),
        machine::peers(&PEERS),
    ));
    Ok(section)
}

/// The peers that the page does not describe elsewhere.
const PEERS: [Peer; 7] = [
    Peer::Foreign(Bench::Curator),
    Peer::Foreign(Bench::EtcdConcurrency),
    Peer::Etcdctl,
    Peer::Session,
    Peer::Advisory,
    Peer::LeaseTable,
    Peer::Flock,
];

fn on_store(stage: &mut Stage, store: Store) -> Result<Found> {
    let server = Server::start(store)?;
    let mut teams = Vec::new();
    for &peer in store.sides() {
        match team(&server, peer) {
            Ok(team) => teams.push(team),
            Err(error) => stage.leave_out("W9", peer, &error),
        }
    }
    let (warm, long) = if stage.args.quick {
        (100, 200)
    } else {
        (250, 500)
    };
    let [warm, long] = [warm, long].map(Duration::from_millis);
    stage.each("W9", &mut teams, |stage, team| {
        let warm = warm * team.peer.warm_up();
        stage.run(team, &own(MANY, warm))?;
        stage.run(team, &own(1, warm))?;
        stage.run(team, &hot(warm))
    });
    let sent = stage.each("W9", &mut teams, |stage, team| {
        let counting = server.count(&format!("hot {}", team.peer.word()))?;
        let seen = stage.run(team, &hot(long));
        // The count ends whatever became of the load: a server that goes on counting is slower in all later rounds.
        let sent = server.counted(counting)?;
        let turns: usize = seen?.stamps.iter().map(Vec::len).sum();
        Ok(sent / number(turns))
    });
    let samples = stage.rounds("W9", &mut teams, |stage, team| {
        let alone = stage.run(team, &own(1, long / 2))?;
        let many = stage.run(team, &own(MANY, long / 2))?;
        let turns = stage.run(team, &hot(long))?;
        sample(&alone, &many, &turns)
    });
    Ok(Found {
        store,
        version: server.version()?,
        samples,
        sent,
    })
}

fn team(server: &Server, peer: Peer) -> Result<Team> {
    let start = |_| Process::start(server.command(peer)?);
    let processes: Result<Vec<Process>> = (0..PROCESSES).map(start).collect();
    Ok(Team {
        peer,
        processes: processes?,
    })
}

/// Tasks of one process with a name each.
fn own(tasks: usize, time: Duration) -> Load<'static> {
    Load {
        processes: 1,
        tasks,
        names: Names::Own,
        name: "own",
        hold: Duration::ZERO,
        time,
    }
}

/// One task in each process, and one name.
fn hot(time: Duration) -> Load<'static> {
    Load {
        processes: PROCESSES,
        tasks: 1,
        names: Names::One,
        name: "hot",
        hold: Duration::ZERO,
        time,
    }
}

fn sample(alone: &Seen, many: &Seen, turns: &Seen) -> Result<Sample> {
    let pairs = alone.stamps.iter().flatten();
    let mut times: Vec<u64> = pairs.map(|stamp| stamp.left - stamp.asked).collect();
    times.sort_unstable();
    let done = many.stamps.iter().flatten();
    let in_time = done.filter(|stamp| stamp.left <= many.stop).count();
    let hot = Contention::of(&turns.stamps, 1, turns.start, turns.stop);
    // Figures of a lock that does not exclude would be of no use.
    ensure!(hot.overlaps == 0, "{} holds overlapped", hot.overlaps);
    Ok(Sample {
        p50: micros(percentile(&times, 0.5)),
        pairs: per_second(in_time, Duration::from_nanos(many.stop - many.start)),
        hot,
    })
}

fn table(all: &[Found]) -> Table {
    let mut table = Table::new(&[
        "store",
        "",
        "uncontended p50 µs",
        "64 names, pairs/s",
        "one name, turns/s",
        "requests a turn",
        "share of processes",
        "longest wait ms",
        "overlaps",
    ]);
    for found in all {
        for (peer, samples) in &found.samples {
            let sent = found.sent.iter().find(|(of, _)| of == peer);
            let overlaps: usize = samples.iter().map(|s| s.hot.overlaps).sum();
            table.row([
                format!("{} {}", found.store.name(), found.version),
                peer.name().to_owned(),
                with_spread(samples, |s| s.p50),
                with_spread(samples, |s| s.pairs),
                with_spread(samples, |s| s.hot.per_second),
                sent.map_or_else(|| "–".to_owned(), |(_, each)| short(*each)),
                short(middle(samples, |s| s.hot.process_share)),
                short(middle(samples, |s| s.hot.longest_wait)),
                overlaps.to_string(),
            ]);
        }
    }
    table
}

/// How many times as fast tidelock is.
struct Speed {
    alone: f64,
    pairs: f64,
    turns: f64,
}

fn speed(ours: &[Sample], theirs: &[Sample]) -> Speed {
    Speed {
        alone: ratio(theirs, ours, |s| s.p50),
        pairs: ratio(ours, theirs, |s| s.pairs),
        turns: ratio(ours, theirs, |s| s.hot.per_second),
    }
}

/// The speed of each lock of tidelock against each of the others on its store.
fn speeds(found: &Found) -> Vec<(Peer, Peer, Speed)> {
    let is_ours = |peer: Peer| matches!(peer, Peer::Tidelock | Peer::Session);
    let (ours, theirs): (Vec<_>, Vec<_>) =
        found.samples.iter().partition(|(peer, _)| is_ours(*peer));
    let mut all = Vec::new();
    for (one, samples) in ours {
        for (other, others) in &theirs {
            all.push((*one, *other, speed(samples, others)));
        }
    }
    all
}

fn against(all: &[Found]) -> Table {
    let mut table = Table::new(&[
        "store",
        "",
        "against",
        "uncontended",
        "64 names, pairs/s",
        "one name, turns/s",
    ]);
    for found in all {
        for (one, other, speed) in speeds(found) {
            table.row([
                found.store.name().to_owned(),
                one.name().to_owned(),
                other.name().to_owned(),
                short(speed.alone),
                short(speed.pairs),
                short(speed.turns),
            ]);
        }
    }
    table
}

/// On plain keys tidelock has to be as fast as libraries that promise less: they do not renew.
fn goals(all: &[Found]) -> Vec<Goal> {
    let mut goals = Vec::new();
    for found in all.iter().filter(|found| found.store == Store::RedisPlain) {
        for (_, peer, speed) in speeds(found) {
            let figures = [
                ("uncontended", speed.alone),
                ("pairs/s of 64 names", speed.pairs),
                ("turns/s of one name", speed.turns),
            ];
            for (what, measured) in figures {
                goals.push(Goal::at_least(
                    format!("W9, `?locks=plain`: {what} against {}", peer.name()),
                    1.0,
                    " ×",
                    Some(measured),
                ));
            }
        }
    }
    goals
}

const TEXT: &str = "
tidelock on each store beside the usual lock of that store, on the same server and in turns. Three loads: one task acquires and
releases alone; 64 tasks of one process acquire a name each; four processes of one task each acquire the same name again and
again, with empty holds. Each of the four has only one task, so no process can hand the lock on within itself, and the store makes every turn.

The servers are those of the tests: their data is in memory if there is room for it. PostgreSQL, etcd and ZooKeeper do not call
`fsync`, MariaDB does not call it at each commit, and the JVM of ZooKeeper uses only its first compiler. On a disk each write
takes longer, and locks that write nothing, such as advisory locks, do not. On PostgreSQL tidelock has two connections for all
tasks, and a third while it waits; by hand each task has one. MariaDB's own `GET_LOCK` was not measured.

Read the turns together with the share (the holds of the process with the fewest, divided by those of the process with the most)
and the longest wait. While a
peer sleeps between two attempts, the process that has just released acquires again without a rival: many turns, a small share, long
waits. tidelock pauses after some turns so that other processes get the lock, and these pauses cost turns.

The cores are not kept awake here, nor in W10. A client with a thread of its own (tidelock on most stores) hands each request from
thread to thread, and beside a process that never sleeps the scheduler of Linux 6.18 made one of them wait for 4 ms at times.

The requests of a turn were counted by the server in a separate run that was not timed: by `MONITOR` on Redis, `packets_received`
on ZooKeeper, received gRPC messages on etcd, logged statements on PostgreSQL, and `Questions` on MariaDB. The requests of the
waiters are among them.
";

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "no rounding in small whole numbers")]
mod tests {
    use super::*;

    fn sample(p50: f64, pairs: f64, per_second: f64) -> Sample {
        let hot = Contention {
            per_second,
            ..Contention::of(&[], 1, 0, 1)
        };
        Sample { p50, pairs, hot }
    }

    fn found(store: Store) -> Found {
        Found {
            store,
            version: "1".into(),
            samples: vec![
                (Peer::Tidelock, vec![sample(50.0, 900.0, 30.0)]),
                (
                    Peer::Foreign(Bench::Rslock),
                    vec![sample(100.0, 300.0, 60.0)],
                ),
            ],
            sent: vec![(Peer::Tidelock, 2.0)],
        }
    }

    #[test]
    fn twice_as_fast_is_two_in_times_and_in_rates() {
        let found = found(Store::Etcd);
        let speeds = speeds(&found);
        let (one, other, speed) = &speeds[0];
        assert_eq!(speeds.len(), 1);
        assert_eq!(
            (*one, *other),
            (Peer::Tidelock, Peer::Foreign(Bench::Rslock))
        );
        assert_eq!((speed.alone, speed.pairs, speed.turns), (2.0, 3.0, 0.5));
    }

    #[test]
    fn only_plain_keys_have_a_target() {
        assert!(goals(&[found(Store::Etcd)]).is_empty());
        let goals = goals(&[found(Store::RedisPlain)]);
        let missed = goals.iter().map(|goal| goal.row().pop().unwrap());
        assert_eq!(
            missed.collect::<Vec<_>>(),
            ["met", "met", "**missed** by 2.00 ×"]
        );
    }

    #[test]
    fn a_side_that_was_not_counted_has_a_dash() {
        let text = table(&[found(Store::Etcd)]).markdown();
        assert!(
            text.contains("| etcd 1 | tidelock | 50.0 | 900 | 30.0 | 2.00 |"),
            "{text}"
        );
        assert!(
            text.contains("| etcd 1 | rslock (Rust) | 100 | 300 | 60.0 | – |"),
            "{text}"
        );
    }
}
