//! Pictures in a file: `top --record` writes each as the line that `--json` prints, and `--replay` reads them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::covers::Shown;
use crate::exit::{Failure, Outcome, say, wait_until_said};
use crate::inspect::with_store;
use crate::top::acquire_times::AcquireTimes;
use crate::top::leaders::{TaskRow, distinct};
use crate::top::picture::{HolderCell, LockRow, Picture, ProcessRow, Scanned, WaiterCell};

/// Writes pictures to a file.
#[derive(Debug)]
pub(super) struct Recorder {
    file: File,
    shown: String,
}

impl Recorder {
    /// Adds to the file, or makes it.
    pub(super) fn open(path: &Path) -> Outcome<Self> {
        let shown = path.display().to_string();
        let file = File::options().append(true).create(true).open(path);
        let file = file.and_then(|mut file| {
            // Otherwise the next picture would continue a line that was cut, and be lost with it.
            if ends_within_a_line(path) {
                file.write_all(b"\n")?;
            }
            Ok(file)
        });
        match file {
            Ok(file) => Ok(Self { file, shown }),
            Err(error) => Err(Failure::usage(format!("cannot write {shown}: {error}"))),
        }
    }

    pub(super) fn add(&mut self, store: &Shown, picture: &Picture) -> Outcome<()> {
        let line = with_store(store, picture.as_json()) + "\n";
        // One write: if this process ended between two, the line would have no end.
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|error| Failure::internal(format!("cannot write {}: {error}", self.shown)))
    }
}

/// Whether the last line of the file has no end: the disk was full, or the process ended while it wrote. A pipe has no
/// last line, and a file that may only be written to does not tell.
fn ends_within_a_line(path: &Path) -> bool {
    let last_byte = || -> std::io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        Ok(last[0])
    };
    let is_file = std::fs::metadata(path).is_ok_and(|file| file.is_file());
    is_file && last_byte().is_ok_and(|last| last != b'\n')
}

/// A picture of a file, and the store that it is of.
pub(super) type Recorded = (Shown, Picture);

/// Reads a file of pictures. If its first line is none, that is an error: the file is another one. A later line that is
/// none was cut while it was written, and is left out.
pub(super) fn read(path: &Path) -> Outcome<Vec<Recorded>> {
    let shown = path.display();
    let cannot = |error| Failure::usage(format!("cannot read {shown}: {error}"));
    let file = BufReader::new(File::open(path).map_err(cannot)?);
    let (mut pictures, mut cut) = (Vec::new(), Vec::new());
    for (number, line) in (1_u64..).zip(file.split(b'\n')) {
        // Not as text: a line may be cut within a character.
        let line = line.map_err(cannot)?;
        let picture = serde_json::from_slice(&line)
            .ok()
            .and_then(|line| picture_of(&line));
        match picture {
            Some(picture) => pictures.push(picture),
            None if pictures.is_empty() => {
                return Err(Failure::usage(format!(
                    "{shown}, line {number}: this is no picture of tidelock top"
                )));
            }
            None => cut.push(number),
        }
    }
    if let Some(first) = cut.first() {
        say(format!(
            "{shown}: left out {} of its lines, which are cut; the first of them is line {first}",
            cut.len()
        ));
        // Otherwise the line might come when a screen shows the pictures, and stand in the midst of them.
        wait_until_said();
    }
    Ok(pictures)
}

fn picture_of(line: &Value) -> Option<Recorded> {
    let store = Shown::of_json(&line["store"])?;
    let locks = line["locks"].as_array()?.iter().map(lock_of);
    let processes = line["processes"].as_array()?.iter().map(process_of);
    // Earlier versions recorded neither elections nor jobs.
    let tasks = ["elections", "jobs"]
        .into_iter()
        .filter_map(|key| line[key].as_array());
    let tasks = tasks.flatten().map(TaskRow::of_json);
    let picture = Picture {
        at: time(&line["at"])?,
        latency: Duration::try_from_secs_f64(line["latency_ms"].as_f64()? / 1000.0).ok()?,
        acquire_times: AcquireTimes::of_json(&line["wait"]),
        share: line["viewer_share_of_a_core"].as_f64(),
        locks: locks.collect::<Option<_>>()?,
        processes: processes.collect::<Option<_>>()?,
        tasks: distinct(tasks.collect::<Option<_>>()?),
        scan: scanned(&line["scan"]),
    };
    Some((store, picture))
}

fn scanned(scan: &Value) -> Option<Scanned> {
    Some(Scanned {
        locks: usize::try_from(scan["locks"].as_u64()?).ok()?,
        is_whole: scan["whole"].as_bool()?,
        failed: text(&scan["failed"]),
    })
}

