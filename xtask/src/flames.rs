//! `cargo xtask flames`: flame graphs of a hand-off and of a pair of acquire and release, next to docs/performance.md.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::servers;
use crate::sh::{self, cargo, command, have, root};
use crate::tools;

/// Each graph is an example of the bench with its arguments, and the sampling rate.
const GRAPHS: [Graph; 2] = [
    Graph {
        file: "flame-pair",
        title: "Acquire and release, 64 tasks, names of their own, on Redis",
        example: "pairs",
        args: &["ours", "own", "400000"],
        hertz: "497",
    },
    Graph {
        file: "flame-turn",
        title: "A turn within the process, 64 tasks, one name, in memory",
        example: "passes",
        args: &["ours", "memory:", "3000000"],
        hertz: "797",
    },
];

struct Graph {
    file: &'static str,
    title: &'static str,
    example: &'static str,
    args: &'static [&'static str],
    hertz: &'static str,
}

pub(crate) fn run() -> Result<()> {
    if !have("perf") {
        servers::apt::install(&["linux-perf"])?;
    }
    let bin = tools::inferno()?;
    let mut build = cargo(&["build", "--profile", "bench", "-p", "bench", "--examples"]);
    // perf names the frames by it.
    build.env("CARGO_PROFILE_BENCH_DEBUG", "line-tables-only");
    sh::run(build)?;
    let scratch = root().join("target/flames");
    fs::create_dir_all(&scratch)?;
    for graph in GRAPHS {
        graph.draw(&bin, &scratch)?;
    }
    Ok(())
}

impl Graph {
    fn draw(&self, inferno: &Path, scratch: &Path) -> Result<()> {
        let file = |ending| scratch.join(self.file).with_extension(ending);
        let mut record = command(
            "perf",
            &["record", "-q", "-e", "cpu-clock", "-F", self.hertz],
        );
        // A release build has no frame pointers, so perf unwinds by the debug info.
        record.args(["--call-graph", "dwarf,8192", "-o"]);
        record.arg(file("data")).arg("--");
        record.arg(root().join("target/release/examples").join(self.example));
        record.args(self.args);
        sh::run(record)?;
        let mut script = command("perf", &["script", "--no-inline", "-i"]);
        script
            .arg(file("data"))
            .stdout(File::create(file("script"))?);
        sh::run(script)?;
        let tool = |name| command(&inferno.join(name).to_string_lossy(), &[]);
        let mut collapse = tool("inferno-collapse-perf");
        collapse
            .arg(file("script"))
            .stdout(File::create(file("folded"))?);
        sh::run(collapse)?;
        let stacks: String = fs::read_to_string(file("folded"))?
            .lines()
            .filter_map(ours)
            .collect();
        ensure!(!stacks.is_empty(), "nothing was seen of {}", self.example);
        fs::write(file("folded"), stacks)?;
        let svg = root()
            .join("docs/performance")
            .join(self.file)
            .with_extension("svg");
        let mut draw = tool("inferno-flamegraph");
        draw.args([
            "--title",
            self.title,
            "--minwidth",
            "0.3",
            "--deterministic",
        ]);
        draw.arg(file("folded"));
        draw.stdout(File::create(&svg).with_context(|| svg.display().to_string())?);
        sh::run(draw)
    }
}

/// Keeps the client's stacks, and cuts off the dozen frames at the bottom that all have in common: threads and the
/// runtime.
fn ours(stack: &str) -> Option<String> {
    let (stack, times) = stack.rsplit_once(' ')?;
    let frames: Vec<&str> = stack.split(';').collect();
    if frames
        .first()
        .is_some_and(|program| program.starts_with("redis"))
    {
        return None;
    }
    let foot = |frame: &&str| {
        frame.ends_with("::Context::run_task")
            || frame.ends_with("multi_thread::worker::Context::run")
    };
    let from = frames.iter().rposition(foot).unwrap_or(0);
    Some(format!("{} {times}\n", frames[from..].join(";")))
}
