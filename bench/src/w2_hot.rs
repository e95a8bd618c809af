//! W2: several processes of eight tasks each that compete for one name.

use std::time::Duration;

use anyhow::Result;
use load::Names;

use crate::awake::Awake;
use crate::chart::{Bars, Chart};
use crate::contention::Contention;
use crate::counts::{Counter, for_each};
use crate::figures::{median, middle, number, ratio, short, spread, with_spread};
use crate::goals::Goal;
use crate::page::{Section, Table};
use crate::peers::{Peer, ours};
use crate::process::Process;
use crate::stage::{Load, Samples, Stage, Team, of};

/// The baselines: two processes of bare scripts that pass a lock back and forth. The first is what the peers are
/// measured against; the others show how much of a gap is due to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// Each hold is as long as the peers'.
    Turns,
    /// A separate thread receives the messages, as in tidelock.
    Apart,
    /// Each hold is as long as a process keeps a lock that it hands off among its own tasks.
    Long,
}

impl Floor {
    const ALL: [Self; 3] = [Self::Turns, Self::Apart, Self::Long];

    /// The name of the lock. The processes subscribe to it at the start.
    #[must_use]
    pub const fn lock(self) -> &'static str {
        match self {
            Self::Turns | Self::Long => "turns raw",
            Self::Apart => "turns-apart raw",
        }
    }

    /// The kind of process, which is also the prefix of the lock's name.
    const fn kind(self) -> &'static str {
        match self {
            Self::Turns | Self::Long => "turns",
            Self::Apart => "turns-apart",
        }
    }

    fn about(self, hold: Duration) -> String {
        match self {
            Self::Turns => "*bare scripts, two tasks by turns*".into(),
            Self::Apart => "*the same, and another thread listens*".into(),
            Self::Long => format!("*the same, each turn {} ms*", self.hold(hold).as_millis()),
        }
    }

    /// How long each side holds the lock. With a hold of zero, a process passes the lock a thousand times in a row, in
    /// about a millisecond; with longer holds, as often as fits into ten milliseconds. Those are the defaults of
    /// `HandOff`.
    fn hold(self, hold: Duration) -> Duration {
        match self {
            Self::Turns | Self::Apart => hold,
            Self::Long if hold.is_zero() => Duration::from_millis(1),
            Self::Long => Duration::from_millis(10),
        }
    }
}

const PROCESSES: [usize; 2] = [2, 4];
const TASKS: usize = 8;
const HOLDS_MS: [u64; 2] = [0, 1];

/// The requests per acquisition, in total and by command.
type Sent = Vec<(Peer, (f64, String))>;

pub(crate) fn measure(stage: &mut Stage) -> Result<Section> {
    let mut section = Section {
        title: "W2: one name, several processes",
        text: TEXT.into(),
        ..Section::default()
    };
    let _awake = Awake::keep()?;
    let mut floors = floors(stage)?;
    let peers = Peer::that_wait(&stage.peers);
    let mut teams = stage.teams("W2", &peers, PROCESSES[PROCESSES.len() - 1]);
    let (mut rate, mut gap) = (Vec::new(), Vec::new());
    for processes in PROCESSES {
        for hold in HOLDS_MS {
            let shape = Shape {
                processes,
                tasks: TASKS,
                hold: Duration::from_millis(hold),
                quick: stage.args.quick,
            };
            let found = shape.measure("W2", stage, &mut teams, &mut floors)?;
            let about = format!("**{processes} processes × {TASKS} tasks, hold {hold} ms**");
            section.tables.push((about.clone(), shape.table(&found)));
            section.tables.push((
                "Sent to the store for each acquisition:".into(),
                sent_table(&found.sent),
            ));
            let label = format!("{processes} processes, {hold} ms");
            for (peer, samples) in &found.samples {
                rate.push((
                    peer.name(),
                    label.clone(),
                    middle(samples, |s| s.per_second),
                ));
                gap.push((peer.name(), label.clone(), middle(samples, |s| s.gap_p50)));
            }
            section.goals.extend(shape.goals(&found));
        }
    }
    section.charts = vec![
        Chart {
            file: "w2-acquisitions",
            title: "One name: acquisitions a second".into(),
            bars: Bars::grouped(&rate),
        },
        Chart {
            file: "w2-gap",
            title: "One name: microseconds between two holders".into(),
            bars: Bars::grouped(&gap),
        },
    ];
    Ok(section)
}

