//! What real Redisson leaves in Redis and says to it, step by step, in a file that reviews can read and tests can
//! compare with. Only what other clients can see is written down, never the text of a script.

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
pub use remains::{Key, Remains};

use crate::java::{JavaPeer, PeerOptions, RedissonVersion};
use crate::servers::{Flavour, RedisServer};

/// Everything one version of Redisson was seen to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The version on Maven Central.
    pub redisson: String,
    /// In the order in which they were taken.
    pub steps: Vec<Step>,
}

/// One call of Redisson's API and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What was done, unique in the recording.
    pub step: String,
    /// What Java returned; `{"thrown": class}` if it threw.
    pub answer: Value,
    /// What was seen on the server.
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
    /// Anything else, word by word.
    Command(Vec<String>),
}

/// A published message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Where.
    pub channel: String,
    /// What.
    pub payload: String,
}

impl Recording {
    /// The step of that title.
    ///
    /// # Errors
    /// When there is none.
    pub fn step(&self, title: &str) -> Result<&Step> {
        let found = self.steps.iter().find(|step| step.step == title);
        found.with_context(|| format!("no step {title:?} in the recording of {}", self.redisson))
    }

    /// The text of the file: pretty, in a stable order.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn to_text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Where the recording of a version is kept.
pub fn path(version: RedissonVersion) -> PathBuf {
    let file = format!("interop/redisson/golden/{}.json", version.number());
    crate::workspace().join(file)
}

/// Reads the recording that is kept.
///
/// # Errors
/// When it is missing or broken.
pub fn kept(version: RedissonVersion) -> Result<Recording> {
    let path = path(version);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// Runs real Redisson against a server of its own and writes down what it does.
///
/// # Errors
/// No Java, no server, or a step that Redisson did not take.
pub fn record(version: RedissonVersion) -> Result<Recording> {
    // One server for all recordings: what MONITOR prints and what a key looks like must not depend on the machine.
    let server = RedisServer::builder().flavour(Flavour::Redis7).start()?;
    let peer = JavaPeer::start(version, server.url())?;
    // The first telling loads classes, opens connections and fills the script cache; the second is steady.
    story::tell(&server, &peer, "warm ")?;
    let mut steps = story::tell(&server, &peer, "")?;
    drop(peer);
    let short = PeerOptions::new(version, server.url()).watchdog(Duration::from_secs(3));
    story::warm_watchdog(&server, &JavaPeer::start_with(&short)?)?;
    steps.extend(story::watchdog(&server, &JavaPeer::start_with(&short)?)?);
    let redisson = version.number().to_owned();
    Ok(Recording { redisson, steps })
}
