use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// The times of one hold: attempt, acquisition, start of the release and end of the release. In nanoseconds of
/// `CLOCK_MONOTONIC`, the one clock that every process and language of a machine can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the task in its process, from 0.
    pub task: usize,
    /// Before the call of acquire.
    pub asked: u64,
    /// After acquire returned.
    pub entered: u64,
    /// Before the call of release.
    pub leaving: u64,
    /// After release returned.
    pub left: u64,
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            task,
            asked,
            entered,
            leaving,
            left,
        } = self;
        write!(f, "{task} {asked} {entered} {leaving} {left}")
    }
}

impl FromStr for Stamp {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.split(' ');
        let mut next = || {
            words
                .next()
                .with_context(|| format!("{line:?} is no stamp"))
        };
        Ok(Self {
            task: next()?.parse()?,
            asked: next()?.parse()?,
            entered: next()?.parse()?,
            leaving: next()?.parse()?,
            left: next()?.parse()?,
        })
    }
}

/// The current time on the clock of the stamps.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The clock starts near zero at boot, so neither part is negative.
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_is_written() {
        let stamp = Stamp {
            task: 7,
            asked: 10,
            entered: 20,
            leaving: 30,
            left: 40,
        };
        assert_eq!(stamp.to_string().parse::<Stamp>().unwrap(), stamp);
        assert!("7 10 20 30".parse::<Stamp>().is_err());
    }
}