/// Two processes for each kind of baseline process.
type Floors = Vec<(&'static str, Team)>;

fn floors(stage: &Stage) -> Result<Floors> {
    let team = |kind| {
        let start = || Process::start(ours(kind, &stage.server.url())?);
        let processes = vec![start()?, start()?];
        let peer = Peer::Raw;
        anyhow::Ok((kind, Team { peer, processes }))
    };
    [Floor::Turns, Floor::Apart]
        .map(|floor| team(floor.kind()))
        .into_iter()
        .collect()
}

/// The size of the workload.
pub(crate) struct Shape {
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    pub(crate) hold: Duration,
    pub(crate) quick: bool,
}

/// The results.
pub(crate) struct Found {
    pub(crate) samples: Samples<Contention>,
    /// The baselines, round by round.
    pub(crate) floors: Vec<(Floor, Vec<Contention>)>,
    pub(crate) sent: Sent,
}

impl Shape {
    fn load(&self, name: &'static str, time: Duration) -> Load<'static> {
        Load {
            processes: self.processes,
            tasks: self.tasks,
            names: Names::One,
            name,
            hold: self.hold,
            time,
        }
    }

    pub(crate) fn measure(
        &self,
        workload: &'static str,
        stage: &mut Stage,
        teams: &mut Vec<Team>,
        floors: &mut Floors,
    ) -> Result<Found> {
        let (warm, long) = if self.quick { (100, 250) } else { (300, 700) };
        let [warm, long] = [warm, long].map(Duration::from_millis);
        stage.each(workload, teams, |stage, team| {
            let warm = time(team, warm) * team.peer.warm_up();
            stage.run(team, &self.load("hot", warm))
        });
        let sent = stage.each(workload, teams, |stage, team| {
            let counter = Counter::start(&stage.server, &format!("hot {}", team.peer.word()))?;
            let seen = stage.run(team, &self.load("hot", time(team, long / 2)))?;
            let holds = seen.stamps.iter().map(Vec::len).sum();
            Ok(for_each(&counter.stop(&stage.server)?, holds))
        });
        let mut samples: Samples<Contention> =
            teams.iter().map(|team| (team.peer, Vec::new())).collect();
        let mut below: Vec<(Floor, Vec<Contention>)> = Vec::new();
        if !floors.is_empty() {
            below = Floor::ALL.map(|floor| (floor, Vec::new())).into();
        }
        for _ in 0..stage.args.rounds() {
            for (floor, samples) in &mut below {
                let team = floors.iter_mut().find(|(kind, _)| *kind == floor.kind());
                let Some((kind, team)) = team else { continue };
                let load = Load {
                    processes: 2,
                    tasks: 1,
                    hold: floor.hold(self.hold),
                    ..self.load(kind, long / 3)
                };
                let seen = stage.run(team, &load)?;
                samples.push(Contention::of(&seen.stamps, 1, seen.start, seen.stop));
            }
            for (peer, sample) in stage.each(workload, teams, |stage, team| {
                let seen = stage.run(team, &self.load("hot", time(team, long)))?;
                Ok(Contention::of(
                    &seen.stamps,
                    self.tasks,
                    seen.start,
                    seen.stop,
                ))
            }) {
                if let Some((_, samples)) = samples.iter_mut().find(|(of, _)| *of == peer) {
                    samples.push(sample);
                }
            }
        }
        samples.retain(|(peer, _)| teams.iter().any(|team| team.peer == *peer));
        Ok(Found {
            samples,
            floors: below,
            sent,
        })
    }

    pub(crate) fn table(&self, found: &Found) -> Table {
        let mut table = Table::new(&[
            "",
            "acquisitions/s",
            "gap p50 µs",
            "gap p99 µs",
            "between processes, p50 µs",
            "p99 µs",
            "longest wait ms",
            "share of tasks",
            "share of processes",
            "sent each",
            "hold µs",
            "overlaps",
        ]);
        let mut row = |name: String, samples: &[Contention], sent: String| {
            let overlaps: usize = samples.iter().map(|s| s.overlaps).sum();
            table.row([
                name,
                with_spread(samples, |s| s.per_second),
                with_spread(samples, |s| s.gap_p50),
                short(middle(samples, |s| s.gap_p99)),
                with_spread(samples, |s| s.over_p50),
                short(middle(samples, |s| s.over_p99)),
                with_spread(samples, |s| s.longest_wait),
                short(middle(samples, |s| s.task_share)),
                short(middle(samples, |s| s.process_share)),
                sent,
                short(middle(samples, |s| s.hold)),
                overlaps.to_string(),
            ]);
        };
        for (floor, samples) in &found.floors {
            row(floor.about(self.hold), samples, "2".into());
        }
        for (peer, samples) in &found.samples {
            let sent = found.sent.iter().find(|(of, _)| of == peer);
            let sent = sent.map_or_else(|| "–".to_owned(), |(_, (each, _))| short(*each));
            row(peer.name().to_owned(), samples, sent);
        }
        table
    }

    fn goals(&self, found: &Found) -> Vec<Goal> {
        let ours = of(&found.samples, Peer::Tidelock);
        let hold = self.hold.as_millis();
        let at = format!("W2, {} processes, hold {hold} ms", self.processes);
        let figure = |figure: fn(&Contention) -> f64| ours.map(|ours| middle(ours, figure));
        let under = |floor: Floor| {
            let floors = &found.floors;
            let found = floors.iter().find(|(of, _)| *of == floor);
            found.map_or(&[][..], |(_, samples)| samples)
        };
        let floor = median(under(Floor::Turns).iter().map(|s| s.over_p50));
        let against = |floor| ours.map(|ours| ratio(ours, under(floor), |s| s.over_p50));
        let mut goals = vec![
            Goal::at_most(
                format!("{at}: median gap between processes against release → message → acquire"),
                1.3,
                " ×",
                against(Floor::Turns),
            ),
            Goal::at_most(
                format!("{at}: the same where the bare scripts keep it as long as a process does"),
                1.3,
                " ×",
                against(Floor::Long),
            ),
            Goal::at_most(
                format!("{at}: p99 of the gap against that median"),
                10.0,
                " ×",
                figure(|s| s.over_p99).map(|gap| gap / floor),
            ),
        ];
        goals.extend(self.requests(found, &at));
        goals.extend([
            Goal::at_least(
                format!("{at}: share of the unluckiest task for the luckiest's"),
                0.5,
                "",
                figure(|s| s.task_share),
            ),
            Goal::at_least(
                format!("{at}: share of the unluckiest process for the luckiest's"),
                0.5,
                "",
                figure(|s| s.process_share),
            ),
        ]);
        if hold > 0 {
            let waiters = number(self.processes * self.tasks - 1);
            let millis = self.hold.as_secs_f64() * 1000.0;
            let worst = ours.map(|ours| spread(ours.iter().map(|s| s.longest_wait)).1);
            goals.push(Goal::at_most(
                format!("{at}: longest wait against hold × waiters"),
                3.0,
                " ×",
                worst.map(|wait| wait / (waiters * millis)),
            ));
        }
        goals
    }

    /// The goals for the requests that the server gets.
    fn requests(&self, found: &Found, at: &str) -> [Goal; 2] {
        let sent = |of: Peer| {
            let found = found.sent.iter().find(|(peer, _)| *peer == of);
            found.map(|(_, (each, _))| *each)
        };
        [
            Goal::at_most(
                format!("{at}: requests for each acquisition"),
                1.0,
                "",
                sent(Peer::Tidelock),
            ),
            Goal::at_most(
                format!("{at}: the same without hand-off"),
                2.0 + number(self.processes),
                "",
                sent(Peer::NoHandOff),
            ),
        ]
    }
}

/// A shorter time for the mutex: without a store there are millions of holds per second, and each one is recorded.
fn time(team: &Team, time: Duration) -> Duration {
    match team.peer {
        Peer::Mutex => time / 20,
        _ => time,
    }
}

fn sent_table(sent: &Sent) -> Table {
    let mut table = Table::new(&["", "sent"]);
    for peer in Peer::that_wait(&Peer::ALL) {
        if let Some((_, (_, parts))) = sent.iter().find(|(of, _)| *of == peer) {
            let parts = if parts.is_empty() {
                "hardly anything"
            } else {
                parts
            };
            table.row([peer.name().to_owned(), parts.to_owned()]);
        }
    }
    table
}

const TEXT: &str = "
Everybody wants the same name, again and again. The gap is from one holder's beginning to leave to the next one's being in,
whoever they are, and once more for those alone in which the next one is in another process. The share is what the unluckiest task (or process) got for each hold of the luckiest; the longest wait is that of anybody,
those included who got their turn only because the others had stopped. What is sent was counted by `MONITOR` in a round of
its own that was not timed; what a script calls inside the store is not among it. The bare scripts are two processes of one
task each that hand the lock to and fro: a release that publishes, the message, the acquire of the other; once more with
messages that come in on a thread of their own, and once more with turns as long as a process of tidelock keeps a lock that it
hands on, because whoever has slept for longer takes longer to wake up. Each side holds the lock by its own language's sleep;
the column says how long that was.
";
