//! Renders the results as a page.

use std::fmt::Write as _;
use std::time::Duration;

use testkit::hosts::{Network, SLOW_LINE};
use testkit::java::RedissonVersion;
use time::OffsetDateTime;

use super::{KINDS, Results, Scenario, Seen};
use crate::stage::{Outcome, RECOVERY};
use crate::world::Topology;

const HEAD: &str = "# Partitions of a network

Written by `cargo xtask partitions --seeds N --redisson --write docs/partitions.md`; `--seed 7 --seeds 1` repeats the run of a seed, and
`--seeds 0 --redisson --topology cluster --kind \"client isolated\"` one of Redisson.

Each server and each of three client processes has a host of its own: a network namespace with an address. A switch connects
the hosts, and drops all frames from some of them to some others. In the processes, tasks hold a lock for a moment, for about
a lease of 2 s (while the network is parted, for two to three leases), or always, campaign in an election, and run a job once per slot (RedLock has neither of the last two, and no tokens). At a random
moment the network is parted for one to three leases. Then it is whole again, and every process must get its locks within 30 s.
The checkers of [the fault matrix](faults.md) judge the histories. One check here does not ask the guards: a process to which nobody can
confirm a lock does not act on one for longer than a lease. While only one client is cut off or has vanished, the others must get a free lock
as quickly as without the partition. Servers that have just started may answer late until every process has had its locks once.

*Leader* is the primary under Sentinel, the primary of the longest lock's shard in the Cluster, two of the five servers of RedLock,
the leader of etcd and of ZooKeeper. *Follower* is a replica, under Sentinel together with a sentinel; of RedLock a third server.
The *client* is the one that currently holds the lock with the longest holds.

*Clocks* of single hosts are changed in the running programs. A clock that is *set* is a wall clock that jumps by 4 s, two leases, for one to three leases
(that of a client: an hour ahead, then an hour back). A *fast* or *slow* clock is a wall clock and a monotonic clock that both run at 1.009 or 0.991 times the true rate, which
is within the drift that the library allows for (1 % and 2 ms), or at 1.25 or 0.8 times, which is beyond it. While it does, the client that has just got the
lock is cut off from all others for two leases, and the others ask for that lock every quarter of a second. In RedLock *leader* means
three of the five servers here, since two clocks decide nothing.

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

A clock changes that as follows. Tokens grow and every process gets its locks again in all cases.

