use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;

use crate::{Answer, Contender, Names, Order, Run, Side, Stamp, now_ns};

/// Prints `ready` and obeys orders until stdin ends.
///
/// # Errors
/// stdin or stdout breaks. A failure of a lock is not an error but an answer.
pub async fn serve<S: Side>(side: S) -> Result<()> {
    let mut process = Process {
        side,
        held: Vec::new(),
        waiting: JoinSet::new(),
    };
    say("ready")?;
    loop {
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lock().lines().next()).await?;
        let Some(line) = line.transpose()? else {
            return Ok(());
        };
        let done = match serde_json::from_str(&line).context(line) {
            Ok(order) => process.obey(order).await,
            Err(error) => Err(error),
        };
        let answer = match done {
            Ok(count) => Answer::Done {
                count,
                at_ns: now_ns(),
            },
            Err(error) => Answer::Failed(format!("{error:#}")),
        };
        say(&serde_json::to_string(&answer)?)?;
    }
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush().context("stdout")
}

struct Process<S: Side> {
    side: S,
    held: Vec<(S::Contender, <S::Contender as Contender>::Held)>,
    waiting: JoinSet<Result<()>>,
}

impl<S: Side> Process<S> {
    async fn obey(&mut self, order: Order) -> Result<usize> {
        match order {
            Order::Run(run) => self.run(run).await,
            Order::Hold { locks, name } => self.hold(locks, &name).await,
            Order::Wait { tasks, names, name } => self.wait(tasks, names, &name).await,
            Order::Served => self.served().await,
            Order::Drop => self.drop().await,
        }
    }

    async fn run(&self, run: Run) -> Result<usize> {
        let ready = Arc::new(Barrier::new(run.tasks + 1));
        let mut tasks = JoinSet::new();
        for task in 0..run.tasks {
            let contender = self.side.contender(&match run.names {
                Names::One => run.name.clone(),
                Names::Own => format!("{} {task}", run.name),
            })?;
            tasks.spawn(work(contender, task, run.clone(), Arc::clone(&ready)));
        }
        // The tasks are created before `start_ns` and then start together. Otherwise their creation would be measured.
        sleep_until(run.start_ns).await;
        ready.wait().await;
        let mut text = String::new();
        let mut count = 0;
        while let Some(stamps) = tasks.join_next().await {
            for stamp in stamps?? {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{stamp}");
                count += 1;
            }
        }
        std::fs::write(&run.file, text).with_context(|| run.file.display().to_string())?;
        Ok(count)
    }

    async fn hold(&mut self, locks: usize, name: &str) -> Result<usize> {
        // Enough requests in flight to keep the connection busy; with more, we would measure a queue.
        const AT_ONCE: usize = 256;
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut tasks = JoinSet::new();
        let have = self.held.len();
        for number in have..locks {
            let turn = Arc::clone(&turns).acquire_owned().await?;
            let mut contender = self.side.contender(&format!("{name} {number}"))?;
            tasks.spawn(async move {
                let held = contender.acquire().await;
                drop(turn);
                held.map(|held| (contender, held))
            });
            while let Some(done) = tasks.try_join_next() {
                self.held.push(done??);
            }
        }
        while let Some(done) = tasks.join_next().await {
            self.held.push(done??);
        }
        Ok(self.held.len())
    }

    async fn wait(&mut self, tasks: usize, names: usize, name: &str) -> Result<usize> {
        for task in 0..tasks {
            let mut contender = self.side.contender(&format!("{name} {}", task % names))?;
            self.waiting.spawn(async move {
                let held = contender.acquire().await?;
                contender.release(held).await
            });
            // We yield now and then, so that the tasks spawned so far can start to wait.
            if task % 64 == 0 {
                tokio::task::yield_now().await;
            }
        }
        Ok(tasks)
    }

    async fn served(&mut self) -> Result<usize> {
        let mut count = 0;
        while let Some(done) = self.waiting.join_next().await {
            done??;
            count += 1;
        }
        Ok(count)
    }

    async fn drop(&mut self) -> Result<usize> {
        let mut tasks = JoinSet::new();
        for (mut contender, held) in self.held.drain(..) {
            tasks.spawn(async move { contender.release(held).await });
        }
        let mut count = 0;
        while let Some(done) = tasks.join_next().await {
            done??;
            count += 1;
        }
        Ok(count)
    }
}

async fn work<C: Contender>(
    mut contender: C,
    task: usize,
    run: Run,
    ready: Arc<Barrier>,
) -> Result<Vec<Stamp>> {
    let mut stamps = Vec::with_capacity(1024);
    contender.number(task);
    ready.wait().await;
    loop {
        let asked = now_ns();
        // Even a late task makes one hold, so that each task has a stamp.
        if asked >= run.stop_ns && !stamps.is_empty() {
            return Ok(stamps);
        }
        let held = contender.acquire().await?;
        let entered = now_ns();
        keep(run.hold_us).await?;
        let leaving = now_ns();
        contender.release(held).await?;
        stamps.push(Stamp {
            task,
            asked,
            entered,
            leaving,
            left: now_ns(),
        });
    }
}

/// Holds the lock. We use a sleeping thread because the runtime's timer rounds one millisecond up to two.
async fn keep(hold_us: u64) -> Result<()> {
    if hold_us > 0 {
        let hold = Duration::from_micros(hold_us);
        tokio::task::spawn_blocking(move || std::thread::sleep(hold)).await?;
    }
    Ok(())
}

async fn sleep_until(start_ns: u64) {
    let left = Duration::from_nanos(start_ns.saturating_sub(now_ns()));
    if !left.is_zero() {
        tokio::time::sleep(left).await;
    }
}
