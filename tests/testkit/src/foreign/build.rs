//! Builds the peers with the build tools of their languages.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::Foreign;
use crate::java::{modified, newest};
use crate::workspace;

/// The command that starts a peer. Builds the peer first if it is missing or older than its sources.
pub(super) fn command(client: Foreign) -> Result<Command> {
    let project = match client {
        Foreign::RedisPy => Project::Python,
        Foreign::Redsync => Project::Go,
        Foreign::NodeRedlock => Project::Node,
        Foreign::Rslock => Project::Rust,
    };
    let out = built(project)?;
    let mut command = Command::new(match client {
        Foreign::RedisPy => out.join("venv/bin/python"),
        Foreign::NodeRedlock => "node".into(),
        Foreign::Redsync => out.join("peer"),
        Foreign::Rslock => out.join("debug/tidelock-interop-rslock"),
    });
    match client {
        Foreign::RedisPy => drop(command.arg("-u").arg(project.sources().join("peer.py"))),
        // Node looks for the dependencies next to the script.
        Foreign::NodeRedlock => drop(command.arg(out.join("peer.js"))),
        Foreign::Redsync | Foreign::Rslock => {}
    }
    Ok(command)
}

/// A folder of `interop/`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Project {
    Python,
    Go,
    /// The side of the benchmark on etcd. Its client needs gRPC, which the others should not have to build.
    GoEtcd,
    Node,
    Rust,
    /// One Rust library of the benchmark. Each has its own binary and feature, so that a dependency that does not
    /// compile breaks only its own library.
    RustBench(&'static str),
}

/// The directory of the build. Builds the project first if it is missing or older than its sources.
pub(super) fn built(project: Project) -> Result<PathBuf> {
    let out = project.out();
    fs::create_dir_all(&out)?;
    // We take a file lock because tests run in parallel processes; two builds in one directory would corrupt each
    // other's files. The file lock ends with the process, so a killed test does not block the next build.
    let turn = File::create(out.join("lock"))?;
    turn.lock().context("waiting for another build")?;
    let stamp = out.join(project.stamp());
    let mut sources = newest(&project.sources())?;
    if let Some(shared) = project.shared() {
        sources = sources.max(newest(&workspace().join(shared))?);
    }
    if !modified(&stamp).is_ok_and(|built| built > sources) {
        project.build()?;
        fs::write(&stamp, "")?;
    }
    Ok(out)
}

impl Project {
    fn name(self) -> &'static str {
        match self {
            Self::Python => "redis-py",
            Self::Go => "redsync",
            Self::GoEtcd => "etcd-go",
            Self::Node => "node-redlock",
            Self::Rust => "rslock",
            Self::RustBench(_) => "rust-bench",
        }
    }

    fn sources(self) -> PathBuf {
        workspace().join("interop").join(self.name())
    }

    /// Sources outside its own folder.
    fn shared(self) -> Option<&'static str> {
        match self {
            Self::RustBench(_) => Some("bench/load"),
            Self::Go | Self::GoEtcd => Some("interop/go-load"),
            Self::Python | Self::Node | Self::Rust => None,
        }
    }

    fn out(self) -> PathBuf {
        workspace().join("target/foreign").join(self.name())
    }

    fn stamp(self) -> String {
        match self {
            Self::RustBench(one) => format!("built-{one}"),
            _ => "built".to_owned(),
        }
    }

    fn build(self) -> Result<()> {
        let out = self.out();
        match self {
            Self::Python => {
                let venv = out.join("venv");
                self.run("python3", &["-m", "venv", text(&venv)?])?;
                let pip = venv.join("bin/pip");
                self.run(text(&pip)?, &["install", "-q", "-r", "requirements.txt"])
            }
            Self::Go => {
                let (peer, bench) = (out.join("peer"), out.join("bench"));
                self.run("go", &["build", "-o", text(&peer)?, "."])?;
                self.run("go", &["build", "-o", text(&bench)?, "./bench"])
            }
            Self::GoEtcd => {
                let bench = out.join("bench");
                self.run("go", &["build", "-o", text(&bench)?, "."])
            }
            Self::Node => {
                for file in ["package.json", "package-lock.json", "peer.js", "bench.js"] {
                    fs::copy(self.sources().join(file), out.join(file))?;
                }
                let words = ["ci", "--silent", "--no-audit", "--no-fund", "--prefix"];
                self.run("npm", &[&words[..], &[text(&out)?]].concat())
            }
            Self::Rust => {
                let words = ["build", "--quiet", "--locked", "--target-dir"];
                self.run("cargo", &[&words[..], &[text(&out)?]].concat())
            }
            Self::RustBench(one) => {
                let words = ["build", "--release", "--quiet", "--locked", "--target-dir"];
                let which = [text(&out)?, "--bin", one, "--features", one];
                self.run("cargo", &[&words[..], &which].concat())
            }
        }
    }

    fn run(self, program: &str, args: &[&str]) -> Result<()> {
        let output = Command::new(program)
            .args(args)
            .current_dir(self.sources())
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
