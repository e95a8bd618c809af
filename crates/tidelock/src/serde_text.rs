//! How durations and times are written with the feature `serde`: as readable texts, `1m 30s` and
//! `2026-01-31T12:00:00Z`. The crate `humantime` reads what it writes, to the nanosecond.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error as _;
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::types::LostReason;

/// A duration as text.
struct DurationText(Duration);

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text)
            .map(Self)
            .map_err(|error| D::Error::custom(format!("{error}; write a duration such as 30s")))
    }
}

pub(crate) mod duration {
    use super::{Deserialize, Deserializer, Duration, DurationText, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        duration: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        DurationText(*duration).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        DurationText::deserialize(deserializer).map(|text| text.0)
    }
}

pub(crate) mod optional_duration {
    use super::{Deserialize, Deserializer, Duration, DurationText, Serialize, Serializer};

    #[allow(clippy::ref_option, reason = "the signature that serde calls")]
    pub(crate) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(DurationText).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<DurationText>::deserialize(deserializer)?.map(|text| text.0))
    }
}

pub(crate) mod durations {
    use super::{Duration, DurationText, SerializeSeq, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        durations: &[Duration],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(durations.len()))?;
        for duration in durations {
            list.serialize_element(&DurationText(*duration))?;
        }
        list.end()
    }
}

pub(crate) mod time {
    use super::{Serializer, SystemTime, UNIX_EPOCH};

    /// Clients write the time in the store, by their own clocks. `humantime` has no text for a time before 1970.
    pub(crate) fn serialize<S: Serializer>(
        time: &SystemTime,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_rfc3339(*time.max(&UNIX_EPOCH)))
    }
}

pub(crate) mod losses {
    use super::{LostReason, Serializer};

    /// A map from the reason to the count.
    pub(crate) fn serialize<S: Serializer>(
        losses: &[(LostReason, u64)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(losses.iter().map(|(reason, count)| (reason, count)))
    }
}
