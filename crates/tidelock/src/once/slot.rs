//! Slots: which calls belong to the same run of a job.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind, Result};
#[cfg(doc)]
use crate::once::OnceJob;
use crate::snapshot::since_epoch;

/// A call that is this much too early for a slot still belongs to it, unless the slot is short: half its length at
/// most.
const EARLY: Duration = Duration::from_secs(30);

/// The longest text of a slot, in bytes: as long as a lock name may be on every store.
const LONGEST: usize = 200;

/// Which calls of a [`OnceJob`] belong together: of the calls of one slot, one runs the job.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tidelock::once::Slot;
///
/// let hourly = Slot::every(Duration::from_secs(3600));
/// let one_file = Slot::id("orders-17.csv");
/// # drop((hourly, one_file));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    rule: SlotRule,
    early: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SlotRule {
    Every(Duration),
    Id(String),
    #[cfg(feature = "cron")]
    Cron {
        pattern: String,
        zone: String,
    },
}

impl Slot {
    fn new(rule: SlotRule) -> Self {
        Self { rule, early: None }
    }

    /// Slots of this length, one after the other, by the store's clock. Tickers may be shifted against each other, and
    /// the clocks of the callers may differ: all calls between two boundaries belong to one slot. The boundaries are
    /// the multiples of the length since 1970, minus [`early`](Self::early).
    ///
    /// [`OnceJob::run`] refuses a length below one millisecond.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::once::Slot;
    ///
    /// let hourly = Slot::every(Duration::from_secs(3600)); // for a call from 10:59:30 to 11:59:30: 11:00
    /// # drop(hourly);
    /// ```
    pub fn every(length: Duration) -> Self {
        Self::new(SlotRule::Every(length))
    }

    /// One slot with this text, whenever the call comes: for a file, a webhook, a migration, a date made by hand. It is run
    /// once for as long as its mark is [kept](OnceJob::keep), seven days by default. A later call runs it again.
    ///
    /// [`OnceJob::run`] refuses an empty text, one of more than 200 bytes, and one with control characters.
    ///
    /// # Examples
    /// ```
    /// use tidelock::once::Slot;
    ///
    /// let today = Slot::id("2026-11-20");
    /// # drop(today);
    /// ```
    pub fn id(text: impl Into<String>) -> Self {
        Self::new(SlotRule::Id(text.into()))
    }

    /// The times of a crontab line in a time zone (`Europe/Berlin`), by the store's clock: a call belongs to the newest
    /// of these times that has come. A call of a slot that nobody ran runs it, also when it comes hours later.
    ///
    /// Five fields (minute, hour, day of month, month, day of week) or six (seconds first), and `@daily` and the like.
    /// A day on which daylight saving skips a line's only time of day, or repeats it, has one slot all the same. Of several
    /// hours or minutes, those that are skipped have no slot, and those that come twice have two. [`OnceJob::run`]
    /// refuses a pattern that is none, and a zone that this machine does not know.
    ///
    /// # Examples
    /// ```
    /// use tidelock::once::Slot;
    ///
    /// let nightly = Slot::cron("0 3 * * *", "Europe/Berlin");
    /// # drop(nightly);
    /// ```
    #[cfg(feature = "cron")]
    pub fn cron(pattern: impl Into<String>, zone: impl Into<String>) -> Self {
        let (pattern, zone) = (pattern.into(), zone.into());
        Self::new(SlotRule::Cron { pattern, zone })
    }

    /// A call that comes up to this long before a slot begins belongs to that slot. Without it, a cron daemon whose
    /// clock is 200 ms ahead of the store's would start every job in the slot before, which has run. Default: 30 s, and
    /// at most half of the slot.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tidelock::once::Slot;
    ///
    /// let exact = Slot::every(Duration::from_secs(60)).early(Duration::ZERO);
    /// # drop(exact);
    /// ```
    #[must_use]
    pub fn early(mut self, time: Duration) -> Self {
        self.early = Some(time);
        self
    }

    /// How long a slot lasts. `None`: without end, or not always the same.
    pub(super) fn length(&self) -> Option<Duration> {
        match &self.rule {
            SlotRule::Every(length) => Some(*length),
            SlotRule::Id(_) => None,
            #[cfg(feature = "cron")]
            SlotRule::Cron { .. } => None,
        }
    }

