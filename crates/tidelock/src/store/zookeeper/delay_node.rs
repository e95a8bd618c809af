//! The node that records a lock-delay: its content, and when this process first found it without its holder.

use std::collections::HashMap;
use std::time::Duration;

use zookeeper_client as zk;

use crate::engine::runtime::sync::Mutex;
use crate::error::Result;
use crate::store::zookeeper::errors::unless_missing;
use crate::store::{BootInstant, Name};

/// The parent of all delay nodes. No lock can have this name.
pub(crate) const DELAYS_PARENT: &str = "%delays";
/// Bounds how many first observations are remembered. Beyond it all of them are forgotten.
const MAX_SIGHTINGS: usize = 256;

/// The content of a delay node: the hold it belongs to, and the delay that applies if that hold ends without a
/// release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DelayMark {
    /// The transaction that created the holder's node.
    pub(crate) generation: i64,
    pub(crate) delay: Duration,
    /// A waiter has found this delay node after the holder's node had gone.
    pub(crate) seen: bool,
    pub(crate) version: i32,
    /// When the delay node was last written, by the server's clock, in milliseconds.
    pub(crate) at: i64,
}

/// For each lock, which delay node this process has found without its holder, and when it first did.
#[derive(Debug, Default)]
pub(crate) struct DelaySightings(Mutex<HashMap<Name, (i64, BootInstant)>>);

impl DelaySightings {
    /// How long this process has known the delay node.
    pub(crate) fn since(&self, name: &Name, generation: i64, now: BootInstant) -> Duration {
        let mut sightings = self.0.lock();
        match sightings.get(name) {
            Some((known, at)) if *known == generation => now.since(*at),
            _ => {
                if sightings.len() >= MAX_SIGHTINGS {
                    sightings.clear(); // the forgotten delays start over
                }
                sightings.insert(name.clone(), (generation, now));
                Duration::ZERO
            }
        }
    }

    pub(crate) fn forget(&self, name: &Name) {
        let mut sightings = self.0.lock();
        sightings.remove(name);
    }
}

/// Encodes a delay node.
pub(crate) fn written(generation: i64, delay: Duration, seen: bool) -> String {
    let seen = if seen { " seen" } else { "" };
    format!("{generation} {}{seen}", delay.as_millis())
}

/// Decodes a delay node. Unreadable data counts as a delay that is over; otherwise it would block the lock without
/// end.
pub(crate) fn read(data: &[u8]) -> (i64, Duration, bool) {
    let text = std::str::from_utf8(data).unwrap_or_default();
    let mut words = text.split(' ');
    let generation = words.next().and_then(|word| word.parse().ok());
    let delay = words.next().and_then(|word| word.parse().ok());
    match (generation, delay) {
        (Some(generation), Some(delay)) => {
            let seen = words.next() == Some("seen");
            (generation, Duration::from_millis(delay), seen)
        }
        _ => (0, Duration::ZERO, true),
    }
}

/// `None`: there is no delay node.
pub(crate) fn mark(
    answer: std::result::Result<(Vec<u8>, zk::Stat), zk::Error>,
) -> Result<Option<DelayMark>> {
    Ok(unless_missing(answer)?.map(|(data, stat)| {
        let (generation, delay, seen) = read(&data);
        DelayMark {
            generation,
            delay,
            seen,
            version: stat.version,
            at: stat.mtime,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn a_delay_counts_from_its_first_sighting_and_anew_for_each_hold() {
        let (sightings, second) = (DelaySightings::default(), Duration::from_secs(1));
        let at = |seconds: u32| BootInstant::from_nanos(1) + second * seconds;
        let since = |lock: &str, hold, now| sightings.since(&name(lock), hold, at(now));
        assert_eq!(since("till", 7, 1), Duration::ZERO);
        assert_eq!(since("safe", 7, 2), Duration::ZERO);
        assert_eq!(since("till", 7, 4), second * 3);
        assert_eq!(since("till", 8, 5), Duration::ZERO, "another hold");
        assert_eq!(since("till", 8, 6), second);
        sightings.forget(&name("till"));
        assert_eq!(since("till", 8, 7), Duration::ZERO);
        assert_eq!(since("safe", 7, 7), second * 5);
    }

    #[test]
    fn sightings_are_bounded_and_start_over_when_they_are_forgotten() {
        let (sightings, second) = (DelaySightings::default(), Duration::from_secs(1));
        let start = BootInstant::from_nanos(1);
        for number in 0..MAX_SIGHTINGS {
            sightings.since(&name(&number.to_string()), 7, start);
        }
        assert_eq!(sightings.since(&name("0"), 7, start + second), second);
        sightings.since(&name("one more"), 7, start + second);
        assert_eq!(sightings.0.lock().len(), 1);
    }

    #[test]
    fn a_delay_node_is_read_with_its_version_and_the_time_of_its_last_write() {
        let stat = zk::Stat {
            czxid: 1,
            mzxid: 2,
            pzxid: 3,
            ctime: 4,
            mtime: 5,
            version: 6,
            cversion: 7,
            aversion: 8,
            ephemeral_owner: 9,
            data_length: 10,
            num_children: 11,
        };
        let found = mark(Ok((b"77 250 seen".to_vec(), stat))).unwrap();
        let expected = DelayMark {
            generation: 77,
            delay: Duration::from_millis(250),
            seen: true,
            version: 6,
            at: 5,
        };
        assert_eq!(found, Some(expected));
        assert_eq!(mark(Err(zk::Error::NoNode)).unwrap(), None);
        let error = mark(Err(zk::Error::NoAuth)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
    }

    #[test]
    fn a_written_delay_is_read_and_nothing_else_bars_anybody() {
        for (delay, seen) in [(0, false), (30_000, false), (1, true), (u64::MAX, true)] {
            let delay = Duration::from_millis(delay);
            let text = written(77, delay, seen);
            assert_eq!(read(text.as_bytes()), (77, delay, seen), "{text}");
        }
        for junk in [b"".as_slice(), b"x", b"7", b"7 x", b"\xff 1", b"7 -1"] {
            assert_eq!(read(junk), (0, Duration::ZERO, true));
        }
    }
}
