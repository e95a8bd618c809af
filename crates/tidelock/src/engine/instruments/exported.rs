//! The metrics that the `metrics` facade gets.
//!
//! A handle is registered when its set of labels occurs for the first time, and kept. The sets are bounded: kinds of
//! lock times groups times the variants of our own enums.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Label, SharedString, Unit};

use crate::engine::instruments::labels::{
    AcquireEnd, CleanupCause, CleanupEnd, HandOverStop, HoldOutcome, StoreRequest, WakeCause,
};
use crate::error::ErrorKind;
use crate::name::Name;
use crate::store::matches_glob;
use crate::types::{LockKind, LostReason};

/// Bounds the number of groups that one client may have, so that the number of series is bounded.
const MOST_GROUPS: usize = 50;

/// The group of a name that no rule matches.
const OTHER: &str = "other";

/// The metrics of one client.
#[derive(Default)]
pub(crate) struct Exported {
    store: &'static str,
    /// The first rule whose glob matches a name determines its group, by its place in `groups`.
    rules: Vec<(String, usize)>,
    /// With rules, the last group is [`OTHER`]. Without rules it is empty, and no metric has the label.
    groups: Vec<SharedString>,
    /// For each kind of lock and group.
    series: Vec<LockSeries>,
    requests: Handles<Histogram, { 4 * ANSWERS }>,
}

/// The handles for one kind of lock and one group. Each is registered when it is first used.
#[derive(Default)]
struct LockSeries {
    acquires: Handles<Histogram, 32>,
    holds: Handles<Histogram, 4>,
    held: OnceLock<Gauge>,
    waiting: OnceLock<Gauge>,
    losses: Handles<Counter, 16>,
    margin: OnceLock<Histogram>,
    wakes: Handles<Counter, 4>,
    handovers: Handles<Counter, 4>,
    cleanups: Handles<Counter, 16>,
}

/// Handles of one metric, by the numbers of their labels. The array is long enough for every combination.
struct Handles<H, const N: usize>([OnceLock<H>; N]);

impl<H, const N: usize> Default for Handles<H, N> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; N])
    }
}

/// The numbers of handles that each request to the store has: the first for an answer, the others for the kinds of errors.
const ANSWERS: usize = 16;

/// The kinds of lock, in the order of their numbers.
const KINDS: usize = LockKind::ALL.len();

impl Exported {
    /// `rules`: a glob and its group. At most [`MOST_GROUPS`] groups; further ones become [`OTHER`].
    pub(crate) fn new(store: &'static str, rules: &[(String, String)]) -> Self {
        describe();
        let mut names: Vec<String> = Vec::new();
        let mut numbered = Vec::new();
        for (glob, group) in rules {
            let known = names.iter().position(|name| name == group);
            let place = known.or_else(|| {
                (names.len() < MOST_GROUPS && group != OTHER).then(|| {
                    names.push(group.clone());
                    names.len() - 1
                })
            });
            numbered.push((glob.clone(), place));
        }
        let other = names.len();
        let rules = numbered.into_iter();
        let mut groups: Vec<SharedString> = names.into_iter().map(Into::into).collect();
        let rules: Vec<_> = rules
            .map(|(glob, place)| (glob, place.unwrap_or(other)))
            .collect();
        if !rules.is_empty() {
            groups.push(OTHER.into());
        }
        Self {
            store,
            series: (0..KINDS * groups.len().max(1))
                .map(|_| LockSeries::default())
                .collect(),
            rules,
            groups,
            requests: Handles::default(),
        }
    }

    /// The handles for that lock, and their labels. `None`: this client exports nothing.
    fn series(&self, kind: LockKind, name: &Name) -> Option<(&LockSeries, Labels<'_>)> {
        let rule = self
            .rules
            .iter()
            .find(|(glob, _)| matches_glob(glob, name.as_str()));
        let group = rule.map_or(self.groups.len().saturating_sub(1), |(_, group)| *group);
        let series = self.series.get(group * KINDS + kind.number())?;
        let labels = Labels {
            store: self.store,
            kind: kind.as_str(),
            group: self.groups.get(group),
        };
        Some((series, labels))
    }

