//! The time in which no node reports the map of a cluster that is up.

use std::time::Duration;

use crate::store::BootInstant;

/// After so many failed refreshes, and the time for it, the cluster counts as gone. A process that was frozen for long has not
/// asked often.
const MIN_FAILURES: u32 = 10;

/// After so many failed refreshes and this time, the operator is told. Most failovers are over before.
const TOLD_AFTER: (u32, Duration) = (3, Duration::from_secs(5));

/// Refreshes of the map that have failed, one after the other.
#[derive(Debug)]
pub(super) struct MapOutage {
    since: BootInstant,
    count: u32,
    /// The operator was told of it.
    is_told: bool,
}

impl MapOutage {
    pub(super) fn begun(now: BootInstant) -> Self {
        Self {
            since: now,
            count: 0,
            is_told: false,
        }
    }

    /// Counts a refresh that has failed. Returns whether the operator must be told now, which happens once.
    pub(super) fn goes_on(&mut self, now: BootInstant) -> bool {
        self.count = self.count.saturating_add(1);
        let (failures, time) = TOLD_AFTER;
        let is_news = !self.is_told && self.count >= failures && now.since(self.since) >= time;
        self.is_told |= is_news;
        is_news
    }

    /// Whether it has lasted so long that the cluster counts as gone.
    pub(super) fn has_lasted(&self, gone_after: Duration, now: BootInstant) -> bool {
        self.count > MIN_FAILURES && now.since(self.since) >= gone_after
    }

    /// How long it has lasted, if the operator was told that it has begun.
    pub(super) fn told_for(&self, now: BootInstant) -> Option<Duration> {
        self.is_told.then(|| now.since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: BootInstant = BootInstant(7);

    #[test]
    fn an_operator_is_told_once_of_an_outage_that_is_no_failover() {
        let (failures, time) = TOLD_AFTER;
        let almost = time.saturating_sub(Duration::from_nanos(1));
        let told_at = |times: &[Duration]| -> Option<usize> {
            let mut outage = MapOutage::begun(BEGUN);
            let mut is_told = |at: Duration| outage.goes_on(BEGUN + at);
            times.iter().position(|at| is_told(*at))
        };
        assert_eq!(failures, 3);
        assert_eq!(told_at(&[almost; 40]), None, "a failover is over before");
        assert_eq!(told_at(&[time; 2]), None, "a process was frozen");
        assert_eq!(told_at(&[time; 9]), Some(2));
        assert_eq!(told_at(&[almost, almost, almost, time, time * 9]), Some(3));
    }

    #[test]
    fn a_cluster_is_gone_after_both_the_time_and_the_failures() {
        let lease = Duration::from_secs(30);
        let almost = lease.saturating_sub(Duration::from_nanos(1));
        for (failures, after, is_gone) in [
            (10, lease * 9, false),
            (11, almost, false),
            (11, lease, true),
            (40, lease * 9, true),
        ] {
            let mut outage = MapOutage::begun(BEGUN);
            for _ in 0..failures {
                outage.goes_on(BEGUN);
            }
            let has_lasted = outage.has_lasted(lease, BEGUN + after);
            assert_eq!(has_lasted, is_gone, "{failures} in {after:?}");
        }
    }

    #[test]
    fn only_an_outage_that_was_told_is_said_to_be_over() {
        let (second, mut outage) = (Duration::from_secs(1), MapOutage::begun(BEGUN));
        for at in [BEGUN, BEGUN, BEGUN] {
            outage.goes_on(at);
        }
        assert_eq!(outage.told_for(BEGUN + second), None);
        outage.goes_on(BEGUN + TOLD_AFTER.1);
        assert_eq!(outage.told_for(BEGUN + second), Some(second));
    }
}