fn lock_of(lock: &Value) -> Option<LockRow> {
    let holders = lock["holders"].as_array()?.iter().map(|holder| {
        Some(HolderCell {
            who: text(&holder["who"])?,
            owner: text(&holder["owner"]),
            is_gone: holder["gone"].as_bool()?,
        })
    });
    let waiting = lock["waiting"].as_array()?.iter().map(|one| {
        Some(WaiterCell {
            who: text(&one["who"])?,
            client: text(&one["client"])?,
            waiters: one["waiters"].as_u64()?,
            longest: millis(&one["longest_ms"])?,
        })
    });
    Some(LockRow {
        name: text(&lock["name"])?,
        kind: text(&lock["kind"])?,
        holders: holders.collect::<Option<_>>()?,
        held_for: millis(&lock["held_for_ms"]),
        expires_in: millis(&lock["expires_in_ms"]),
        token: lock["token"].as_u64(),
        waiters: lock["waiters"].as_u64()?,
        is_lower_bound: lock["waiters_is_lower_bound"].as_bool()?,
        longest: millis(&lock["longest_ms"]),
        waiting: waiting.collect::<Option<_>>()?,
        seen_ago: millis(&lock["seen_ago_ms"]),
    })
}

fn process_of(process: &Value) -> Option<ProcessRow> {
    let number = |key: &str| process[key].as_u64();
    Some(ProcessRow {
        who: text(&process["who"])?,
        client: text(&process["client"])?,
        since: time(&process["since"])?,
        age: millis(&process["age_ms"])?,
        is_gone: process["gone"].as_bool()?,
        latency: Duration::try_from_secs_f64(process["latency_ms"].as_f64()? / 1000.0).ok()?,
        held: number("held")?,
        waiting: number("waiting")?,
        acquired: number("acquired")?,
        timed_out: number("timed_out")?,
        failed: number("failed")?,
        lost: number("lost")?,
    })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn millis(value: &Value) -> Option<Duration> {
    value.as_u64().map(Duration::from_millis)
}

fn time(value: &Value) -> Option<SystemTime> {
    humantime::parse_rfc3339(value.as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use crate::top::sample::{evil, picture};
    use clap::Parser;

    #[test]
    fn a_picture_comes_back_as_it_was_recorded() {
        let mut scanned = picture();
        scanned.scan = Some(Scanned {
            locks: 12,
            is_whole: false,
            failed: Some("no answer".to_owned()),
        });
        scanned.locks[0].seen_ago = Some(Duration::from_secs(7));
        for picture in [picture(), evil(), scanned] {
            let mut line = picture.as_json();
            line["store"] = serde_json::json!({ "url": "redis://cache-1", "covers": "all" });
            let line = serde_json::from_str(&line.to_string()).unwrap();
            let (store, back) = picture_of(&line).unwrap();
            assert_eq!(store.to_string(), "redis://cache-1 (all)");
            // As `top --replay --json` prints it, it is a line of a recording again.
            let printed: Value = serde_json::from_str(&with_store(&store, back.as_json())).unwrap();
            assert_eq!(printed, line);
            assert_eq!(back.as_json(), picture.as_json());
        }
    }

    #[test]
    fn a_recording_of_an_earlier_version_has_neither_elections_nor_waits() {
        let mut line = picture().as_json();
        line["store"] = serde_json::json!({ "url": "redis://cache-1", "covers": "all" });
        for key in ["elections", "jobs", "wait"] {
            line.as_object_mut().unwrap().remove(key).unwrap();
        }
        let (_, back) = picture_of(&line).unwrap();
        assert_eq!((back.tasks.len(), back.locks.len()), (0, 3));
        assert_eq!(back.acquire_times, AcquireTimes::default());
    }

    #[test]
    fn a_recording_that_was_cut_goes_on_and_is_shown_without_the_line_that_was_cut() {
        let cli = Cli::try_parse_from(["tidelock", "--store=redis://cache-1", "top"]).unwrap();
        let store = Shown::of(&cli.store).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let record = |seen: &Picture| {
            let mut recorder = Recorder::open(file.path()).unwrap();
            recorder.add(&store, seen).unwrap();
        };
        record(&picture());
        record(&evil());
        let whole = std::fs::read(file.path()).unwrap();
        // Only the end of the line is missing, or a part of the picture too.
        for (missing, kept) in [(0, 3), (1, 3), (40, 2)] {
            let mut cut = whole[..whole.len() - missing].to_vec();
            if missing > 1 {
                cut.push(0xe2); // the first byte of a character
            }
            std::fs::write(file.path(), cut).unwrap();
            record(&picture());
            let pictures = read(file.path()).unwrap();
            assert_eq!(pictures.len(), kept, "{missing}");
            let (shown, last) = pictures.last().unwrap();
            assert_eq!(last.as_json(), picture().as_json(), "{missing}");
            assert!(shown.to_string().starts_with("redis://cache-1"), "{shown}");
        }
    }

    #[test]
    fn another_file_is_no_recording() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["{}\n", "hello\n", "{\"locks\": 7}\n"] {
            std::fs::write(file.path(), text).unwrap();
            let failed = read(file.path()).unwrap_err();
            assert!(failed.message.contains("line 1"), "{}", failed.message);
        }
        std::fs::write(file.path(), "").unwrap();
        assert!(read(file.path()).unwrap().is_empty());
    }
}
