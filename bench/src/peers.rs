//! The peers that are measured, and the facts a reader needs to interpret their figures.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use testkit::foreign::Bench;

/// A lock library, through its own client, or a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    Raw,
    /// The calls of Redisson's two scripts, in the place of [`Peer::Raw`].
    RedissonScripts,
    Tidelock,
    /// tidelock in a program with a recorder of metrics.
    Recorded,
    /// tidelock of another commit: a `bench-peer` that was built there.
    Before,
    /// tidelock with hand-off switched off: no lock passes from task to task within a process.
    NoHandOff,
    Mutex,
    /// tidelock on the advisory locks of PostgreSQL.
    Session,
    /// The advisory locks of PostgreSQL by hand.
    Advisory,
    /// A table of leases on MySQL by hand, with the statements of `ShedLock`.
    LeaseTable,
    /// The program `flock`.
    Flock,
    /// The program `etcdctl`.
    Etcdctl,
    Foreign(Bench),
}

/// The program of [`Peer::Before`], from the command line.
static BEFORE: OnceLock<PathBuf> = OnceLock::new();

/// The facts for the table of peers.
pub(crate) struct Facts {
    pub(crate) name: &'static str,
    pub(crate) tasks: &'static str,
    pub(crate) waits: &'static str,
    /// Whether the library renews a held lock.
    pub(crate) renews: bool,
    /// The settings that differ from the library's defaults, and why.
    pub(crate) tuned: &'static str,
}

impl Peer {
    /// All peers that keep locks in a store, in the order of the tables.
    pub(crate) const ALL: [Self; 10] = [
        Self::Raw,
        Self::Tidelock,
        Self::Foreign(Bench::Redisson),
        Self::Foreign(Bench::Redsync),
        Self::Foreign(Bench::Redislock),
        Self::Foreign(Bench::NodeRedlock),
        Self::Foreign(Bench::RedisPy),
        Self::Foreign(Bench::Rslock),
        Self::Foreign(Bench::DistributedLock),
        Self::Foreign(Bench::RedissonRs),
    ];

    /// The peers that can wait for a name, plus tidelock without hand-off as a baseline. The bare scripts cannot wait.
    pub(crate) fn that_wait(peers: &[Self]) -> Vec<Self> {
        let mut waiting = Vec::new();
        for &peer in peers.iter().filter(|peer| **peer != Self::Raw) {
            waiting.push(peer);
            if peer == Self::Tidelock {
                waiting.push(Self::NoHandOff);
            }
        }
        waiting
    }

    /// The name on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::RedissonScripts => "redisson-scripts",
            Self::Tidelock | Self::Before => "tidelock",
            Self::Recorded => "tidelock-recorded",
            Self::NoHandOff => "tidelock-no-hand-off",
            Self::Mutex => "mutex",
            Self::Session => "tidelock-session",
            Self::Advisory => "advisory",
            Self::LeaseTable => "lease-table",
            Self::Flock => "flock",
            Self::Etcdctl => "etcdctl",
            Self::Foreign(bench) => bench.word(),
        }
    }

    pub(crate) fn of_word(word: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|peer| peer.word() == word);
        found.with_context(|| {
            let known = Self::ALL.map(Self::word).join(", ");
            format!("{word} is none of {known}")
        })
    }

    /// Sets the program of [`Peer::Before`].
    pub(crate) fn set_before(program: PathBuf) {
        BEFORE.get_or_init(|| program);
    }

    /// The command that starts the peer against the server at `url`. Builds the peer first if necessary.
    pub(crate) fn command(self, url: &str) -> Result<Command> {
        match self {
            Self::Foreign(bench) => bench.command(url),
            Self::Before => {
                let program = BEFORE.get().context("--before is missing")?;
                Ok(process(program, self.word(), url))
            }
            _ => ours(self.word(), url),
        }
    }

    /// A factor for the warm-up time. A JVM needs longer because it compiles code only once it is hot.
    pub(crate) fn warm_up(self) -> u32 {
        match self {
            Self::Foreign(Bench::Redisson | Bench::Curator) => 6,
            Self::Foreign(Bench::NodeRedlock) => 2,
            _ => 1,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.facts().name
    }

    pub(crate) fn facts(self) -> Facts {
        match self {
            Self::Raw => Facts {
                name: "bare scripts",
                tasks: "tokio tasks, one connection",
                waits: "not at all",
                renews: false,
                tuned: "",
            },
            Self::RedissonScripts => Facts {
                name: "Redisson's scripts",
                ..Self::Raw.facts()
            },
            Self::Tidelock => Facts {
                name: "tidelock",
                tasks: "tokio tasks, two threads",
                waits: "woken",
                renews: true,
                tuned: "",
            },
            Self::Recorded => Facts {
                name: "tidelock with metrics",
                tuned: "a Prometheus recorder is installed",
                ..Self::Tidelock.facts()
            },
            Self::Before => Facts {
                name: "tidelock before",
                tuned: "another commit's build",
                ..Self::Tidelock.facts()
            },
            Self::NoHandOff => Facts {
                name: "tidelock without hand-off",
                tuned: "each turn is the store's: `HandOff::OFF`",
                ..Self::Tidelock.facts()
            },
            Self::Mutex => Facts {
                name: "`tokio::sync::Mutex`",
                tasks: "tokio tasks, two threads",
                waits: "woken",
                renews: false,
                tuned: "",
            },
            Self::Session | Self::Advisory | Self::LeaseTable | Self::Flock | Self::Etcdctl => {
                self.on_other_stores()
            }
            Self::Foreign(bench) => foreign(bench),
        }
    }

    fn on_other_stores(self) -> Facts {
        let by_hand = Facts {
            name: "",
            tasks: "tokio tasks, a connection each",
            waits: "woken",
            renews: false,
            tuned: "",
        };
        let program = Facts {
            tasks: "processes",
            ..by_hand
        };
        match self {
            Self::Session => Facts {
                name: "tidelock, `?locks=session`",
                ..Self::Tidelock.facts()
            },
            Self::Advisory => Facts {
                name: "`pg_advisory_lock` by hand",
                tuned: "no lease: the lock lives as long as its session, and no holder is told of a loss",
                ..by_hand
            },
            Self::LeaseTable => Facts {
                name: "ShedLock's statements by hand",
                waits: "asks again every 100 ms",
                tuned: "ShedLock itself does not wait: it skips the work; lease 30 s (it has no default)",
                ..by_hand
            },
            Self::Flock => Facts {
                name: "`flock`",
                tuned: "no lease: the kernel frees the lock when its processes have ended",
                ..program
            },
            _ => Facts {
                name: "`etcdctl lock`",
                renews: true,
                ..program
            },
        }
    }
}