    pub(crate) fn acquire_ended(
        &self,
        kind: LockKind,
        name: &Name,
        end: AcquireEnd,
        took: Duration,
        error: Option<ErrorKind>,
    ) {
        let Some((series, labels)) = self.series(kind, name) else {
            return;
        };
        let error = error.filter(|_| end == AcquireEnd::Failed);
        let number = end as usize + error.map_or(0, |error| 1 + error as usize);
        series
            .acquires
            .get(number, || {
                let mut more = vec![Label::from_static_parts("outcome", end.outcome())];
                more.extend(
                    end.path()
                        .map(|path| Label::from_static_parts("path", path)),
                );
                more.extend(error.map(|e| Label::from_static_parts("error.type", e.as_str())));
                metrics::histogram!("tidelock.acquire.duration", labels.and(more))
            })
            .record(took);
    }

    pub(crate) fn waits(&self, kind: LockKind, name: &Name, begins: bool) {
        let Some((series, labels)) = self.series(kind, name) else {
            return;
        };
        let register = || metrics::gauge!("tidelock.waiter.count", labels.and(vec![]));
        move_gauge(series.waiting.get_or_init(register), begins);
    }

    pub(crate) fn holds(&self, kind: LockKind, name: &Name, begins: bool) {
        let Some((series, labels)) = self.series(kind, name) else {
            return;
        };
        let register = || metrics::gauge!("tidelock.hold.count", labels.and(vec![]));
        move_gauge(series.held.get_or_init(register), begins);
    }

    pub(crate) fn hold_ended(
        &self,
        kind: LockKind,
        name: &Name,
        outcome: HoldOutcome,
        lasted: Duration,
    ) {
        self.holds(kind, name, false);
        let Some((series, labels)) = self.series(kind, name) else {
            return;
        };
        let number = match outcome {
            HoldOutcome::Released => 0,
            HoldOutcome::Dropped => 1,
            HoldOutcome::Lost(_) => 2,
        };
        let end = Label::from_static_parts("end", outcome.as_str());
        series
            .holds
            .get(number, || {
                metrics::histogram!("tidelock.hold.duration", labels.and(vec![end]))
            })
            .record(lasted);
        if let HoldOutcome::Lost(reason) = outcome {
            let label = Label::from_static_parts("reason", LostReason::as_str(reason));
            series
                .losses
                .get(usize::from(reason.number()), || {
                    metrics::counter!("tidelock.losses", labels.and(vec![label]))
                })
                .increment(1);
        }
    }

    pub(crate) fn renewed(&self, kind: LockKind, name: &Name, left: Duration) {
        let Some((series, labels)) = self.series(kind, name) else {
            return;
        };
        let register = || metrics::histogram!("tidelock.lease.margin", labels.and(vec![]));
        series.margin.get_or_init(register).record(left);
    }

    pub(crate) fn woken(&self, kind: LockKind, name: &Name, cause: WakeCause, useful: bool) {
        let Some((series, labels)) = self.series(kind, name) else {
            return;
        };
        let text = if useful { "true" } else { "false" };
        series
            .wakes
            .get(cause as usize * 2 + usize::from(useful), || {
                let more = vec![
                    Label::from_static_parts("cause", cause.as_str()),
                    Label::from_static_parts("useful", text),
                ];
                metrics::counter!("tidelock.wakes", labels.and(more))
            })
            .increment(1);
    }

    pub(crate) fn handed_over(&self, kind: LockKind, name: &Name, stopped: Option<HandOverStop>) {
        let Some((series, labels)) = self.series(kind, name) else {
            return;
        };
        let result = stopped.map_or("passed", HandOverStop::as_str);
        series
            .handovers
            .get(stopped.map_or(0, |stop| 1 + stop as usize), || {
                let more = vec![
                    Label::from_static_parts("scope", "process"),
                    Label::from_static_parts("result", result),
                ];
                metrics::counter!("tidelock.handovers", labels.and(more))
            })
            .increment(1);
    }

