//! One run: worker processes take locks, a fault happens, and the checkers judge the histories.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use testkit::process::boot_time;

use super::failovers::Failovers;
use super::remains::{files_left, left_over, open_files};
use super::terms::terms;
use super::{Outcome, Stage, Story};
use crate::acquisition::Histories;
use crate::check::{self, Breach, Promise};
use crate::crew::{Crew, Unserved};
use crate::notes::{Notes, Outage, Span};
use crate::partitions::Seen;
use crate::store::Store;
use crate::worker::{Library, Plan};
use crate::world::{Spread, World};

/// What happens in a run.
pub(crate) struct Run<'a> {
    /// The settings of the whole run: what may be lost, and how its processes behave.
    pub(crate) story: &'a Story,
    /// Its faults, one after the other.
    pub(crate) faults: &'a [Story],
    /// The number of tasks per process that each hold a lock for some leases, besides the usual tasks.
    pub(crate) holders: u32,
    /// The servers have just started. Their first answers may come late, because a JVM compiles while it serves.
    pub(crate) cold: bool,
    /// For how long two may hold a lock at most, also where the faults excuse it.
    pub(crate) may_overlap: Duration,
}

impl<'a> Run<'a> {
    /// One story, which is the only fault.
    pub(crate) fn of(story: &'a Story) -> Self {
        Self {
            story,
            faults: std::slice::from_ref(story),
            holders: 0,
            cold: false,
            may_overlap: Duration::MAX,
        }
    }

    /// The breach of a run in which two held a lock for this time.
    fn overlap(&self, both: Duration) -> Option<Breach> {
        let longest = self.may_overlap;
        (both > longest).then(|| {
            let how = format!("two held a lock for {both:?}, longer than {longest:?}");
            Breach::new(Promise::Exclusion, how)
        })
    }
}

/// Runs the story once.
pub(crate) fn play(
    world: &dyn World,
    store: Store,
    story: &Story,
    seed: u64,
    lease: Duration,
) -> Result<Outcome> {
    play_run(world, store, &Run::of(story), seed, lease)
}

/// Runs some faults, one after the other, with the same processes.
pub(crate) fn play_run(
    world: &dyn World,
    store: Store,
    run: &Run,
    seed: u64,
    lease: Duration,
) -> Result<Outcome> {
    let story = run.story;
    let start = Instant::now();
    let base = format!("{}-{seed}", story.name.replace(' ', "-"));
    let alone = store == Store::Memory;
    let plan = Plan {
        process: 0,
        store: world.urls(),
        secret: world.secret(),
        file: PathBuf::new(),
        lease_ms: u64::try_from(lease.as_millis())?,
        name: base.clone(),
        seed,
        // Redisson has neither elections nor jobs that run once.
        no_tokens: !store.has_tokens() || story.library == Library::Redisson,
        clients: if alone { 3 } else { 1 },
        crowd: story.crowd,
        holders: run.holders,
        all_replicas: story.all_replicas,
        restart_guard: story.restart_guard,
        library: story.library,
        lie: story.lie,
    };
    let hosts = world.spread().map_or(&[][..], Spread::clients);
    let crew = Crew::start(plan, if alone { 1 } else { 3 }, story.fake_clock, hosts)?;
    let mut stage = Stage {
        world,
        store,
        crew,
        notes: Notes::default(),
        rng: Rng::with_seed(seed),
        lease,
        all_replicas: story.all_replicas,
        base,
        lie: story.lie,
        is_storm: run.holders > 0,
        made: 0,
        well: None,
    };
    if let Some(net) = world.spread() {
        stage.well = Some((boot_time(), net.elections()?));
    }
    let mut found = Vec::new();
    let ended = perform(&mut stage, run, &mut found).err();
    let stage_notes = &stage.notes;
    let histories = stage.crew.histories();
    let terms = terms(store, story, lease);
    // What ended the run comes first: it explains much of what the checkers find, and a report shows only the first few.
    let mut breaches: Vec<Breach> = ended.iter().map(ended_by).collect();
    breaches.extend(check::all(&histories, stage_notes, &terms));
    breaches.extend(found);
    let seen = Seen::of(&histories, stage_notes);
    breaches.extend(run.overlap(seen.longest_overlap));
    let (grants, losses) = count(&histories);
    let wrong = !breaches.is_empty() && story.library == Library::Tidelock;
    Ok(Outcome {
        breaches,
        made: stage.made,
        grants,
        losses,
        took: start.elapsed(),
        seen,
        stall: check::longest_stall(&histories, stage_notes),
        files: wrong.then(|| stage.crew.keep_files()),
    })
}