fn foreign(bench: Bench) -> Facts {
    match bench {
        Bench::Redisson => Facts {
            name: "Redisson (Java)",
            tasks: "threads",
            waits: "woken",
            renews: true,
            tuned: "",
        },
        Bench::Redsync => Facts {
            name: "redsync (Go)",
            tasks: "goroutines",
            waits: "asks again after 50 to 250 ms",
            renews: false,
            tuned: "tries without end (32 by default); lease 30 s (8)",
        },
        Bench::Redislock => Facts {
            name: "bsm/redislock (Go)",
            tasks: "goroutines",
            waits: "asks again every 100 ms",
            renews: false,
            tuned: "the back-off its README shows (by default it does not wait at all), without end; lease 30 s (it has no default)",
        },
        Bench::NodeRedlock => Facts {
            name: "node-redlock",
            tasks: "promises, one thread",
            waits: "asks again after 100 to 300 ms",
            renews: false,
            tuned: "tries without end (11 by default); lease 30 s (it has no default)",
        },
        Bench::RedisPy => Facts {
            name: "redis-py",
            tasks: "threads, one at a time (GIL)",
            waits: "asks again every 100 ms",
            renews: false,
            tuned: "lease 30 s (none by default); up to 1,024 connections (100, and then an error)",
        },
        Bench::Rslock => Facts {
            name: "rslock (Rust)",
            tasks: "tokio tasks, two threads",
            waits: "asks three times within 0 to 400 ms, then begins again",
            renews: false,
            tuned: "lease 30 s (it has no default)",
        },
        Bench::DistributedLock => Facts {
            name: "distributed-lock (Rust)",
            tasks: "tokio tasks, two threads",
            waits: "asks again every 100 ms",
            renews: true,
            tuned: "asked again by the bench: on Redis it fails at once if the lock is held, whatever time it is given",
        },
        Bench::RedissonRs => Facts {
            name: "redisson (Rust crate)",
            tasks: "tokio tasks, two threads",
            waits: "asks again every 100 ms",
            renews: false,
            tuned: "a pool of 512 connections (10, and then errors); what its `unlock` answers is not looked at: it says no when it has unlocked",
        },
        Bench::Curator => Facts {
            name: "Curator (Java)",
            tasks: "threads",
            waits: "woken",
            renews: true,
            tuned: "",
        },
        Bench::EtcdConcurrency => Facts {
            name: "`concurrency` (Go)",
            tasks: "goroutines, a session each",
            waits: "woken",
            renews: true,
            tuned: "",
        },
    }
}

/// A process of this crate. Its program is in the same directory as the running one.
pub(crate) fn ours(kind: &str, url: &str) -> Result<Command> {
    Ok(process(&built("bench-peer")?, kind, url))
}

/// A process that has every store: `bench-store KIND URL`.
pub(crate) fn on_any_store(kind: &str, url: &str) -> Result<Command> {
    Ok(process(&built("bench-store")?, kind, url))
}

fn built(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name(name);
    anyhow::ensure!(
        program.is_file(),
        "{} is missing: `cargo xtask bench` builds it",
        program.display()
    );
    Ok(program)
}

fn process(program: &Path, kind: &str, url: &str) -> Command {
    let mut command = Command::new(program);
    command.args([kind, url]);
    command
}
