//! `cargo xtask features`: what each feature of the library and of the command adds, in crates, seconds and bytes.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::sh::{self, cargo, root};
use crate::test::feature_names;

/// A program that can use every store of its build.
const PROGRAM: &str = "#[tokio::main(flavor = \"current_thread\")]\nasync fn main() -> tidelock::Result<()> {\n    \
    let url = std::env::args().nth(1).unwrap_or_else(|| \"memory:\".to_owned());\n    \
    let client = tidelock::Client::connect(&url).await?;\n    client.lock(\"job\").acquire().await?.release().await\n}\n";

/// For tests and for authors of stores: no service is built with them.
const OF_TESTS: [&str; 4] = ["fuzzing", "test-util", "testing", "unstable-backend"];

/// The command with every feature.
const ALL: &str = "all features";
/// The name of the command in `--only`.
const COMMAND: &str = "tidelock-cli";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also builds a program with each feature from an empty folder, and measures it; on a machine that does nothing else
    #[arg(long)]
    build: bool,
    /// Only this feature, or `tidelock-cli` for the command; may be repeated
    #[arg(long, value_name = "FEATURE")]
    only: Vec<String>,
    /// Writes the table into this page, between its two lines `<!-- table -->`
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// What a program with this feature, and no other, consists of.
struct Row {
    feature: String,
    crates: usize,
    built: Option<(Duration, u64)>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let manifest = fs::read_to_string(root().join("crates/tidelock/Cargo.toml"))?;
    let mut rows = vec![row("", args.build)?];
    for name in feature_names(&manifest) {
        let wanted = args.only.is_empty() || args.only.iter().any(|it| it == name);
        if wanted && !OF_TESTS.contains(&name) {
            rows.push(row(name, args.build)?);
        }
    }
    let library = table(&rows, "feature");
    let command = table(&command_rows(args)?, "the command with");
    println!("{library}\n{command}");
    match &args.write {
        Some(page) => write(page, &[("table", &library), ("command", &command)]),
        None => Ok(()),
    }
}

fn row(feature: &str, build: bool) -> Result<Row> {
    let choice = ["--no-default-features", "--features", feature];
    Ok(Row {
        feature: feature.to_owned(),
        crates: crates("tidelock", &choice)?.len(),
        built: build.then(|| measure(feature)).transpose()?,
    })
}

/// What the command consists of: as most people build it, with each of its features, and as the packages have it.
fn command_rows(args: &Args) -> Result<Vec<Row>> {
    let manifest = fs::read_to_string(root().join("crates/tidelock-cli/Cargo.toml"))?;
    let mut rows = vec![command_row("", &[], args)?];
    for name in feature_names(&manifest) {
        rows.push(command_row(name, &["--features", name], args)?);
    }
    rows.push(command_row(ALL, &["--all-features"], args)?);
    Ok(rows)
}

fn command_row(feature: &str, choice: &[&str], args: &Args) -> Result<Row> {
    let wanted = args.only.is_empty() || args.only.iter().any(|it| it == COMMAND);
    Ok(Row {
        feature: feature.to_owned(),
        crates: crates("tidelock-cli", choice)?.len(),
        built: (args.build && wanted)
            .then(|| measure_command(choice))
            .transpose()?,
    })
}

/// Builds the command in release from an empty folder. Returns the time, and the size of the stripped program.
fn measure_command(choice: &[&str]) -> Result<(Duration, u64)> {
    let folder = root().join("target/features-command");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    sh::quiet(cargo(&["fetch", "--quiet"]))?; // the network is not measured
    let mut build = cargo(&["build", "--release", "--quiet", "-p", "tidelock-cli"]);
    build.args(choice).env("CARGO_TARGET_DIR", &folder);
    let start = Instant::now();
    sh::quiet(build)?;
    let time = start.elapsed();
    let program = folder.join("release/tidelock");
    sh::quiet(sh::command("strip", &[&program.to_string_lossy()]))?;
    Ok((time, fs::metadata(program)?.len()))
}

/// The crates that cargo compiles for a package with these features, without our own.
fn crates(package: &str, choice: &[&str]) -> Result<BTreeSet<String>> {
    let mut tree = cargo(&["tree", "-p", package, "-e", "no-dev", "--prefix", "none"]);
    tree.args(choice);
    let listed = sh::quiet(tree)?;
    // A line is `name vVERSION`, and more if the crate is a macro or was listed before.
    let named = listed.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    });
    let ours = |it: &String| it.starts_with("tidelock ") || it.starts_with("tidelock-cli ");
    Ok(named.filter(|it| !ours(it)).collect())
}

/// Builds the program in release, stripped, from an empty folder. Returns the time and the size of the program.
fn measure(feature: &str) -> Result<(Duration, u64)> {
    let folder = root().join("target/features");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(folder.join("src"))?;
    let library = root().join("crates/tidelock");
    let manifest = format!(
        "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         tidelock = {{ path = \"{}\", default-features = false, features = [{}] }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt\"] }}\n\n\
         [profile.release]\nstrip = true\n\n[workspace]\n",
        library.display(),
        if feature.is_empty() {
            String::new()
        } else {
            format!("{feature:?}")
        }
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::write(folder.join("src/main.rs"), PROGRAM)?;
    let in_folder = |args: &[&str]| {
        let mut command = cargo(args);
        command
            .current_dir(&folder)
            .env("CARGO_TARGET_DIR", folder.join("target"));
        sh::quiet(command)
    };
    in_folder(&["fetch", "--quiet"])?; // the network is not measured
    let start = Instant::now();
    in_folder(&["build", "--release", "--quiet"])?;
    let time = start.elapsed();
    Ok((
        time,
        fs::metadata(folder.join("target/release/program"))?.len(),
    ))
}

fn table(rows: &[Row], title: &str) -> String {
    let none = rows.first().map_or(0, |row| row.crates);
    let mut table = format!(
        "| {title} | crates | more than without | build | program |\n| --- | --- | --- | --- | --- |\n"
    );
    for row in rows {
        let name = match &*row.feature {
            "" => "none".to_owned(),
            ALL => ALL.to_owned(),
            feature => format!("`{feature}`"),
        };
        let (time, size) = match row.built {
            #[allow(
                clippy::cast_precision_loss,
                reason = "a program is smaller than 2^52 bytes"
            )]
            Some((time, bytes)) => (
                format!("{:.0} s", time.as_secs_f64()),
                format!("{:.1} MB", bytes as f64 / 1e6),
            ),
            None => ("not measured".to_owned(), "not measured".to_owned()),
        };
        let more = row.crates.saturating_sub(none);
        let _ = writeln!(
            table,
            "| {name} | {} | {more} | {time} | {size} |",
            row.crates
        );
    }
    table
}

/// Replaces what stands between the two lines of each mark.
fn write(page: &Path, tables: &[(&str, &str)]) -> Result<()> {
    let mut text = fs::read_to_string(page)?;
    for (mark, table) in tables {
        let mark = format!("<!-- {mark} -->\n");
        let parts: Vec<&str> = text.split(&mark).collect();
        let [before, _, after] = parts.as_slice() else {
            anyhow::bail!("{} must have two lines {mark}", page.display());
        };
        text = format!("{before}{mark}{table}{mark}{after}");
    }
    fs::write(page, text)?;
    Ok(())
}
