//! Two Java and two Rust processes in one fair queue, under load, while other processes of both kinds are killed and
//! frozen. The order is checked against the list that the server has.

use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::java::{HammerPlan, JavaPeer, PeerOptions, RedissonVersion, WordFile};
use testkit::process::Spawned;
use testkit::servers::RedisServer;

use crate::load::{Load, hammer_on};

/// The lease of the processes that are killed and frozen: if one of them holds the lock, the others wait for its end.
const VICTIM_LEASE: Duration = Duration::from_millis(1500);
const SOON: Duration = Duration::from_secs(20);

with_each_redisson!(t73_killed_processes_leave_a_mixed_fair_queue_in_its_order);

/// 2,000 acquisitions, and those of two processes that are killed.
fn t73_killed_processes_leave_a_mixed_fair_queue_in_its_order(version: RedissonVersion) {
    share_a_queue(version, 250, &[Fault::KillRust, Fault::KillJava], 2);
}

/// What happens to a process that waits beside the four.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillRust,
    KillJava,
    /// For longer than it counts as alive.
    FreezeRust,
}

fn share_a_queue(version: RedissonVersion, rounds: u32, faults: &'static [Fault], most: usize) {
    let server = RedisServer::start().unwrap();
    let (monitor, began) = (Monitor::start(&server), Instant::now());
    let over = Arc::new(AtomicBool::new(false));
    let (url, ends) = (server.url(), Arc::clone(&over));
    let victims = thread::spawn(move || {
        let mut victims = BTreeSet::new();
        for fault in faults.iter().cycle() {
            if ends.load(Ordering::SeqCst) {
                break;
            }
            victims.insert(befall(&url, version, *fault));
            if victims.len() >= most {
                break;
            }
            // A dead thread of Redisson has its turn before the next one.
            thread::sleep(VICTIM_LEASE * 4);
        }
        victims
    });
    let load = Load {
        version,
        kind: "fair",
        rounds,
        rest: Duration::ZERO,
    };
    let done = hammer_on(&server.url(), load);
    over.store(true, Ordering::SeqCst);
    let victims = victims.join().unwrap();
    assert_eq!(done.holds, u64::from(rounds) * 8);
    let turns = monitor.turns(&server, &victims);
    println!(
        "{version:?}: {done:?}, {turns:?}, {} victims",
        victims.len()
    );
    println!(
        "figure: {} turns of a fair lock beside Redisson {} = {} s, {} processes killed or frozen, {} waiters overtaken, {} places lost",
        done.holds,
        version.number(),
        began.elapsed().as_secs(),
        victims.len(),
        turns.overtaken,
        turns.thrown_out + turns.late,
    );
    assert!(turns.granted >= done.holds, "{turns:?}");
    assert_eq!(turns.overtaken, 0, "{turns:?}");
    assert_eq!(turns.thrown_out, 0, "{turns:?}");
    // A thread that has queued and does not listen yet has a turn of a second. On a busy machine it may miss that turn,
    // and queues again.
    assert!(turns.late <= done.holds / 1000, "{turns:?}");
}

/// One process waits again and again, or holds the lock, until its fault. Returns the id of its client.
fn befall(url: &str, version: RedissonVersion, fault: Fault) -> String {
    match fault {
        Fault::KillJava => {
            let options = PeerOptions::new(version, url).watchdog(VICTIM_LEASE);
            let peer = JavaPeer::start_with(&options.quiet()).unwrap();
            let dir = tempfile::tempdir().unwrap();
            let word_file = dir.path().join("word");
            WordFile::create(&word_file).unwrap();
            let plan = HammerPlan {
                rounds: 1_000_000,
                threads: 3,
                word_file,
                hold: Duration::from_millis(1),
            };
            drop(peer.fair_lock("h", "load").begin_hammer(&plan).unwrap());
            thread::sleep(VICTIM_LEASE / 3);
            peer.client_id().to_owned()
        }
        Fault::KillRust | Fault::FreezeRust => {
            let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
            command.arg(url).arg(VICTIM_LEASE.as_millis().to_string());
            let mut peer = Spawned::start(command).unwrap();
            let ready = peer.wait_line("ready client=", SOON).unwrap();
            for _ in 0..3 {
                peer.write_line("hammer load 1000000 fair").unwrap();
            }
            thread::sleep(VICTIM_LEASE / 3);
            if matches!(fault, Fault::FreezeRust) {
                peer.freeze().unwrap();
                thread::sleep(VICTIM_LEASE * 5);
                peer.thaw().unwrap();
                thread::sleep(VICTIM_LEASE / 3);
            }
            peer.kill().unwrap();
            ready.split_once("client=").unwrap().1.to_owned()
        }
    }
}

/// The commands of all scripts, as the server shows them.
struct Monitor(JoinHandle<Vec<Vec<String>>>);

/// The last command that a monitor reads.
const END: &str = "the end of the load";

/// The order of the turns.
#[derive(Debug, Default)]
struct Turns {
    granted: u64,
    /// Grants to an owner behind another one that was not a victim.
    overtaken: u64,
    /// Owners that lost their place without a grant while they listened, and were no victims.
    thrown_out: u64,
    /// The same, before they listened.
    late: u64,
}

