//! A store's contents as text, and what must be known about them to put them into another store.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use testkit::workspace;

use crate::scenario::{Known, Left};

/// What the first lines of a file say.
const COMMIT: &str = "the library of commit";
const AT: &str = "seconds since 1970";
const TOKEN: &str = "token";
const TERM: &str = "term";
const WAITERS: &str = "waiters";

pub(crate) struct Recording {
    /// The version that left it.
    pub(crate) version: String,
    /// Seconds since 1970 at its end.
    at: u64,
    /// The last commit that changed the library before that.
    commit: String,
    pub(crate) known: Known,
    pub(crate) text: String,
}

impl Recording {
    /// Of this version, made now by this process.
    pub(crate) fn new(text: &str, left: Left) -> Self {
        let host = &left.host;
        Self {
            version: this_version(),
            at: now().as_secs(),
            commit: commit(),
            // The name of a machine says nothing about the version.
            text: text
                .replace(&format!("'{host}'"), "'somewhere'")
                .replace(&format!("\"{host}\""), "\"somewhere\"")
                .replace(&format!(" host={host} "), " host=somewhere ")
                .replace(&format!("\\n{host}\\n"), "\\nsomewhere\\n")
                .replace(&format!("\"{host}\\n"), "\"somewhere\\n")
                .replace(
                    &in_hex(&format!(" host={host} ")),
                    &in_hex(" host=somewhere "),
                ),
            known: left.known,
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
        // The first line that is no comment begins the text.
        let length = all
            .split_inclusive('\n')
            .take_while(|it| it.starts_with("# "));
        let (head, text) = all.split_at(length.map(str::len).sum());
        let find = |key: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            let found = lines.find(|(name, _)| name.strip_prefix("# ") == Some(key));
            let (_, value) = found.with_context(|| format!("{}: no {key}", path.display()))?;
            Ok::<_, anyhow::Error>(value)
        };
        Ok(Self {
            at: find(AT)?.parse()?,
            commit: find(COMMIT)?.to_owned(),
            known: Known {
                token: find(TOKEN)?.parse()?,
                term: find(TERM)?.parse()?,
                waiters: find(WAITERS)?.split(' ').map(str::to_owned).collect(),
            },
            text: text.to_owned(),
            version,
        })
    }

    pub(crate) fn write(&self, store: &str) -> Result<()> {
        let folder = folder().join(&self.version);
        fs::create_dir_all(&folder)?;
        let mut text = String::new();
        for (key, value) in [
            (COMMIT, &self.commit),
            (AT, &self.at.to_string()),
            (TOKEN, &self.known.token.to_string()),
            (TERM, &self.known.term.to_string()),
            (WAITERS, &self.known.waiters.join(" ")),
        ] {
            writeln!(text, "# {key}: {value}")?;
        }
        fs::write(folder.join(format!("{store}.txt")), text + &self.text)?;
        Ok(())
    }

    /// How long ago it was made: all times in it are moved on by this.
    pub(crate) fn age(&self) -> Result<Duration> {
        let age = now().checked_sub(Duration::from_secs(self.at));
        age.context("it was made in the future")
    }
}

/// The last commit that changed the library. Without git, as in an archive of the sources, nobody knows it.
fn commit() -> String {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        let said = git.current_dir(workspace()).args(args).output();
        let said = said.ok().filter(|said| said.status.success());
        said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
    };
    let library = "crates/tidelock/src";
    let commit = git(&["log", "-1", "--format=%H", "--", library]);
    let changes = git(&["status", "--porcelain", "--", library]);
    match (commit, changes) {
        (Some(commit), Some(changes)) if changes.is_empty() => commit,
        (Some(commit), Some(_)) => format!("{commit}, and changes that are not committed"),
        _ => "unknown".to_owned(),
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