    pub(crate) fn cleaned_up(
        &self,
        kind: LockKind,
        name: &Name,
        cause: CleanupCause,
        end: CleanupEnd,
    ) {
        let Some((series, labels)) = self.series(kind, name) else {
            return;
        };
        series
            .cleanups
            .get(
                cause as usize * CleanupEnd::ALL.len() + end as usize,
                || {
                    let more = vec![
                        Label::from_static_parts("cause", cause.as_str()),
                        Label::from_static_parts("outcome", end.as_str()),
                    ];
                    metrics::counter!("tidelock.cleanups", labels.and(more))
                },
            )
            .increment(1);
    }

    pub(crate) fn answered(&self, request: StoreRequest, took: Duration, error: Option<ErrorKind>) {
        if self.series.is_empty() {
            return;
        }
        let number = request as usize * ANSWERS + error.map_or(0, |error| 1 + error as usize);
        self.requests
            .get(number, || {
                let mut labels = vec![
                    Label::from_static_parts("db.system.name", self.store),
                    Label::from_static_parts("db.operation.name", request.as_str()),
                ];
                labels.extend(error.map(|e| Label::from_static_parts("error.type", e.as_str())));
                metrics::histogram!("db.client.operation.duration", labels)
            })
            .record(took);
    }
}

impl<H, const N: usize> Handles<H, N> {
    fn get(&self, number: usize, register: impl FnOnce() -> H) -> &H {
        self.0[number % N].get_or_init(register)
    }
}

/// The labels that every metric of a lock has.
struct Labels<'a> {
    store: &'static str,
    kind: &'static str,
    group: Option<&'a SharedString>,
}

impl Labels<'_> {
    fn and(&self, more: Vec<Label>) -> Vec<Label> {
        let mut labels = vec![
            Label::from_static_parts("store", self.store),
            Label::from_static_parts("kind", self.kind),
        ];
        labels.extend(self.group.map(|group| Label::new("group", group.clone())));
        labels.extend(more);
        labels
    }
}

fn move_gauge(gauge: &Gauge, up: bool) {
    if up {
        gauge.increment(1.0);
    } else {
        gauge.decrement(1.0);
    }
}

/// Tells the recorder units and meanings.
fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_histogram!(
        "tidelock.acquire.duration",
        Unit::Seconds,
        "How long acquire calls took, by outcome"
    );
    describe_histogram!(
        "tidelock.hold.duration",
        Unit::Seconds,
        "How long locks were held"
    );
    describe_gauge!(
        "tidelock.hold.count",
        Unit::Count,
        "Locks that are held now"
    );
    describe_gauge!(
        "tidelock.waiter.count",
        Unit::Count,
        "Acquire calls that wait now"
    );
    describe_counter!(
        "tidelock.losses",
        Unit::Count,
        "Holds that were lost, by reason"
    );
    describe_histogram!(
        "tidelock.lease.margin",
        Unit::Seconds,
        "Lease that was left when a renewal was confirmed"
    );
    describe_counter!(
        "tidelock.wakes",
        Unit::Count,
        "Waiters that were woken and asked the store again"
    );
    describe_counter!(
        "tidelock.handovers",
        Unit::Count,
        "Holds given up while a task of this process waited"
    );
    describe_counter!(
        "tidelock.cleanups",
        Unit::Count,
        "Requests that the background had to undo"
    );
    describe_histogram!(
        "db.client.operation.duration",
        Unit::Seconds,
        "How long the store took to answer"
    );
}

impl fmt::Debug for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: BTreeSet<_> = self.groups.iter().collect();
        f.debug_struct("Exported")
            .field("store", &self.store)
            .field("groups", &groups)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
