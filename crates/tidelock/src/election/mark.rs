//! The mark of text by which a candidate shows itself in the store.

use std::time::SystemTime;

use crate::snapshot::{millis_since_epoch, since_epoch};
use crate::store::percent;

/// The first word of a stored line. The history of a job passes over such a line.
const VERSION: &str = "candidate1";

/// What the store shows of one candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CandidateMark {
    pub(super) identity: String,
    /// When it began to campaign or, if it leads, when it became the leader.
    pub(super) since: SystemTime,
    /// The owner and the term of its leadership. `None`: it waits, or has become the leader a moment ago.
    pub(super) led: Option<(String, u64)>,
    pub(super) priority: i32,
}

impl CandidateMark {
    pub(super) fn to_text(&self) -> String {
        let mut line = format!("{VERSION} since={}", millis_since_epoch(self.since));
        let mut put = |key: &str, value: &str| {
            line.push(' ');
            line.push_str(key);
            line.push('=');
            percent::encode_word(&mut line, value);
        };
        put("identity", &self.identity);
        if self.priority != 0 {
            put("priority", &self.priority.to_string());
        }
        if let Some((owner, term)) = &self.led {
            put("owner", owner);
            put("term", &term.to_string());
        }
        line
    }

    /// `None`: the text is no mark of a candidate. Words of later versions are passed over.
    pub(super) fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        if words.next()? != VERSION {
            return None;
        }
        let (mut identity, mut since, mut owner, mut term) = (None, None, None, None);
        let mut priority = 0;
        for word in words {
            let (key, value) = word.split_once('=')?;
            let value = percent::decode(value)?;
            match key {
                "identity" => identity = Some(value),
                "priority" => priority = value.parse().ok()?,
                "since" => since = Some(since_epoch(value.parse().ok()?)),
                "owner" => owner = Some(value),
                "term" => term = Some(value.parse().ok()?),
                _ => {}
            }
        }
        Some(Self {
            identity: identity?,
            since: since?,
            led: owner.zip(term),
            priority,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_candidate_is_read_as_it_was_written(
            identity in ".+", owner in ".*", term: u64, leads: bool, priority: i32
        ) {
            let led = leads.then_some((owner, term));
            let mark = CandidateMark { identity, since: since_epoch(5), led, priority };
            let text = mark.to_text();
            prop_assert!(!text.contains(char::is_control));
            prop_assert_eq!(CandidateMark::from_text(&text), Some(mark));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = CandidateMark::from_text(&text);
            let _ = CandidateMark::from_text(&format!("{VERSION} {text}"));
        }
    }

    #[test]
    fn a_mark_of_another_kind_is_no_candidate() {
        let later = "candidate1 since=5 identity=a colour=red";
        assert_eq!(CandidateMark::from_text(later).unwrap().identity, "a");
        for other in [
            "",
            "candidate2 since=5 identity=a",
            "candidate1 since=5",
            "mark1 done attempt=1",
        ] {
            assert_eq!(CandidateMark::from_text(other), None, "{other}");
        }
    }
}