    /// Whether the slots may differ in length, so that only [`lasts`](Self::lasts) tells how long one is.
    pub(super) fn is_of_any_length(&self) -> bool {
        match &self.rule {
            SlotRule::Every(_) | SlotRule::Id(_) => false,
            #[cfg(feature = "cron")]
            SlotRule::Cron { .. } => true,
        }
    }

    /// How long that slot lasts, a call that comes a little early included. `None`: only [`length`](Self::length) may tell.
    #[cfg_attr(
        not(feature = "cron"),
        expect(unused_variables, reason = "only crontab lines need it")
    )]
    pub(super) fn lasts(&self, slot: &str) -> Option<Duration> {
        match &self.rule {
            SlotRule::Every(_) | SlotRule::Id(_) => None,
            #[cfg(feature = "cron")]
            SlotRule::Cron { pattern, zone } => cron::lasts(pattern, zone, self.early, slot),
        }
    }

    /// The slot of a call that comes at `now`.
    pub(super) fn at(&self, now: SystemTime) -> Result<String> {
        match &self.rule {
            SlotRule::Id(text) => checked(text),
            SlotRule::Every(length) => {
                let early = self.early.unwrap_or(EARLY).min(*length / 2);
                every(now + early, *length)
            }
            #[cfg(feature = "cron")]
            SlotRule::Cron { pattern, zone } => cron::slot(pattern, zone, self.early, now),
        }
    }
}

fn invalid(detail: String) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(detail)
}

fn checked(text: &str) -> Result<String> {
    if text.is_empty() || text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err(invalid(format!(
            "the id of a slot must have 1 to {LONGEST} bytes and no control characters; this one has {}",
            text.len()
        )));
    }
    Ok(text.to_owned())
}

fn every(now: SystemTime, length: Duration) -> Result<String> {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    if millis == 0 {
        return Err(invalid(format!(
            "a slot must last at least 1 ms, not {length:?}"
        )));
    }
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    Ok(written(now - now % millis))
}

/// A time as `2026-11-20T03:00:00Z`, with milliseconds if there are any.
fn written(millis: u64) -> String {
    let time = since_epoch(millis);
    if millis.is_multiple_of(1000) {
        humantime::format_rfc3339_seconds(time).to_string()
    } else {
        humantime::format_rfc3339_millis(time).to_string()
    }
}

#[cfg(feature = "cron")]
mod cron {
    use std::time::{Duration, SystemTime};

    use croner::Cron;
    use jiff::tz::TimeZone;
    use jiff::{Timestamp, Zoned};

    use super::{EARLY, invalid, written};
    use crate::error::Result;

    /// The newest time of the pattern that has come, or one that is nearer than `early`.
    pub(super) fn slot(
        pattern: &str,
        zone: &str,
        early: Option<Duration>,
        now: SystemTime,
    ) -> Result<String> {
        let cron: Cron = pattern
            .parse()
            .map_err(|error| invalid(format!("{pattern:?} is no cron pattern: {error}")))?;
        let zone = TimeZone::get(zone).map_err(|error| {
            invalid(format!(
                "the time zone {zone:?} is not known here: {error}. Use a name such as Europe/Berlin or UTC; a small container may lack the package tzdata"
            ))
        })?;
        let never = |error| {
            invalid(format!(
                "the cron pattern {pattern:?} has no such time: {error}"
            ))
        };
        let now = Timestamp::try_from(now)
            .map_err(|error| invalid(format!("the store's clock cannot be used: {error}")))?;
        let here: Zoned = now.to_zoned(zone);
        let newest = cron.find_previous_occurrence(&here, true).map_err(never)?;
        let newest = newest.timestamp();
        let Ok(next) = cron.find_next_occurrence(&here, false) else {
            return Ok(text(newest)); // it was the last one
        };
        let next = next.timestamp();
        let half = next.duration_since(newest).unsigned_abs() / 2;
        let early = early.unwrap_or(EARLY).min(half);
        let belongs = next.duration_since(now).unsigned_abs() <= early;
        Ok(text(if belongs { next } else { newest }))
    }

