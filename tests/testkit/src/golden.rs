//! Records the effects of real Redisson on Redis, step by step, in a file that reviewers can read and tests can compare
//! with. The file contains only the effects that other clients can see, never the text of a script.

mod ears;
mod mask;
mod observer;
mod remains;
mod story;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use mask::Mask;
pub use observer::{Observed, Observer};
pub use remains::{Content, Key, Remains};

use crate::java::{JavaPeer, PeerOptions, RedissonVersion};
use crate::servers::{Flavour, RedisServer};

/// The recorded behaviour of one version of Redisson.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The version on Maven Central.
    pub redisson: String,
    /// The steps, in the order in which they ran.
    pub steps: Vec<Step>,
}

/// One call of Redisson's API and its effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The title of the step, unique in the recording.
    pub step: String,
    /// The return value in Java; `{"thrown": class}` if it threw.
    pub answer: Value,
    /// The effects on the server.
    #[serde(flatten)]
    pub observed: Observed,
}

/// A command as `MONITOR` shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Call {
    /// `EVAL` or `EVALSHA`, without the script.
    Script {
        /// KEYS.
        keys: Vec<String>,
        /// ARGV.
        args: Vec<String>,
    },
    /// Any other command, with its arguments.
    Command(Vec<String>),
}

/// A published message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The channel.
    pub channel: String,
    /// The payload.
    pub payload: String,
}

impl Recording {
    /// The step with that title.
    ///
    /// # Errors
    /// Fails when there is no such step.
    pub fn step(&self, title: &str) -> Result<&Step> {
        let found = self.steps.iter().find(|step| step.step == title);
        found.with_context(|| format!("no step {title:?} in the recording of {}", self.redisson))
    }

    /// The text of the file: indented, in a stable order.
    ///
    /// # Errors
    /// Fails when the recording cannot be written as JSON.
    pub fn to_text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// The path of a version's recording.
pub fn path(version: RedissonVersion) -> PathBuf {
    let file = format!("interop/redisson/golden/{}.json", version.number());
    crate::workspace().join(file)
}

/// Reads the recording from the repository.
///
/// # Errors
/// Fails when it is missing or broken.
pub fn kept(version: RedissonVersion) -> Result<Recording> {
    let path = path(version);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Runs real Redisson against its own server and records its behaviour.
///
/// # Errors
/// Fails when there is no Java or no server, or when Redisson did not send the expected commands of a step.
pub fn record(version: RedissonVersion) -> Result<Recording> {
    // We always use the same server version: the output of MONITOR and the form of a key must not depend on the
    // machine.
    let server = RedisServer::builder().flavour(Flavour::Redis7).start()?;
    let peer = JavaPeer::start(version, server.url())?;
    // The first run loads classes, opens connections and fills the script cache; we record the second, which is steady.
    story::tell(&server, &peer, "warm ")?;
    let mut steps = story::tell(&server, &peer, "")?;
    drop(peer);
    let short = PeerOptions::new(version, server.url()).watchdog(Duration::from_secs(3));
    story::warm_watchdog(&server, &JavaPeer::start_with(&short)?)?;
    steps.extend(story::watchdog(&server, &JavaPeer::start_with(&short)?)?);
    let redisson = version.number().to_owned();
    Ok(Recording { redisson, steps })
}
