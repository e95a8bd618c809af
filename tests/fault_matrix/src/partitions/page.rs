//! Renders the results as a page.

use std::fmt::Write as _;
use std::time::Duration;

use testkit::hosts::{Network, SLOW_LINE};
use time::OffsetDateTime;

use super::{KINDS, Results, Scenario, Seen};
use crate::stage::Outcome;
use crate::world::Topology;

const HEAD: &str = "# Partitions of a network

Written by `cargo xtask partitions --seeds N --write docs/partitions.md`; `--seed 7 --seeds 1` repeats the run of a seed.

Each server and each of three client processes has a host of its own: a network namespace with an address. A switch connects
the hosts, and drops all frames from some of them to some others. In the processes, tasks hold a lock for a moment, for about
a lease of 2 s, or always, campaign in an election, and run a job once per slot (RedLock has neither of the last two, and no tokens). At a random
moment the network is parted for one to three leases. Then it is whole again, and every process must get its locks within 30 s.
The checkers of [the fault matrix](faults.md) judge the histories. One check here does not ask the guards: a process to which nobody can
confirm a lock does not act on one for longer than a lease. While only one client is cut off or has vanished, the others must get a free lock
as quickly as without the partition.

*Leader* is the primary under Sentinel, the primary of the longest lock's shard in the Cluster, two of the five servers of RedLock,
the leader of etcd and of ZooKeeper. *Follower* is a replica, under Sentinel together with a sentinel; of RedLock a third server.
The *client* is the one that holds the lock that is held longest.

";

const PROMISED: &str = "
## What is promised

| topology | promise | in the sense of |
| --- | --- | --- |
| Sentinel, `any` | without a failover one holder. A failover may grant a lock to another that the promoted replica did not acknowledge; the holder is told at the next renewal, and for a fraction of a second both may hold it. If a replica is cut off together with the primary, it goes on acknowledging: then each side of the partition may have a holder until the network is whole | [replicas](guarantees.md#replicas), [Sentinel](guarantees.md#sentinel) |
| Sentinel, `all` | one holder, growing tokens, told before the next grant | the same |
| Cluster | the same: each shard has one replica, so `any` is `all` | [Cluster](guarantees.md#cluster) |
| RedLock | one holder, told before the next grant | [when a server fails](guarantees.md#when-a-server-fails) |
| etcd, ZooKeeper | one holder, growing tokens, told before the next grant | [one holder](guarantees.md#one-holder) |

";

const COLUMNS: &str = "
## What was seen

*two at once*: how often two processes acted on one lock at the same time, and for how long at most. *lost*: holds that were lost, and
how many of them were told after the next grant. *nobody*: the longest time without a holder of a lock that several wanted, from the begin
of the partition on. *again*: the longest time from its end until every process had got each of its locks, in turns: two to three seconds of it
are the turns of the others.

";

pub(super) fn page(results: &Results, took: Duration) -> String {
    let mut text = String::from(HEAD);
    let now = OffsetDateTime::now_utc();
    let _ = writeln!(
        text,
        "- date: {}, in {} minutes",
        now.date(),
        took.as_secs() / 60
    );
    let _ = writeln!(text, "- {}", totals(results));
    for (topology, version) in &results.versions {
        let _ = writeln!(text, "- {topology}: {version}");
    }
    let slow = if Network::delays() {
        "a delay of 50 to 400 ms on what goes to the leader".to_owned()
    } else {
        format!(
            "this kernel cannot delay packets (no `netem`), so what goes to the leader passes a line of {SLOW_LINE} kbit/s, where it waits for what came before"
        )
    };
    let _ = writeln!(text, "- *leader slow*: {slow}");
    text.push_str("- not done: clocks of single hosts that run fast or slow (the [fault matrix](faults.md) steps them on one host); Redisson in the same scenarios\n");
    text.push_str(PROMISED);
    red(&mut text, results);
    text.push_str(COLUMNS);
    table(&mut text, results);
    text
}

pub(super) fn totals(results: &Results) -> String {
    let runs = results.played.iter().map(|(_, run)| run);
    let (mut grants, mut red) = (0, 0);
    let mut seen = Seen::default();
    for run in runs {
        grants += run.grants;
        red += usize::from(!run.breaches.is_empty());
        seen = seen.and(run.seen);
    }
    format!(
        "{} runs with {grants} grants and {} losses; {red} broke a promise. In {} of them the machine was so busy that servers \
         chose a new leader although nothing was cut, which is judged as one more outage",
        results.played.len(),
        seen.losses,
        seen.disturbed
    )
}

fn red(text: &mut String, results: &Results) {
    let is_red = |run: &&(Scenario, Outcome)| !run.1.breaches.is_empty();
    for (number, (scenario, outcome)) in results.played.iter().filter(is_red).enumerate() {
        if number == 0 {
            text.push_str("\n## Red\n\n");
        }
        let (topology, kind) = (scenario.topology, scenario.story.name);
        let _ = writeln!(
            text,
            "- {topology}, {kind}: `cargo xtask partitions --seed {} --seeds 1`",
            scenario.seed
        );
        for breach in outcome.breaches.iter().take(3) {
            let how = breach.to_string().replace('\n', " ");
            let _ = writeln!(text, "  - {how}");
        }
    }
}

fn table(text: &mut String, results: &Results) {
    text.push_str("| topology | partition | runs | grants | two at once | lost, told late | nobody | again | |\n");
    text.push_str("| --- | --- | ---: | ---: | --- | --- | ---: | ---: | --- |\n");
    for topology in Topology::ALL {
        for kind in &KINDS {
            let own = results.played.iter().filter(|(scenario, _)| {
                scenario.topology == topology && scenario.story.name == kind.name
            });
            let own: Vec<&Outcome> = own.map(|(_, run)| run).collect();
            if !own.is_empty() {
                row(text, topology, kind.name, &own);
            }
        }
    }
}

fn row(text: &mut String, topology: Topology, kind: &str, runs: &[&Outcome]) {
    let seen = runs
        .iter()
        .fold(Seen::default(), |all, run| all.and(run.seen));
    let grants: usize = runs.iter().map(|run| run.grants).sum();
    let red = runs.iter().any(|run| !run.breaches.is_empty());
    let overlaps = match seen.overlaps {
        0 => "never".to_owned(),
        count => format!("{count}, {}", seconds(seen.longest_overlap)),
    };
    let _ = writeln!(
        text,
        "| {topology} | {kind} | {} | {grants} | {overlaps} | {}, {} | {} | {} | {} |",
        runs.len(),
        seen.losses,
        seen.told_late,
        seconds(seen.without),
        seconds(seen.served_after),
        if red { "**red**" } else { "kept" },
    );
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