| clock | Redis | etcd, ZooKeeper |
| --- | --- | --- |
| set ahead, or corrected after it was behind | all leases of that server end at once. The holder is told at its next renewal; until then another may hold the lock too. With RedLock this happens only if the clocks of a majority jump. A server of RedLock that has restarted with its clock behind may vote [too early](guarantees.md#redlock) when the clock is set right | as without it: leases count by the monotonic clock of the leader |
| set back | leases last longer by as much | as without it |
| fast within the drift | as without it | as without it |
| fast beyond the drift | a client that cannot renew acts until a lease less the drift has passed on its own clock. Its lease may have ended in the store, here 0.4 s earlier. Whoever renews in time is not concerned | the same |
| slow within or beyond the drift | the locks of a client that vanished are free later | the same |
| that of a follower, ahead | nothing until it leads; then as *set ahead* | as without it |
| wall clock of a client | as without it | as without it |

";

const PLANTED: &str = "## Planted bugs

`cargo test -p fault_matrix --test partitions` plants each of these bugs, and fails if the checkers do not find it. It needs root, as the runs do.
The bugs are in the client processes or in the clock of a host, not in the library.

| planted bug | topology | partition | what the checkers see | test |
| --- | --- | --- | --- | --- |
| the clients act on locks that they have lost | etcd | client isolated | an act after the host had been cut off | `a_client_that_acts_after_its_deadline_is_found` |
| a client takes two of the five servers for a majority | RedLock | leader isolated with a client | two holders | `a_lock_that_a_minority_granted_is_found` |
| the clients do not wait until the replicas have acknowledged a grant | Sentinel, `all` | leader isolated with a client | two holders | `a_lock_that_no_replica_acknowledged_is_found` |
| a clock runs at 1.25 times the true rate, and counts as within the drift | Cluster | leader's clock fast within the drift, client isolated | two holders | `a_clock_that_runs_faster_than_the_drift_is_found` |
";

const NOT_HERE: &str = "- not here: *a ZooKeeper whose clock runs fast or slow*, since a JVM sleeps until instants that the kernel counts by the true clock, so its \
     sessions would end too late and not too early; *a client whose clock runs slow*. What counts is the rate of the store's clock against the client's, so a slow client is \
     the client that is cut off while the clock of the store is fast. Its own alarms are instants for the kernel too\n";

const COLUMNS: &str = "
## What was seen

*two at once*: how often two processes acted on one lock at the same time, and for how long at most. *lost*: holds that were lost, and
how many of them were told after the next grant. *nobody*: the longest time without a holder of a lock that several wanted, from the begin
of the partition on. *again*: the longest time from its end until every process had got each of its locks, in turns: two to three seconds of it
are the turns of the others.
";

const BESIDE: &str = "
*Redisson*: *two at once*, holds that had been lost when `unlock` was called, *nobody* and *again* in one run of the same scenario with three Redisson clients in place of ours, which take the same locks with a
`lockWatchdogTimeout` of 2 s and Redisson's defaults otherwise. By default a grant must reach one replica, as with `any`; there is no `all`. In RedLock it is
`RedissonRedLock`. Redisson tells nobody of a loss, so a holder believes in its lock from the return of `tryLock` until it calls `unlock`. It promises
nothing of all this, and is not judged. A dot: not run.
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
    text.push_str(NOT_HERE);
    text.push_str(PROMISED);
    text.push_str(PLANTED);
    red(&mut text, results);
    text.push_str(COLUMNS);
    if !results.beside.is_empty() {
        text.push_str(BESIDE);
    }
    text.push('\n');
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
    text.push_str(
        "| topology | partition | runs | grants | two at once | lost, told late | nobody | again | |",
    );
    let mut line = String::from("\n| --- | --- | ---: | ---: | --- | --- | ---: | ---: | --- |");
    if !results.beside.is_empty() {
        let _ = write!(text, " Redisson {} |", RedissonVersion::Newest.number());
        line.push_str(" --- |");
    }
    text.push_str(&line);
    text.push('\n');
    for topology in Topology::ALL {
        for kind in &KINDS {
            let own = results.played.iter().filter(|(scenario, _)| {
                scenario.topology == topology && scenario.story.name == kind.name
            });
            let own: Vec<&Outcome> = own.map(|(_, run)| run).collect();
            if !own.is_empty() {
                row(text, topology, kind.name, &own);
                let mut beside = results.beside.iter().filter(|(scenario, _)| {
                    scenario.topology == topology && scenario.story.name == kind.name
                });
                if !results.beside.is_empty() {
                    let cell = beside.next().map(|(_, run)| cell(run));
                    let _ = write!(text, " {} |", cell.as_deref().unwrap_or("·"));
                }
                text.push('\n');
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
    let overlaps = overlaps(&seen);
    let _ = write!(
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

fn overlaps(seen: &Seen) -> String {
    match seen.overlaps {
        0 => "never".to_owned(),
        count => format!("{count}, {}", seconds(seen.longest_overlap)),
    }
}

/// What Redisson did.
fn cell(run: &Outcome) -> String {
    let seen = run.seen;
    if run.grants == 0 {
        return "did not run".to_owned();
    }
    let again = match seen.unserved {
        0 => seconds(seen.served_after),
        _ => format!("not within {} s", RECOVERY.as_secs()),
    };
    let nobody = seconds(seen.without);
    let over = seen.over_at_unlock;
    format!("{}; {over}; {nobody}; {again}", overlaps(&seen))
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::PLANTED;
    use crate::planted;

    /// Without it the page would name a test that was renamed, and lack a bug that was added.
    #[test]
    fn the_page_names_the_test_of_each_planted_bug() {
        let bugs = planted::in_tests(include_str!("../../tests/partitions.rs"));
        assert_eq!(PLANTED.matches("` |\n").count(), bugs.len());
        for (_, test) in bugs {
            assert!(PLANTED.contains(&format!("| `{test}` |\n")), "{test}");
        }
        let page = include_str!("../../../../docs/partitions.md");
        assert!(page.contains(PLANTED));
    }
}