/// Runs the faults, waits for recovery after each, stops the processes and looks for leaks.
fn perform(stage: &mut Stage, run: &Run, found: &mut Vec<Breach>) -> Result<()> {
    let recovery = stage.recovery();
    let from = boot_time();
    let mut so_far = Failovers::now(stage)?;
    let served = stage.crew.until_served(Duration::ZERO, recovery);
    let mut well = in_time(served, found)?;
    if run.cold {
        let to = boot_time();
        let when = Span { from, to };
        stage.notes.outages.push(Outage { when, mute: false });
    }
    so_far = so_far.note(stage)?;
    let files = open_files(stage);
    for fault in run.faults {
        if !well {
            break;
        }
        well = in_time(make(stage, fault), found)?;
        so_far = so_far.note(stage)?;
    }
    // We count open files before the processes stop; afterwards there is nothing to count.
    found.extend(files_left(stage, &files));
    stage.notes.ended = boot_time();
    stage.note_elections()?;
    stage.crew.dismiss(recovery)?;
    so_far.note(stage)?;
    let left = left_over(stage)?;
    found.extend(check::leaks(&left));
    Ok(())
}

/// Makes the fault, and waits until every process has its locks again.
fn make(stage: &mut Stage, fault: &Story) -> Result<()> {
    let told = || format!("{}: the fault could not be made", fault.name);
    (fault.act)(stage).with_context(told)?;
    stage.made += 1;
    let recovery = stage.recovery();
    let served = stage.crew.until_served(boot_time(), recovery);
    served.with_context(|| format!("after {}", fault.name))
}

/// `false`: not every process got its locks in time. The run goes on to its end all the same: a busy machine excuses that they
/// came late, but neither a process that does not stop nor a lock that stays behind.
fn in_time(result: Result<()>, found: &mut Vec<Breach>) -> Result<bool> {
    let Err(error) = result else {
        return Ok(true);
    };
    if error.downcast_ref::<Unserved>().is_none() {
        return Err(error);
    }
    found.push(Breach::new(Promise::Recovery, format!("{error:#}")));
    Ok(false)
}

/// The breach of a run that ended with this error.
fn ended_by(error: &anyhow::Error) -> Breach {
    let how = format!("the run did not come to its end: {error:#}");
    Breach::new(Promise::Run, how)
}

fn count(histories: &Histories) -> (usize, usize) {
    let granted: Vec<_> = histories.granted().collect();
    let lost = granted.iter().filter(|one| one.was_lost());
    (granted.len(), lost.count())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::stage::RECOVERY;

    /// What a busy machine leaves of a run that ended in this way.
    fn left_of(result: Result<()>) -> Vec<Promise> {
        let mut outcome = Outcome::broken(&anyhow!("a server did not start"));
        outcome.breaches.clear();
        if let Err(error) = in_time(result, &mut outcome.breaches) {
            outcome.breaches.push(ended_by(&error));
        }
        assert_eq!(outcome.breaches.len(), 1);
        outcome.drop_timing();
        let left = outcome.breaches.iter();
        left.map(|breach| breach.promise).collect()
    }

    #[test]
    fn a_busy_machine_excuses_locks_that_come_late() {
        let (within, missing) = (RECOVERY, "2 Relay".to_owned());
        let late = anyhow::Error::new(Unserved { within, missing });
        let late = late.context("after server frozen");
        assert!(left_of(Err(late)).is_empty());
    }

    #[test]
    fn a_busy_machine_excuses_no_process_that_ends_and_no_fault_that_was_not_made() {
        for how in ["process 2 ended by itself", "server frozen: no such server"] {
            assert_eq!(left_of(Err(anyhow!(how))), [Promise::Run]);
        }
        let mut outcome = Outcome::broken(&anyhow!("a server did not start"));
        outcome.drop_timing();
        assert_eq!(outcome.breaches.len(), 1);
        assert_eq!(outcome.made, 0);
    }

    #[test]
    fn two_that_hold_a_lock_for_longer_than_a_run_allows_break_its_promise() {
        let story = Story::new("client isolated", |_| Ok(()));
        let second = Duration::from_secs(1);
        let run = Run {
            may_overlap: second,
            ..Run::of(&story)
        };
        assert!(run.overlap(second).is_none());
        let breach = run.overlap(second * 2).expect("it is too long");
        assert_eq!(breach.promise, Promise::Exclusion);
        assert!(Run::of(&story).overlap(second * 2).is_none());
    }

    #[test]
    fn a_busy_machine_excuses_bounds_on_times_only() {
        let all = [
            (Promise::Exclusion, false),
            (Promise::Tokens, false),
            (Promise::Slots, false),
            (Promise::Loss, false),
            (Promise::Leaks, false),
            (Promise::Run, false),
            (Promise::Wake, true),
            (Promise::Need, true),
            (Promise::Recovery, true),
        ];
        for (promise, excused) in all {
            let breach = Breach::new(promise, String::new());
            assert_eq!(breach.timing, excused, "{promise:?}");
        }
    }
}
