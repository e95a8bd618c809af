//! Programs of tests, as cargo builds them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::sh::show;

/// A program with tests.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The target that it was built from, as `cluster`.
    pub(crate) target: String,
    /// Its file name. Cargo puts a number into it that stays the same as long as flags and features do.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Its package, in whose folder it runs.
    pub(crate) folder: PathBuf,
}

impl Program {
    /// The program that a message of `cargo test --no-run --message-format=json` tells of.
    pub(crate) fn read(message: &Value) -> Option<Self> {
        if message["profile"]["test"] != true {
            return None;
        }
        let path = PathBuf::from(message["executable"].as_str()?);
        let manifest = message["manifest_path"].as_str().unwrap_or_default();
        let folder = Path::new(manifest).parent().unwrap_or(Path::new("."));
        let target = message["target"]["name"].as_str().unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Some(Self {
            target: target.to_owned(),
            name: name.into_owned(),
            folder: folder.to_path_buf(),
            path: path.clone(),
        })
    }

    /// Runs it as cargo does: in the folder of its package.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Runs a cargo that prints messages in JSON, and hands each to `read`. Returns whether it succeeded.
pub(crate) fn messages(mut cargo: Command, mut read: impl FnMut(&Value)) -> Result<bool> {
    let shown = show(&cargo);
    let mut child = cargo
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {shown}"))?;
    let output = child.stdout.take().context("no stdout")?;
    for line in BufReader::new(output).lines() {
        if let Ok(message) = serde_json::from_str::<Value>(&line?) {
            read(&message);
        }
    }
    Ok(child.wait()?.success())
}

/// Builds programs of tests with a `cargo test --no-run` that has the format of messages among its arguments.
pub(crate) fn build(cargo: Command) -> Result<Vec<Program>> {
    let shown = show(&cargo);
    let mut programs = Vec::new();
    let built = messages(cargo, |message| programs.extend(Program::read(message)))?;
    ensure!(built, "{shown}");
    Ok(programs)
}
