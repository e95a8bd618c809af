//! The history that each process of a run writes, one event a line, and its reader.
//!
//! `NANOSECONDS ID WORD NAME key=value…`: the boot clock (all processes of a machine share it); the acquisition,
//! `process.task.number`; the event; the lock.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// An event of an acquisition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// The task requested the lock.
    Asked,
    /// The store granted it; the guard is valid until `until`.
    Granted { token: Option<u64>, until: Duration },
    /// The hold runs this slot of a job.
    Slot { slot: String },
    /// The store confirmed that the slot has been run.
    Done,
    /// The holder acted, after it had checked its guard.
    Step { until: Duration },
    /// The holder checked its guard, and the lock was over.
    Over,
    /// The holder received the loss report.
    Lost { reason: String },
    /// The holder has done its last step and is about to release.
    Left,
    /// The store confirmed the release.
    Released,
    /// The release failed.
    Unreleased { kind: String },
    /// The acquisition failed. `why`: the text of the error in [one word](one_word), or nothing.
    Failed { kind: String, why: String },
    /// The process did not run for that long.
    Stall { time: Duration },
}

impl What {
    /// An acquisition that failed without an error.
    pub(crate) fn failed(kind: &str) -> Self {
        Self::Failed {
            kind: kind.to_owned(),
            why: String::new(),
        }
    }
}

/// A text without blanks, because the words of a line are separated by them.
pub(crate) fn one_word(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join("_")
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) at: Duration,
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) what: What,
}

impl Line {
    pub(crate) fn write(&self) -> String {
        let mut text = format!("{} {} ", self.at.as_nanos(), self.id);
        let mut put = |word: &str, fields: &[(&str, String)]| {
            let _ = write!(text, "{word} {}", self.name);
            for (key, value) in fields {
                let _ = write!(text, " {key}={value}");
            }
        };
        let nanos = |time: &Duration| time.as_nanos().to_string();
        match &self.what {
            What::Asked => put("asked", &[]),
            What::Granted { token, until } => {
                let token = token.map_or_else(|| "none".to_owned(), |token| token.to_string());
                put("granted", &[("token", token), ("until", nanos(until))]);
            }
            What::Slot { slot } => put("slot", &[("slot", slot.clone())]),
            What::Done => put("done", &[]),
            What::Step { until } => put("step", &[("until", nanos(until))]),
            What::Over => put("over", &[]),
            What::Lost { reason } => put("lost", &[("reason", reason.clone())]),
            What::Left => put("left", &[]),
            What::Released => put("released", &[]),
            What::Unreleased { kind } => put("unreleased", &[("kind", kind.clone())]),
            What::Failed { kind, why } => {
                put("failed", &[("kind", kind.clone()), ("why", why.clone())]);
            }
            What::Stall { time } => put("stall", &[("time", nanos(time))]),
        }
        text
    }

    pub(crate) fn read(text: &str) -> Result<Self> {
        let mut words = text.split_whitespace();
        let mut next = || words.next().with_context(|| format!("too short: {text:?}"));
        let (at, id, word, name) = (next()?, next()?, next()?, next()?);
        let fields: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
        let get = |key: &str| {
            let found = fields.iter().find(|(name, _)| *name == key);
            let value = found.map(|(_, value)| *value);
            value.with_context(|| format!("no {key} in {text:?}"))
        };
        let nanos = |text: &str| anyhow::Ok(Duration::from_nanos(text.parse()?));
        let owned = |key: &str| get(key).map(str::to_owned);
        let what = match word {
            "asked" => What::Asked,
            "granted" => What::Granted {
                token: get("token")?.parse().ok(),
                until: nanos(get("until")?)?,
            },
            "slot" => What::Slot {
                slot: owned("slot")?,
            },
            "done" => What::Done,
            "step" => What::Step {
                until: nanos(get("until")?)?,
            },
            "over" => What::Over,
            "lost" => What::Lost {
                reason: owned("reason")?,
            },
            "left" => What::Left,
            "released" => What::Released,
            "unreleased" => What::Unreleased {
                kind: owned("kind")?,
            },
            "failed" => What::Failed {
                kind: owned("kind")?,
                why: owned("why")?,
            },
            "stall" => What::Stall {
                time: nanos(get("time")?)?,
            },
            _ => bail!("no such event: {text:?}"),
        };
        Ok(Self {
            at: nanos(at)?,
            id: id.to_owned(),
            name: name.to_owned(),
            what,
        })
    }
}

/// Writes the history of one process.
#[derive(Debug, Clone)]
pub(crate) struct Recorder(Arc<Mutex<File>>);

impl Recorder {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(path);
        let file = file.with_context(|| path.display().to_string())?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// One write per line, so that a killed process leaves only whole lines.
    pub(crate) fn note(&self, at: Duration, id: &str, name: &str, what: What) {
        let (id, name) = (id.to_owned(), name.to_owned());
        let mut text = Line { at, id, name, what }.write();
        text.push('\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // We ignore a write error because nobody could receive it. The checkers notice missing events.
        let _ = file.write_all(text.as_bytes());
    }
}

/// Reads a history while the process still writes it.
#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    begun: Vec<u8>,
    pub(crate) lines: Vec<Line>,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        Ok(Self {
            file,
            begun: Vec::new(),
            lines: Vec::new(),
        })
    }

    /// Reads the lines that have arrived since.
    pub(crate) fn refresh(&mut self) -> Result<()> {
        self.file.read_to_end(&mut self.begun)?;
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        // The file may end in half a line. We keep that half for the next call.
        let rest = self.begun.split_off(end + 1);
        let whole = String::from_utf8(std::mem::replace(&mut self.begun, rest))?;
        for line in whole.lines() {
            self.lines.push(Line::read(line)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_were_written() {
        let until = Duration::from_nanos(1_500_000_123);
        let events = [
            What::Asked,
            What::Granted {
                token: Some(7),
                until,
            },
            What::Granted { token: None, until },
            What::Step { until },
            What::Over,
            What::Lost {
                reason: "Taken".to_owned(),
            },
            What::Slot {
                slot: "2026-11-20T03:00:00Z".to_owned(),
            },
            What::Done,
            What::Left,
            What::Released,
            What::Unreleased {
                kind: "Lost".to_owned(),
            },
            What::failed("Stopped"),
            What::Failed {
                kind: "OutcomeUnknown".to_owned(),
                why: one_word("stock: no answer (limit=2s)"),
            },
            What::Stall { time: until },
        ];
        for what in events {
            let line = Line {
                at: Duration::from_nanos(12_345_678_901),
                id: "1.2.3".to_owned(),
                name: "stock".to_owned(),
                what,
            };
            assert_eq!(Line::read(&line.write()).unwrap(), line);
        }
    }

    #[test]
    fn half_a_line_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let recorder = Recorder::create(&path).unwrap();
        recorder.note(Duration::from_secs(1), "1.1.1", "stock", What::Asked);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"2000000000 1.1.1 rel").unwrap();
        let mut reader = Reader::open(&path).unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.lines.len(), 1);
        file.write_all(b"eased stock\n").unwrap();
        reader.refresh().unwrap();
        assert_eq!(reader.lines[1].what, What::Released);
    }
}
