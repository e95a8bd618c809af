//! How often the processes acquire.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use crate::top::picture::{Picture, ProcessRow};

/// The shortest time between two records of a process. Two pictures often show the same record, and the age of a record
/// is known to a few milliseconds.
const SHORTEST: Duration = Duration::from_millis(500);

/// What each process told last, and how often it acquired until then.
#[derive(Debug, Default)]
pub(super) struct Rates {
    of_clients: HashMap<String, Told>,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    at: SystemTime,
    acquired: u64,
    per_second: Option<f64>,
}

impl Rates {
    pub(super) fn note(&mut self, picture: &Picture) {
        let mut known = std::mem::take(&mut self.of_clients);
        for process in picture.processes.iter().filter(|one| !one.is_gone) {
            let now = told(process, picture.at);
            let told = match known.remove(&process.client) {
                None => now,
                Some(before) => before.then(now),
            };
            self.of_clients.insert(process.client.clone(), told);
        }
    }

    /// Of all the processes. `None`: none has told twice.
    pub(super) fn per_second(&self) -> Option<f64> {
        let rates = self.of_clients.values().filter_map(|told| told.per_second);
        rates.fold(None, |sum, rate| Some(sum.unwrap_or(0.0) + rate))
    }
}

fn told(process: &ProcessRow, seen: SystemTime) -> Told {
    Told {
        at: seen.checked_sub(process.age).unwrap_or(seen),
        acquired: process.acquired,
        per_second: None,
    }
}

impl Told {
    fn then(self, now: Self) -> Self {
        let between = now.at.duration_since(self.at).unwrap_or_default();
        if between < SHORTEST {
            return self;
        }
        #[allow(
            clippy::cast_precision_loss,
            reason = "a rate is shown in three digits"
        )]
        let acquired = now.acquired.saturating_sub(self.acquired) as f64;
        Self {
            per_second: Some(acquired / between.as_secs_f64()),
            ..now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::picture;

    fn later(seconds: u64, acquired: u64) -> Picture {
        let mut later = picture();
        later.at += Duration::from_secs(seconds);
        for process in &mut later.processes {
            process.acquired = process.acquired.saturating_add(acquired);
        }
        later
    }

    #[test]
    fn a_rate_is_the_difference_of_what_a_process_told_twice() {
        let mut rates = Rates::default();
        rates.note(&picture());
        assert_eq!(rates.per_second(), None, "told once");
        rates.note(&later(4, 100));
        assert_eq!(rates.per_second(), Some(50.0), "25 of each living process");
        let mut same = later(6, 100);
        for process in &mut same.processes {
            process.age += Duration::from_secs(2);
        }
        rates.note(&same);
        assert_eq!(rates.per_second(), Some(50.0), "the same record again");
        let mut ended = later(8, 100);
        ended.processes.clear();
        rates.note(&ended);
        assert_eq!(rates.per_second(), None, "nobody is left");
    }
}
