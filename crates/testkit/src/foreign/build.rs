//! Builds the peers by their languages' own means.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Foreign;
use crate::java::{modified, newest};
use crate::workspace;

/// What starts a peer, which is built now if it is missing or older than its sources.
pub(super) fn command(client: Foreign) -> Result<Command> {
    let peer = Peer::of(client);
    let out = peer.built()?;
    let mut command = Command::new(match client {
        Foreign::RedisPy => out.join("venv/bin/python"),
        Foreign::NodeRedlock => "node".into(),
        Foreign::Redsync => out.join("peer"),
        Foreign::Rslock => out.join("debug/tidelock-interop-rslock"),
    });
    match client {
        Foreign::RedisPy => drop(command.arg("-u").arg(peer.sources.join("peer.py"))),
        // Next to it node finds what it stands on.
        Foreign::NodeRedlock => drop(command.arg(out.join("peer.js"))),
        Foreign::Redsync | Foreign::Rslock => {}
    }
    Ok(command)
}

struct Peer {
    client: Foreign,
    sources: PathBuf,
    out: PathBuf,
}

impl Peer {
    fn of(client: Foreign) -> Self {
        let name = match client {
            Foreign::RedisPy => "redis-py",
            Foreign::Redsync => "redsync",
            Foreign::NodeRedlock => "node-redlock",
            Foreign::Rslock => "rslock",
        };
        Self {
            client,
            sources: workspace().join("interop").join(name),
            out: workspace().join("target/foreign").join(name),
        }
    }

    fn built(&self) -> Result<PathBuf> {
        fs::create_dir_all(&self.out)?;
        // Tests run in parallel processes; two builds in one directory would tear each other's files. The file lock ends
        // with the process, so a killed test leaves nothing behind.
        let turn = File::create(self.out.join("lock"))?;
        turn.lock().context("waiting for another build")?;
        let stamp = self.out.join("built");
        let sources = newest(&self.sources)?;
        if !modified(&stamp).is_ok_and(|built| built > sources) {
            self.build()?;
            fs::write(&stamp, "")?;
        }
        Ok(self.out.clone())
    }

    fn build(&self) -> Result<()> {
        match self.client {
            Foreign::RedisPy => {
                let venv = self.out.join("venv");
                self.run("python3", &["-m", "venv", text(&venv)?])?;
                let pip = venv.join("bin/pip");
                self.run(text(&pip)?, &["install", "-q", "-r", "requirements.txt"])
            }
            Foreign::Redsync => {
                let peer = self.out.join("peer");
                self.run("go", &["build", "-o", text(&peer)?, "."])
            }
            Foreign::NodeRedlock => {
                for file in ["package.json", "package-lock.json", "peer.js"] {
                    fs::copy(self.sources.join(file), self.out.join(file))?;
                }
                let prefix = text(&self.out)?;
                let words = ["ci", "--silent", "--no-audit", "--no-fund", "--prefix"];
                self.run("npm", &[&words[..], &[prefix]].concat())
            }
            Foreign::Rslock => {
                let words = ["build", "--quiet", "--locked", "--target-dir"];
                self.run("cargo", &[&words[..], &[text(&self.out)?]].concat())
            }
        }
    }

    fn run(&self, program: &str, args: &[&str]) -> Result<()> {
        let output = Command::new(program)
            .args(args)
            .current_dir(&self.sources)
            .output()
            .with_context(|| {
                format!("{program} is missing; `cargo xtask servers` says how to get it")
            })?;
        ensure!(
            output.status.success(),
            "{program} {args:?} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        Ok(())
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}
