use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
];

/// A wall clock for one program that a test can move while the program runs. The program's monotonic clock stays
/// correct.
///
/// Debian's redis-server hangs under it, because its allocator asks for the time before the library is ready. The
/// Valkey 9 and Redis 6.2 builds of the tests work.
#[derive(Debug, Clone)]
pub struct FakeClock {
    library: PathBuf,
    file: PathBuf,
}

impl FakeClock {
    /// A clock that first shows the true time. Its setting is a file in `dir`.
    ///
    /// # Errors
    /// Fails when libfaketime is not installed.
    pub fn new(dir: &Path) -> Result<Self> {
        let library = LIBRARIES
            .iter()
            .map(PathBuf::from)
            .find(|path| path.exists());
        let library = library.context("libfaketime is missing: run `cargo xtask servers`")?;
        let clock = Self {
            library,
            file: dir.join("faketime"),
        };
        clock.shift(0)?;
        Ok(clock)
    }

    /// Runs `command` under this clock.
    pub fn apply(&self, command: &mut Command) {
        command.envs(self.settings());
    }

    /// The environment variables that put a program under this clock.
    pub fn settings(&self) -> [(&'static str, OsString); 4] {
        [
            ("LD_PRELOAD", self.library.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    /// Sets the wall clock `seconds` ahead of the true time (behind it, if negative).
    ///
    /// # Errors
    /// Fails when the setting cannot be written.
    pub fn shift(&self, seconds: i64) -> Result<()> {
        self.shift_millis(seconds.saturating_mul(1000))
    }

    /// As [`shift`](Self::shift), in milliseconds. A clock that is slewed moves by few of them at a time.
    ///
    /// # Errors
    /// The same as `shift`.
    pub fn shift_millis(&self, millis: i64) -> Result<()> {
        let (sign, amount) = (if millis < 0 { '-' } else { '+' }, millis.unsigned_abs());
        // We rename the file into place: the program can read it at any moment and must never see half of it.
        let fresh = self.file.with_extension("new");
        fs::write(
            &fresh,
            format!("{sign}{}.{:03}\n", amount / 1000, amount % 1000),
        )?;
        fs::rename(&fresh, &self.file).context("moving the fake clock")
    }
}
