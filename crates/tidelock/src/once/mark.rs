//! The mark of a slot: what its job did, and the line of text in which the store keeps it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, ErrorKind, Result};
use crate::once::retry::Retry;
use crate::snapshot::{ClientInfo, millis_since_epoch, since_epoch};
use crate::store::percent;
use crate::types::FencingToken;

/// The first word of a stored mark.
const VERSION: &str = "mark1";

/// Bounds the stored text of an error, in characters.
const LONGEST_ERROR: usize = 300;

/// What the newest attempt of a slot did.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::once::{MarkState, Once, Slot};
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let import = client.once("import").slot(Slot::id("orders-17.csv"));
/// import.run(|_| async { Ok::<_, std::io::Error>(()) }).await?;
/// if let Once::Done(mark) = import.run(|_| async { Ok::<_, std::io::Error>(()) }).await? {
///     assert_eq!((mark.state, mark.attempt), (MarkState::Done, 1));
///     println!("done at {:?} by process {}", mark.ended, mark.process.pid);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// The slot.
    pub slot: String,
    /// Whether the attempt runs, has succeeded or has failed.
    pub state: MarkState,
    /// The number of the attempt in this slot: 1 for the first.
    pub attempt: u32,
    /// The fencing token of the attempt.
    pub token: FencingToken,
    /// The owner that ran it, as [`Holder::owner`](crate::Holder::owner).
    pub owner: String,
    /// The process that ran it.
    pub process: ClientInfo,
    /// When it began, by the store's clock.
    pub started: SystemTime,
    /// When it ended: the store's time of its start plus the time that it took. `None`: it has not ended, or its
    /// process died.
    pub ended: Option<SystemTime>,
    /// Why it failed; at most 300 characters.
    pub error: Option<String>,
}

/// The state of a [`Mark`].
///
/// # Examples
/// ```
/// assert_eq!(tidelock::once::MarkState::Done.as_str(), "done");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MarkState {
    /// The attempt has begun and has not ended. If nobody holds the lock of the job, its process has died.
    Running,
    /// The job has succeeded.
    Done,
    /// The job has failed.
    Failed,
}

impl MarkState {
    /// The name of the state in lower case. It never changes.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(tidelock::once::MarkState::Running.as_str(), "running");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Running, Self::Done, Self::Failed]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

impl Mark {
    /// Whether a slot with this mark gets no other attempt, whoever holds the lock.
    pub(super) fn is_final(&self, retry: Retry) -> bool {
        match self.state {
            MarkState::Done => true,
            MarkState::Failed => self.attempt >= retry.attempts(),
            MarkState::Running => false, // its process may have died
        }
    }

    /// Whether a slot with this mark gets no other attempt, if nobody runs it now.
    pub(super) fn is_exhausted(&self, retry: Retry) -> bool {
        self.state == MarkState::Done || self.attempt >= retry.attempts()
    }

    /// The mark of the same attempt after its end.
    pub(super) fn ended(&self, took: Duration, error: Option<String>) -> Self {
        let state = match error {
            None => MarkState::Done,
            Some(_) => MarkState::Failed,
        };
        Self {
            state,
            ended: Some(self.started + took),
            error: error.map(|text| text.chars().take(LONGEST_ERROR).collect()),
            ..self.clone()
        }
    }

    /// The line that the store keeps. The slot is its key.
    pub(super) fn to_line(&self) -> String {
        let mut line = format!(
            "{VERSION} {} attempt={} token={} started={}",
            self.state.as_str(),
            self.attempt,
            self.token,
            millis_since_epoch(self.started),
        );
        let mut put = |key: &str, value: &str| {
            line.push(' ');
            line.push_str(key);
            line.push('=');
            percent::encode_word(&mut line, value);
        };
        put("owner", &self.owner);
        put("program", &self.process.program);
        if let Some(user) = &self.process.user {
            put("user", user);
        }
        put("host", &self.process.host);
        put("pid", &self.process.pid.to_string());
        if let Some(ended) = self.ended {
            put("ended", &millis_since_epoch(ended).to_string());
        }
        if let Some(error) = &self.error {
            put("error", error);
        }
        line
    }

