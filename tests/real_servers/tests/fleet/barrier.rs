//! Members of a barrier that are killed or frozen, before they enter or inside: they hold up nobody.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use real_servers::builder;
use testkit::process::Spawned;
use tidelock::{Barrier, Client};
use tokio::runtime::Runtime;

use crate::election::PATIENCE;
use crate::store::Store;

const LEASE: Duration = Duration::from_secs(6);

/// Some fifty processes begin at once, and a login needs the processor.
const ANSWERS: Duration = Duration::from_secs(3);

/// A barrier with two members, which are processes.
struct Solver<'a> {
    url: &'a str,
    name: &'static str,
    runtime: Runtime,
    barrier: Barrier,
}

impl<'a> Solver<'a> {
    fn new(url: &'a str, name: &'static str) -> Result<Self> {
        let runtime = Runtime::new()?;
        let settings = builder(LEASE).response_timeout(ANSWERS);
        let client: Client = runtime.block_on(settings.connect(url))?;
        Ok(Self {
            url,
            name,
            barrier: client.barrier(name, 2),
            runtime,
        })
    }

    fn process(&self) -> Result<Spawned> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peer"));
        let times = [LEASE, ANSWERS].map(|time| time.as_millis().to_string());
        command.arg(self.url).args(times);
        let mut process = Spawned::start(command)?;
        process.wait_line("ready", PATIENCE)?;
        Ok(process)
    }

    /// Returns when so many are inside, and so many wait.
    fn until(&self, inside: usize, waiting: usize) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = self.runtime.block_on(self.barrier.members());
            if let Ok(now) = &now
                && (now.inside.len(), now.waiting.len()) == (inside, waiting)
            {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "{inside} inside and {waiting} that wait: {now:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn begin(&self, member: &mut Spawned) -> Result<()> {
        member.write_line(&format!("enter {} 2", self.name))
    }

    /// The first member comes, and waits.
    fn comes(&self, member: &mut Spawned) -> Result<()> {
        self.begin(member)?;
        self.until(0, 1).with_context(|| {
            // Reads what it has said instead.
            let _ = member.wait_line("failed", Duration::from_millis(1));
            format!("it said {:?}", member.seen())
        })
    }

    /// Two processes, of which the first came first. Both are inside.
    fn entered(&self) -> Result<[Spawned; 2]> {
        let mut both = [self.process()?, self.process()?];
        self.enter(&mut both)?;
        Ok(both)
    }

    fn enter(&self, both: &mut [Spawned; 2]) -> Result<()> {
        self.comes(&mut both[0])?;
        self.begin(&mut both[1])?;
        for one in both {
            one.wait_line(&format!("entered {} together=2", self.name), PATIENCE)?;
        }
        Ok(())
    }

    fn leave(&self, members: &mut [Spawned]) -> Result<()> {
        for one in &mut *members {
            one.write_line(&format!("leave {}", self.name))?;
        }
        for one in members {
            one.wait_line(&format!("left {}", self.name), PATIENCE)?;
        }
        Ok(())
    }

    /// The process is told, and it does so before it does anything else with its guard.
    fn is_told(&self, member: &mut Spawned) -> Result<()> {
        member.wait_line(&format!("lost {}", self.name), PATIENCE)?;
        member.write_line(&format!("leave {}", self.name))?;
        member.wait_line(&format!("failed {} kind=Lost", self.name), PATIENCE)?;
        Ok(())
    }
}

/// A member that is killed while it waits is not counted once its lease has ended.
fn killed_before(solver: &Solver) -> Result<()> {
    let mut dead = solver.process()?;
    solver.comes(&mut dead)?;
    dead.kill()?;
    solver.until(0, 0)?;
    let mut both = solver.entered()?;
    solver.leave(&mut both)
}

/// One that is killed inside holds up nobody who leaves, nor the next use.
fn killed_inside(solver: &Solver) -> Result<()> {
    let [mut one, mut dead] = solver.entered()?;
    dead.kill()?;
    solver.leave(std::slice::from_mut(&mut one))?;
    let mut both = solver.entered()?;
    solver.leave(&mut both)
}

/// One that is frozen while it waits, for longer than its lease, is told, and is not counted.
fn frozen_before(solver: &Solver) -> Result<()> {
    let mut frozen = solver.process()?;
    solver.comes(&mut frozen)?;
    frozen.freeze()?;
    solver.until(0, 0)?;
    let mut both = solver.entered()?;
    frozen.thaw()?;
    frozen.wait_line(&format!("failed {} kind=Lost", solver.name), PATIENCE)?;
    // It disturbs nobody.
    solver.until(2, 0)?;
    solver.leave(&mut both)
}

/// One that is frozen inside is told before the next use can mean it, and disturbs nobody of that use.
fn frozen_inside(solver: &Solver) -> Result<()> {
    let [mut one, mut frozen] = solver.entered()?;
    frozen.freeze()?;
    solver.leave(std::slice::from_mut(&mut one))?;
    let mut both = [one, solver.process()?];
    solver.enter(&mut both)?;
    frozen.thaw()?;
    solver.is_told(&mut frozen)?;
    solver.until(2, 0)?;
    solver.leave(&mut both)
}

/// All of them at once, each with a barrier of its own, because most of the time is spent waiting.
fn promise(store: &Store) -> Result<()> {
    type Fault = fn(&Solver) -> Result<()>;
    let faults: [(&'static str, Fault); 4] = [
        ("killed:before", killed_before),
        ("killed:inside", killed_inside),
        ("frozen:before", frozen_before),
        ("frozen:inside", frozen_inside),
    ];
    let url = &*store.url;
    // A process that is stopped in the middle of a write to SQLite keeps all others out, as its page says.
    let freezes = store.name != "SQLite";
    let faults = faults.into_iter();
    let faults = faults.filter(|(name, _)| freezes || !name.starts_with("frozen"));
    std::thread::scope(|scope| {
        let each = faults.map(|(name, fault)| {
            scope.spawn(move || fault(&Solver::new(url, name)?).context(name))
        });
        for one in each.collect::<Vec<_>>() {
            one.join().unwrap_or_else(|_| bail!("it panicked"))?;
        }
        Ok(())
    })
}

mod t78_members_that_are_killed_or_frozen_hold_up_nobody {
    use anyhow::Result;

    use super::promise;
    use crate::store;

    #[test]
    fn on_every_store() -> Result<()> {
        store::on_six(promise)
    }

    crate::on!(full: promise: redis_replicas redis_sentinels redis_cluster);
}
