//! Joins the lines of a history into acquisitions: one `Acquisition` spans the request to the release.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::{Line, What};

/// One acquisition as its process saw it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Acquisition {
    pub(crate) id: String,
    pub(crate) process: u32,
    pub(crate) name: String,
    pub(crate) asked: Duration,
    pub(crate) granted: Option<Duration>,
    pub(crate) token: Option<u64>,
    /// Each time the holder acted, with the time up to which the guard was valid then.
    pub(crate) steps: Vec<(Duration, Duration)>,
    /// The slot of a job that it runs, and when the store confirmed that the slot has been run.
    pub(crate) slot: Option<String>,
    pub(crate) done: Option<Duration>,
    pub(crate) over: Option<Duration>,
    pub(crate) lost: Option<(Duration, String)>,
    pub(crate) left: Option<Duration>,
    pub(crate) released: Option<Duration>,
    pub(crate) unreleased: Option<(Duration, String)>,
    pub(crate) failed: Option<(Duration, String)>,
    /// The text of the error with which it failed.
    pub(crate) why: String,
}

impl Acquisition {
    /// The period in which the holder acted on the lock. The worker takes each timestamp before it checks the guard, so
    /// the period is never too long.
    pub(crate) fn belief(&self) -> Option<(Duration, Duration)> {
        let granted = self.granted?;
        let stepped = self.steps.last().map(|(at, _)| *at);
        Some((granted, self.left.or(stepped).unwrap_or(granted)))
    }

    /// The end of that period: the recorded end, or else the last step, or else the grant.
    pub(crate) fn believed_until(&self) -> Option<Duration> {
        self.belief().map(|(_, end)| end)
    }

    /// Whether the lock was lost (reported or observed) rather than released.
    pub(crate) fn was_lost(&self) -> bool {
        // A client that closes reports `Closed` to all of its holders. That is not a loss.
        let told = self.lost.as_ref().is_some_and(|(_, why)| why != "Closed");
        told || self.over.is_some()
    }

    fn take(&mut self, line: &Line) {
        let at = line.at;
        match &line.what {
            What::Asked => self.asked = at,
            What::Granted { token, until } => {
                (self.granted, self.token) = (Some(at), *token);
                self.steps.push((at, *until));
            }
            What::Slot { slot } => self.slot = Some(slot.clone()),
            What::Done => self.done = Some(at),
            What::Step { until } => self.steps.push((at, *until)),
            What::Over => self.over = Some(at),
            What::Lost { reason } => self.lost = Some((at, reason.clone())),
            What::Left => self.left = Some(at),
            What::Released => self.released = Some(at),
            What::Unreleased { kind } => self.unreleased = Some((at, kind.clone())),
            What::Failed { kind, why } => {
                (self.failed, self.why) = (Some((at, kind.clone())), why.clone());
            }
            What::Stall { .. } => {}
        }
    }
}

/// A period in which a process did not run although no test froze it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stall {
    pub(crate) process: u32,
    pub(crate) end: Duration,
    pub(crate) time: Duration,
}

/// Everything the processes of a run recorded.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    /// In the order of their requests.
    pub(crate) acquisitions: Vec<Acquisition>,
    pub(crate) stalls: Vec<Stall>,
}

impl Histories {
    /// `lines` of each process, by process number.
    pub(crate) fn of<'a>(processes: impl IntoIterator<Item = (u32, &'a [Line])>) -> Self {
        let mut found: BTreeMap<String, Acquisition> = BTreeMap::new();
        let mut stalls = Vec::new();
        for (process, lines) in processes {
            for line in lines {
                if let What::Stall { time } = line.what {
                    let end = line.at;
                    stalls.push(Stall { process, end, time });
                    continue;
                }
                let one = found.entry(line.id.clone()).or_insert_with(|| Acquisition {
                    id: line.id.clone(),
                    process,
                    name: line.name.clone(),
                    ..Acquisition::default()
                });
                one.take(line);
            }
        }
        let mut acquisitions: Vec<_> = found.into_values().collect();
        acquisitions.sort_by_key(|one| one.asked);
        Self {
            acquisitions,
            stalls,
        }
    }

    /// The granted acquisitions of each lock, in the order of their grants.
    pub(crate) fn by_name(&self) -> BTreeMap<&str, Vec<&Acquisition>> {
        let mut names: BTreeMap<&str, Vec<&Acquisition>> = BTreeMap::new();
        for one in &self.acquisitions {
            let of_name = names.entry(&one.name).or_default();
            if one.granted.is_some() {
                of_name.push(one);
            }
        }
        for granted in names.values_mut() {
            granted.sort_by_key(|one| one.granted);
        }
        names
    }

    pub(crate) fn granted(&self) -> impl Iterator<Item = &Acquisition> {
        self.acquisitions.iter().filter(|one| one.granted.is_some())
    }
}
