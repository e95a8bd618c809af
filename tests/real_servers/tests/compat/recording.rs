//! A store's contents as text, and what must be known about them to put them into another store.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use testkit::workspace;

use crate::scenario::Left;

pub(crate) struct Recording {
    /// The version that left it.
    pub(crate) version: String,
    /// Seconds since 1970 at its end.
    at: u64,
    /// The greatest token that was granted.
    pub(crate) token: u64,
    pub(crate) text: String,
}

impl Recording {
    /// Of this version, made now by this process.
    pub(crate) fn new(text: &str, left: &Left) -> Self {
        let host = &left.host;
        Self {
            version: this_version(),
            at: now().as_secs(),
            token: left.token,
            // The name of a machine says nothing about the version.
            text: text
                .replace(&format!("'{host}'"), "'somewhere'")
                .replace(&format!("\"{host}\""), "\"somewhere\"")
                .replace(&format!(" host={host} "), " host=somewhere ")
                .replace(
                    &in_hex(&format!(" host={host} ")),
                    &in_hex(" host=somewhere "),
                ),
        }
    }

    /// The one of the newest version that has any.
    pub(crate) fn kept(store: &str) -> Result<Self> {
        let mut versions = Vec::new();
        for entry in fs::read_dir(folder())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let numbers = name.split('.').map(str::parse::<u32>);
            // A README is no version.
            if let Ok(numbers) = numbers.collect::<Result<Vec<_>, _>>() {
                versions.push((numbers, name));
            }
        }
        versions.sort();
        let (_, version) = versions.pop().context("no version in compat/")?;
        let path = folder().join(&version).join(format!("{store}.txt"));
        let all = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let (head, text) = all.split_once('\n').context("one line only")?;
        let mut numbers = head.split_whitespace().filter_map(|it| it.parse().ok());
        let mut number = || numbers.next().context("two numbers in the first line");
        Ok(Self {
            version,
            at: number()?,
            token: number()?,
            text: text.to_owned(),
        })
    }

    pub(crate) fn write(&self, store: &str) -> Result<()> {
        let folder = folder().join(&self.version);
        fs::create_dir_all(&folder)?;
        let head = format!("# seconds since 1970: {} token: {}\n", self.at, self.token);
        fs::write(folder.join(format!("{store}.txt")), head + &self.text)?;
        Ok(())
    }

    /// How long ago it was made: all times in it are moved on by this.
    pub(crate) fn age(&self) -> Result<Duration> {
        let age = now().checked_sub(Duration::from_secs(self.at));
        age.context("it was made in the future")
    }
}

/// As a dump of MySQL has it.
fn in_hex(text: &str) -> String {
    text.bytes().fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02X}");
        hex
    })
}

/// Without the last number: a patch release changes nothing in a store.
fn this_version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    version
        .rsplit_once('.')
        .map_or(version, |(it, _)| it)
        .to_owned()
}

fn folder() -> PathBuf {
    workspace().join("compat")
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
