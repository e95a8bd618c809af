//! The stores whose contents outlive a client: how to read all of them as text, and how to put the text into another.

pub(crate) mod etcd;
pub(crate) mod redis;
pub(crate) mod sql;
pub(crate) mod sqlite;
pub(crate) mod zookeeper;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::scenario::Has;

/// How much longer those who wait in a recording count as alive: as they left, they would for seconds, and nobody is there who
/// says it again.
const WAITERS_LIVE: Duration = Duration::from_secs(3600);

pub(crate) trait Stand: Sized {
    const NAME: &'static str;
    const HAS: Has;
    fn start() -> Result<Self>;
    fn url(&self) -> String;
    fn dump(&self) -> Result<String>;
    /// `age`: how far the times of the text lie back.
    fn load(&self, text: &str, age: Duration) -> Result<()>;
}

fn output(command: &mut Command) -> Result<String> {
    let said = command.output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{command:?}: {errors}");
    Ok(String::from_utf8(said.stdout)?)
}
