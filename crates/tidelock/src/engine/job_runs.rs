//! The slots of jobs that this client ran last, for the record that operators see of this process.

use crate::engine::runtime::clock::BootInstant;
use crate::engine::runtime::sync::Mutex;
use crate::name::Name;
use crate::types::FencingToken;

/// Bounds how many jobs are remembered. The names of jobs may be without number.
pub(crate) const MOST_JOBS: usize = 20;

/// The newest run of each job, the job with the newest change last.
#[derive(Debug, Default)]
pub(crate) struct JobRuns(Mutex<Vec<JobRun>>);

/// An attempt to run a slot of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobRun {
    pub(crate) name: Name,
    pub(crate) slot: String,
    /// `running`, `done`, `failed`, or `unconfirmed`: it has ended, and the store has confirmed no mark of its end.
    pub(crate) state: &'static str,
    pub(crate) attempt: u32,
    pub(crate) token: FencingToken,
    pub(crate) began: BootInstant,
    /// Since when it is in this state.
    pub(crate) since: BootInstant,
}

impl JobRuns {
    /// An attempt has begun or ended. It takes the place of what was known of its job, unless that has begun later.
    pub(crate) fn note(&self, run: JobRun) {
        let mut runs = self.0.lock();
        if let Some(at) = runs.iter().position(|known| known.name == run.name) {
            if runs[at].began > run.began {
                return;
            }
            runs.remove(at);
        } else if runs.len() == MOST_JOBS {
            // One that still runs is what an operator looks for.
            let ended = runs.iter().position(|known| !known.is_running());
            runs.remove(ended.unwrap_or(0));
        }
        runs.push(run);
    }

    /// First the jobs that run, then the others, each with the newest changes first.
    pub(crate) fn newest(&self) -> Vec<JobRun> {
        let mut runs: Vec<JobRun> = self.0.lock().iter().rev().cloned().collect();
        runs.sort_by_key(|run| !run.is_running());
        runs
    }
}

impl JobRun {
    fn is_running(&self) -> bool {
        self.state == "running"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, began: u64, state: &'static str) -> JobRun {
        JobRun {
            name: Name::new(name).unwrap(),
            slot: began.to_string(),
            state,
            attempt: 1,
            token: FencingToken::new(began),
            began: BootInstant(began),
            since: BootInstant(began),
        }
    }

    fn seen(runs: &JobRuns) -> Vec<(String, &'static str)> {
        let newest = runs.newest().into_iter();
        newest
            .map(|run| (run.name.as_str().to_owned(), run.state))
            .collect()
    }

    #[test]
    fn the_newest_run_of_each_job_is_remembered() {
        let runs = JobRuns::default();
        runs.note(run("mail", 1, "running"));
        runs.note(run("report", 2, "running"));
        runs.note(run("mail", 1, "done"));
        let newest = |mail, report| [("mail".to_owned(), mail), ("report".to_owned(), report)];
        let mut running_first = newest("done", "running");
        running_first.reverse();
        assert_eq!(seen(&runs), running_first);
        // The end of an attempt that was lost long ago comes after the next attempt has begun.
        runs.note(run("report", 1, "unconfirmed"));
        assert_eq!(seen(&runs), running_first);
    }

    #[test]
    fn only_so_many_jobs_are_remembered() {
        let runs = JobRuns::default();
        for number in 0..100 {
            runs.note(run(&format!("job {number}"), number, "done"));
        }
        let seen = seen(&runs);
        assert_eq!((seen.len(), &*seen[0].0), (MOST_JOBS, "job 99"));
    }

    #[test]
    fn a_job_that_runs_is_remembered_before_those_that_have_ended() {
        let runs = JobRuns::default();
        runs.note(run("report", 1, "running"));
        for number in 0..100 {
            runs.note(run(&format!("job {number}"), number, "done"));
        }
        let seen = seen(&runs);
        assert_eq!(seen.len(), MOST_JOBS);
        let expected = [("report", "running"), ("job 99", "done")];
        let expected = expected.map(|(name, state)| (name.to_owned(), state));
        assert_eq!(seen[..2], expected);
        for number in 0..100 {
            runs.note(run(&format!("more {number}"), number, "running"));
        }
        assert_eq!(runs.newest().len(), MOST_JOBS);
    }
}