    /// Reads a line of the store. Words of later versions are passed over.
    pub(super) fn from_line(slot: &str, line: &str) -> Result<Self> {
        parse(slot, line).ok_or_else(|| {
            let start: String = line.chars().take(64).collect();
            Error::new(ErrorKind::WrongType).because(format!(
                "the mark of the slot {slot:?} is none of this version: {start:?}. Nothing was changed"
            ))
        })
    }
}

fn parse(slot: &str, line: &str) -> Option<Mark> {
    let mut words = line.split(' ');
    if words.next()? != VERSION {
        return None;
    }
    let state = MarkState::of(words.next()?)?;
    let process = ClientInfo::new("", 0, "", UNIX_EPOCH);
    let mut mark = Mark {
        slot: slot.to_owned(),
        state,
        attempt: 0,
        token: FencingToken::new(0),
        owner: String::new(),
        process,
        started: UNIX_EPOCH,
        ended: None,
        error: None,
    };
    for word in words {
        let (key, value) = word.split_once('=')?;
        let value = percent::decode(value)?;
        match key {
            "attempt" => mark.attempt = value.parse().ok()?,
            "token" => mark.token = FencingToken::new(value.parse().ok()?),
            "started" => mark.started = since_epoch(value.parse().ok()?),
            "ended" => mark.ended = Some(since_epoch(value.parse().ok()?)),
            "owner" => mark.owner = value,
            "program" => mark.process.program = value,
            "user" => mark.process = mark.process.run_by(Some(value)),
            "host" => mark.process.host = value,
            "pid" => mark.process.pid = value.parse().ok()?,
            "error" => mark.error = Some(value),
            _ => {}
        }
    }
    mark.process.since = mark.started;
    (mark.attempt > 0).then_some(mark)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mark_is_read_as_it_was_written(owner in ".*", host in ".*", user in ".*", error in ".{0,40}", pid: u32, attempt in 1u32.., ended: bool) {
            let begun = Mark {
                slot: "slot".to_owned(),
                state: MarkState::Running,
                attempt,
                token: FencingToken::new(17),
                owner,
                process: ClientInfo::new(host, pid, "a program", since_epoch(5)).run_by(Some(user)),
                started: since_epoch(5),
                ended: None,
                error: None,
            };
            let mark = if ended { begun.ended(Duration::from_millis(3), Some(error)) } else { begun };
            let line = mark.to_line();
            prop_assert!(!line.contains(char::is_control));
            prop_assert_eq!(Mark::from_line("slot", &line).unwrap(), mark);
        }

        #[test]
        fn no_line_panics(line in ".*") {
            let _ = Mark::from_line("slot", &line);
            let _ = Mark::from_line("slot", &format!("{VERSION} done {line}"));
        }
    }

    fn mark(state: MarkState, attempt: u32) -> Mark {
        let line = format!("{VERSION} {} attempt={attempt} started=5", state.as_str());
        Mark::from_line("s", &line).unwrap()
    }

    /// A run that may have crashed is not over for those who only look: its process may live.
    #[test]
    fn a_slot_is_over_when_its_job_was_done_or_its_attempts_are_used_up() {
        use MarkState::{Done, Failed, Running};
        for (state, attempt, retry, is_final, is_exhausted) in [
            (Done, 1, Retry::InSlot(2), true, true),
            (Failed, 1, Retry::Never, true, true),
            (Failed, 2, Retry::InSlot(2), false, false),
            (Failed, 3, Retry::InSlot(2), true, true),
            (Failed, 4, Retry::InSlot(2), true, true),
            (Failed, u32::MAX, Retry::InSlot(u32::MAX), true, true),
            (Running, 1, Retry::InSlot(2), false, false),
            (Running, 3, Retry::InSlot(2), false, true),
            (Running, 1, Retry::Never, false, true),
        ] {
            let mark = mark(state, attempt);
            let found = (mark.is_final(retry), mark.is_exhausted(retry));
            assert_eq!(
                found,
                (is_final, is_exhausted),
                "{state:?} {attempt} {retry:?}"
            );
        }
    }

    #[test]
    fn an_end_is_a_time_after_the_start_and_a_short_reason() {
        let (begun, took) = (mark(MarkState::Running, 2), Duration::from_secs(9));
        let done = begun.ended(took, None);
        assert_eq!((done.state, done.error), (MarkState::Done, None));
        assert_eq!(done.ended, Some(since_epoch(9_005)));
        assert_eq!((done.attempt, done.started), (2, begun.started));
        let failed = begun.ended(took, Some("ü".repeat(LONGEST_ERROR + 1)));
        assert_eq!(failed.state, MarkState::Failed);
        assert_eq!(failed.error, Some("ü".repeat(LONGEST_ERROR)));
    }

    #[test]
    fn a_line_of_a_later_version_is_read_or_refused() {
        let good = "mark1 done attempt=2 token=7 started=5 owner=a:1 colour=red";
        let mark = Mark::from_line("s", good).unwrap();
        assert_eq!((mark.attempt, mark.process.user), (2, None)); // an earlier version wrote no user
        for bad in [
            "",
            "mark2 done attempt=1",
            "mark1 lost attempt=1",
            "mark1 done",
            "mark1 done attempt=%",
        ] {
            let error = Mark::from_line("s", bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WrongType, "{bad}");
        }
    }
}