    /// The time between the one that this slot stands for and the next, and before it that of early calls. `None`: it is the
    /// last one.
    pub(super) fn lasts(
        pattern: &str,
        zone: &str,
        early: Option<Duration>,
        slot: &str,
    ) -> Option<Duration> {
        let cron: Cron = pattern.parse().ok()?;
        let begin: Timestamp = slot.parse().ok()?;
        let here = begin.to_zoned(TimeZone::get(zone).ok()?);
        let next = cron.find_next_occurrence(&here, false).ok()?;
        let lasts = next.timestamp().duration_since(begin).unsigned_abs();
        // As in `slot`: half of the time since the one before, at most.
        let half = match cron.find_previous_occurrence(&here, false) {
            Ok(before) => begin.duration_since(before.timestamp()).unsigned_abs() / 2,
            Err(_) => Duration::ZERO,
        };
        Some(lasts + early.unwrap_or(EARLY).min(half))
    }

    fn text(time: Timestamp) -> String {
        written(u64::try_from(time.as_millisecond()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SystemTime {
        humantime::parse_rfc3339(text).unwrap()
    }

    #[test]
    fn all_calls_between_two_boundaries_are_one_slot() {
        let hourly = Slot::every(Duration::from_secs(3600)).early(Duration::ZERO);
        for call in ["2026-11-20T03:00:00Z", "2026-11-20T03:59:59.999Z"] {
            assert_eq!(hourly.at(at(call)).unwrap(), "2026-11-20T03:00:00Z");
        }
        let quick = Slot::every(Duration::from_millis(250)).early(Duration::ZERO);
        let slot = quick.at(at("2026-11-20T03:00:00.600Z")).unwrap();
        assert_eq!(slot, "2026-11-20T03:00:00.500Z");
    }

    #[test]
    fn a_call_a_little_early_belongs_to_the_slot_that_begins() {
        let hourly = Slot::every(Duration::from_secs(3600));
        let slot = |call| hourly.at(at(call)).unwrap();
        assert_eq!(slot("2026-11-20T02:59:29Z"), "2026-11-20T02:00:00Z");
        assert_eq!(slot("2026-11-20T02:59:31Z"), "2026-11-20T03:00:00Z");
        // Never more than half of the slot: otherwise the slots of a quick job would be those to come.
        let quick = Slot::every(Duration::from_secs(10));
        let slot = |call| quick.at(at(call)).unwrap();
        assert_eq!(slot("2026-11-20T03:00:04Z"), "2026-11-20T03:00:00Z");
        assert_eq!(slot("2026-11-20T03:00:06Z"), "2026-11-20T03:00:10Z");
    }

    #[test]
    fn a_slot_that_is_none_is_refused() {
        let now = at("2026-11-20T03:00:00Z");
        let longest = Slot::id("x".repeat(LONGEST));
        assert_eq!(longest.at(now).unwrap().len(), LONGEST);
        let shortest = Slot::every(Duration::from_millis(1));
        assert_eq!(shortest.at(now).unwrap(), "2026-11-20T03:00:00Z");
        let long = "x".repeat(LONGEST + 1);
        for bad in [
            Slot::id(""),
            Slot::id(long),
            Slot::id("a\nb"),
            Slot::every(Duration::ZERO),
            Slot::every(Duration::from_micros(999)),
        ] {
            let error = bad.at(now).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{bad:?}");
        }
    }

    #[cfg(feature = "cron")]
    #[test]
    fn a_cron_slot_is_the_newest_time_that_has_come() {
        let nightly = Slot::cron("0 3 * * *", "Europe/Berlin");
        let slot = |call| nightly.at(at(call)).unwrap();
        assert_eq!(slot("2026-11-20T02:00:00Z"), "2026-11-20T02:00:00Z"); // winter: UTC+1
        assert_eq!(slot("2026-11-20T14:00:00Z"), "2026-11-20T02:00:00Z");
        assert_eq!(slot("2026-07-01T00:59:20Z"), "2026-06-30T01:00:00Z"); // summer: UTC+2
        assert_eq!(slot("2026-07-01T00:59:40Z"), "2026-07-01T01:00:00Z"); // a little early
    }

    #[cfg(feature = "cron")]
    #[test]
    fn a_call_belongs_to_a_cron_slot_to_come_for_half_of_the_time_at_most() {
        let each_minute = Slot::cron("* * * * *", "UTC");
        for (early, call, begun) in [
            (
                Duration::MAX,
                "2026-11-20T03:00:29Z",
                "2026-11-20T03:00:00Z",
            ),
            (
                Duration::MAX,
                "2026-11-20T03:00:30Z",
                "2026-11-20T03:01:00Z",
            ),
            (
                Duration::from_secs(10),
                "2026-11-20T03:00:49Z",
                "2026-11-20T03:00:00Z",
            ),
            (
                Duration::from_secs(10),
                "2026-11-20T03:00:50Z",
                "2026-11-20T03:01:00Z",
            ),
        ] {
            let slot = each_minute.clone().early(early).at(at(call));
            assert_eq!(slot.unwrap(), begun, "{call}, {early:?}");
        }
    }

    #[cfg(feature = "cron")]
    #[test]
    fn a_time_that_summer_time_skips_or_repeats_is_one_slot() {
        let nightly = Slot::cron("30 2 * * *", "Europe/Berlin");
        let mut slots = std::collections::BTreeSet::new();
        // 29 March has no 02:30, 25 October has it twice. A ticker calls every ten minutes.
        for (from, to) in [("2026-03-28", "2026-03-31"), ("2026-10-24", "2026-10-27")] {
            let mut call = at(&format!("{from}T12:00:00Z"));
            while call < at(&format!("{to}T12:00:00Z")) {
                slots.insert(nightly.at(call).unwrap());
                call += Duration::from_secs(600);
            }
        }
        let slots: Vec<&str> = slots.iter().map(String::as_str).collect();
        assert_eq!(slots.len(), 8, "one a day: {slots:?}");
    }

    /// A cron daemon starts a line whose time is skipped when the skipped hour is over, and one whose time comes twice at the
    /// first of the two. If the slot began later, that call would belong to the slot before, and the day would get no run.
    #[cfg(feature = "cron")]
    #[test]
    fn a_cron_slot_has_begun_when_cron_starts_a_skipped_or_repeated_line() {
        let nightly = Slot::cron("30 2 * * *", "Europe/Berlin").early(Duration::ZERO);
        let slot = |call| nightly.at(at(call)).unwrap();
        // At 01:00 UTC it becomes 03:00, and there is no 02:30.
        assert_eq!(slot("2026-03-29T01:00:00Z"), "2026-03-29T01:00:00Z");
        assert_eq!(slot("2026-03-29T00:59:59Z"), "2026-03-28T01:30:00Z");
        // At 01:00 UTC it becomes 02:00 again, and 02:30 comes at 00:30 UTC and an hour later.
        assert_eq!(slot("2026-10-25T00:30:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(slot("2026-10-25T01:30:00Z"), "2026-10-25T00:30:00Z");
    }

    #[cfg(feature = "cron")]
    #[test]
    fn a_cron_slot_lasts_until_the_next_one() {
        let day = Duration::from_secs(24 * 3600);
        let monthly = Slot::cron("0 3 1 * *", "Europe/Berlin").early(Duration::ZERO);
        let november = monthly.at(at("2026-11-20T03:00:00Z")).unwrap();
        assert_eq!(monthly.lasts(&november), Some(day * 30));
        // October had an hour more, as summer time ended.
        let before = day * 31 + Duration::from_secs(3600);
        let early = Slot::cron("0 3 1 * *", "Europe/Berlin").early(Duration::MAX);
        assert_eq!(early.lasts(&november), Some(day * 30 + before / 2));
        assert_eq!(Slot::id("a").lasts("a"), None);
    }

    #[cfg(feature = "cron")]
    #[test]
    fn a_cron_slot_that_is_none_is_refused() {
        let now = at("2026-11-20T03:00:00Z");
        for (pattern, zone) in [
            ("0 3 * *", "UTC"),
            ("61 * * * *", "UTC"),
            ("0 3 * * *", "Mars/Olympus"),
        ] {
            let error = Slot::cron(pattern, zone).at(now).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions);
            let text = error.to_string();
            assert!(text.contains(pattern) || text.contains(zone), "{text}");
        }
    }
}