impl Monitor {
    fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(server.addr()).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "+OK");
        Self(thread::spawn(move || {
            let words = |line: String| -> Vec<String> {
                line.split('"')
                    .skip(1)
                    .step_by(2)
                    .map(str::to_owned)
                    .collect()
            };
            lines
                .map(words)
                .take_while(|words| words.last().is_none_or(|word| word != END))
                .filter(|words| words.len() > 1)
                .collect()
        }))
    }

    /// The turns of all until now.
    fn turns(self, server: &RedisServer, victims: &BTreeSet<String>) -> Turns {
        let _: String = server.query(&["ECHO", END]).unwrap();
        let mut replay = Replay {
            victims,
            queue: VecDeque::new(),
            listening: BTreeSet::new(),
            taken_out: None,
            granted: None,
            turns: Turns::default(),
        };
        for words in self.0.join().unwrap() {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            replay.apply(&words[0].to_ascii_lowercase(), &words[1..]);
        }
        replay.lose_place();
        replay.turns
    }
}

/// The queue, as the commands have changed it.
struct Replay<'a> {
    victims: &'a BTreeSet<String>,
    queue: VecDeque<String>,
    /// Threads of Redisson, processes of tidelock, and waiters of tidelock behind Redisson.
    listening: BTreeSet<String>,
    /// Redisson takes the head out of the queue and then grants it the lock, tidelock the other way round. With it,
    /// whether it listened.
    taken_out: Option<(String, bool)>,
    granted: Option<String>,
    turns: Turns,
}

const QUEUE: &str = "redisson_lock_queue:{load}";
const CHANNEL: &str = "redisson_lock__channel:{load}:";

impl Replay<'_> {
    fn apply(&mut self, command: &str, words: &[&str]) {
        match (command, words) {
            ("subscribe", [channel]) => {
                let owner = channel.strip_prefix(CHANNEL);
                self.listening.extend(owner.map(str::to_owned));
            }
            ("unsubscribe", [channel]) => {
                let owner = channel.strip_prefix(CHANNEL).unwrap_or_default();
                self.listening.remove(owner);
            }
            ("rpush", [QUEUE, owner]) => self.queue.push_back((*owner).to_owned()),
            ("lpush", [QUEUE, owner]) => self.queue.push_front((*owner).to_owned()),
            // A thread of Redisson has become the head, and leaves its old place.
            ("lrem", [QUEUE, "-1", owner]) => {
                let place = self.queue.iter().rposition(|queued| queued == owner);
                place.and_then(|place| self.queue.remove(place));
            }
            ("lpop" | "lrem", [QUEUE, rest @ ..]) => self.take_out(rest.last().copied()),
            ("hset", ["load", owner, "1"]) => self.grant(owner),
            _ => {}
        }
    }

    fn is_victim(&self, owner: &str) -> bool {
        self.victims.iter().any(|victim| owner.starts_with(victim))
    }

    /// `None`: the head.
    fn take_out(&mut self, owner: Option<&str>) {
        let gone = match owner {
            None => self.queue.pop_front(),
            Some(owner) => self
                .queue
                .iter()
                .position(|queued| queued == owner)
                .and_then(|place| self.queue.remove(place)),
        };
        if gone != self.granted
            && let Some(gone) = gone
        {
            self.lose_place();
            let process = gone.split(':').next().unwrap_or_default();
            let listens = self.listening.contains(&gone) || self.listening.contains(process);
            self.taken_out = Some((gone, listens));
        }
    }

    /// Counts the owner that was taken out and not granted the lock.
    fn lose_place(&mut self) {
        let Some((owner, listens)) = self.taken_out.take() else {
            return;
        };
        if self.is_victim(&owner) {
            return;
        }
        if listens {
            self.turns.thrown_out += 1;
        } else {
            self.turns.late += 1;
        }
    }

    fn grant(&mut self, owner: &str) {
        self.turns.granted += 1;
        let taken_out = self.taken_out.take_if(|(gone, _)| gone == owner);
        let was_taken_out = taken_out.is_some();
        let ahead = if was_taken_out {
            0
        } else {
            let place = self.queue.iter().position(|queued| queued == owner);
            place.unwrap_or(self.queue.len())
        };
        let mut ahead = self.queue.iter().take(ahead);
        let overtaken = ahead.any(|queued| !self.is_victim(queued));
        self.turns.overtaken += u64::from(overtaken);
        if !was_taken_out {
            self.granted = Some(owner.to_owned());
        }
    }
}

mod full {
    use super::{Fault, RedissonVersion};

    const ALL: &[Fault] = &[Fault::KillRust, Fault::FreezeRust, Fault::KillJava];

    macro_rules! each {
        ($($test:ident: $version:ident, $faults:expr;)+) => {
            $(
                #[test]
                #[ignore = "10,400 acquisitions with each of five versions; cargo xtask compatibility"]
                fn $test() {
                    super::share_a_queue(RedissonVersion::$version, 1300, $faults, 6);
                }
            )+
        };
    }

    each!(
        t73_a_fair_queue_with_newest_keeps_its_order: Newest, ALL;
        t73_a_fair_queue_with_3_52_0_keeps_its_order: V3_52_0, ALL;
        t73_a_fair_queue_with_3_27_2_keeps_its_order: V3_27_2, ALL;
        t73_a_fair_queue_with_3_15_6_keeps_its_order: V3_15_6, ALL;
        t73_a_fair_queue_with_3_12_5_keeps_its_order: V3_12_5, ALL;
    );
}
