//! W5: many waiting tasks.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use load::{Order, now_ns};
use testkit::process::rss_bytes;

use crate::figures::{micros, middle, number, short, spread, with_spread};
use crate::goals::Goal;
use crate::page::{Section, Table};
use crate::peers::Peer;
use crate::process::Process;
use crate::stage::Stage;
use crate::w4_held::scripts_sent;

/// The number of tasks, and the number of names.
const SHAPES: [(usize, usize); 4] = [(10_000, 1), (10_000, 1_000), (100_000, 1), (100_000, 1_000)];

const FEW: usize = 10_000;

/// Bounds the wait for one answer, and the wait until all tasks sleep.
const PATIENCE: Duration = Duration::from_secs(120);

/// The results for one set of waiting tasks.
struct Crowd {
    /// Bytes of the process per task.
    memory: f64,
    /// In percent of one core, while nothing happens.
    idle_percent: f64,
    /// Requests per second, while nothing happens.
    idle_requests: f64,
    /// Seconds from the release of the names until the last task has acquired and released.
    served: f64,
}

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let mut table = Table::new(&[
        "tasks",
        "names",
        "rounds",
        "memory each, bytes",
        "idle CPU, % of a core",
        "idle requests/s",
        "all served after s",
        "turns/s",
    ]);
    let mut goals = Vec::new();
    for (tasks, names) in SHAPES {
        if stage.args.quick && tasks > FEW {
            continue;
        }
        let rounds = if tasks > FEW { 1 } else { stage.args.rounds() };
        let crowds: Vec<Crowd> = (0..rounds)
            .map(|_| crowd(stage, tasks, names))
            .collect::<Result<_>>()?;
        let count = |count: usize| short(number(count)).replace(".00", "");
        table.row([
            count(tasks),
            count(names),
            rounds.to_string(),
            with_spread(&crowds, |c| c.memory),
            with_spread(&crowds, |c| c.idle_percent),
            with_spread(&crowds, |c| c.idle_requests),
            with_spread(&crowds, |c| c.served),
            with_spread(&crowds, |c| number(tasks) / c.served),
        ]);
        goals.extend(wanted(tasks, names, &crowds));
    }
    Ok(Section {
        title: "W5: tasks that wait",
        text: TEXT.into(),
        tables: vec![(String::new(), table)],
        goals,
        ..Section::default()
    })
}

fn wanted(tasks: usize, names: usize, crowds: &[Crowd]) -> Vec<Goal> {
    let at = format!("W5, {tasks} tasks waiting, names: {names}");
    let idle = spread(crowds.iter().map(|c| c.idle_percent)).1;
    vec![
        Goal::at_most(
            format!("{at}: memory each"),
            2048.0,
            " bytes",
            Some(middle(crowds, |c| c.memory)),
        ),
        Goal::at_most(
            format!("{at}: idle CPU, of one core"),
            1.0,
            " %",
            Some(idle),
        ),
    ]
}

fn crowd(stage: &mut Stage, tasks: usize, names: usize) -> Result<Crowd> {
    let url = stage.server.url();
    let mut holder = Process::start(Peer::Tidelock.command(&url)?)?;
    let mut crowd = Process::start(Peer::Tidelock.command(&url)?)?;
    // New names each time, so that no state of the previous run is left on them.
    let name = format!("crowd {}", stage.file().display());
    holder.tell(&Order::Hold {
        locks: names,
        name: name.clone(),
    })?;
    holder.answer(PATIENCE)?;
    let empty = rss_bytes(crowd.pid())?;
    crowd.tell(&Order::Wait { tasks, names, name })?;
    crowd.answer(PATIENCE)?;
    until_quiet(&crowd)?;
    let memory = rss_bytes(crowd.pid())?.saturating_sub(empty);
    let seconds = if stage.args.quick { 1 } else { 3 };
    let (cpu, requests) = (crowd.cpu()?, scripts_sent(&stage.server)?);
    sleep(Duration::from_secs(seconds));
    let cpu = crowd.cpu()?.saturating_sub(cpu);
    let requests = scripts_sent(&stage.server)? - requests;
    let start = now_ns();
    holder.tell(&Order::Drop)?;
    crowd.tell(&Order::Served)?;
    let (served, end) = crowd.answer(PATIENCE)?;
    ensure!(served == tasks, "{served} of {tasks} had their turn");
    Ok(Crowd {
        memory: number(memory) / number(tasks),
        idle_percent: cpu.as_secs_f64() / number(seconds) * 100.0,
        idle_requests: number(requests) / number(seconds),
        served: micros(end.saturating_sub(start)) / 1e6,
    })
}

/// Waits until all tasks have sent their requests and sleep: the process is nearly idle for half a second.
fn until_quiet(process: &Process) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(500);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = process.cpu()?;
        sleep(LOOK);
        if process.cpu()?.saturating_sub(before) <= LOOK / 20 {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the tasks that wait never came to rest"
        );
    }
}

const TEXT: &str = "
One process holds the names, another has so many tasks that wait for them: on one name, or spread over a thousand. Once they
sleep, memory is what their process has grown by, and its processor time and requests are counted for some seconds in which
nothing happens. Then the names are given back, and every task takes its lock and gives it back at once.
";
