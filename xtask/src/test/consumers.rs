//! Programs of users: packages outside this workspace that depend on the library beside what such programs often use.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::Tally;
use crate::sh::{self, root};

/// Libraries that link the same native libraries or share our dependencies: with each, the library must resolve.
const BESIDE: [(&str, &str); 6] = [
    (
        "sqlx-0-8",
        r#"sqlx = { version = "0.8", features = ["postgres", "runtime-tokio"] }"#,
    ),
    (
        "sqlx-0-8-sqlite",
        r#"sqlx = { version = "0.8", features = ["sqlite", "runtime-tokio"] }"#,
    ),
    (
        "sqlx-0-9",
        r#"sqlx = { version = "0.9", features = ["postgres", "runtime-tokio"] }"#,
    ),
    (
        "diesel",
        r#"diesel = { version = "2", features = ["postgres"] }"#,
    ),
    (
        "diesel-sqlite",
        r#"diesel = { version = "2", features = ["sqlite"] }"#,
    ),
    (
        "redis",
        r#"redis = { version = "1", features = ["tokio-comp"] }"#,
    ),
];

/// The programs of docs/sql-fence, and the server that each of them needs.
const FENCES: [(&str, &str); 6] = [
    ("diesel", "postgres"),
    ("mysql_async", "mysql"),
    ("sqlx", "postgres"),
    ("sqlx-0.8", "postgres"),
    ("sqlx-mysql", "mysql"),
    ("tokio-postgres", "postgres"),
];

pub(super) fn consumers(_: &mut Tally) -> Result<()> {
    fences()?;
    for (name, dependency) in BESIDE {
        let folder = package(name, dependency, "fn main() {}\n")?;
        sh::quiet(cargo(&["generate-lockfile", "--quiet"], &folder))
            .with_context(|| format!("tidelock beside {dependency}"))?;
    }
    test_page()?;
    let readme = fs::read_to_string(root().join("README.md"))?;
    let program = first_program(&readme).context("README.md has no program")?;
    let folder = package(
        "readme",
        // As README.md says; with more features a program could compile here and not for its reader.
        r#"tokio = { version = "1", features = ["macros", "rt"] }"#,
        program,
    )?;
    // `check` would compile once more what the programs before it share with it.
    sh::run(cargo(&["build", "--quiet"], &folder)).context("the program of README.md")
}

/// Runs the programs of docs/sql-fence on a server. Each fails unless a late sale is refused.
fn fences() -> Result<()> {
    for (name, server) in FENCES {
        let folder = root().join("docs/sql-fence").join(name);
        // They have no lock file in git: a fresh copy resolves the current versions, as `cargo add` does.
        sh::run(cargo(&["build", "--quiet"], &folder))
            .with_context(|| format!("building {}", folder.display()))?;
        let program = format!("fence-{}", name.replace(['.', '_'], "-"));
        let program = root().join("target/consumers/target/debug").join(program);
        let program = program.to_string_lossy();
        let start = [
            "run",
            "--quiet",
            "-p",
            "testkit",
            "--example",
            "with_server",
        ];
        let run = [start.as_slice(), &["--", server, &program]].concat();
        sh::run(sh::cargo(&run)).with_context(|| format!("running {name} on {server}"))?;
    }
    Ok(())
}

/// Runs the tests of docs/testing-your-service.md in a package with the features that the page names.
fn test_page() -> Result<()> {
    let page = fs::read_to_string(root().join("docs/testing-your-service.md"))?;
    let (_, dependencies) = page
        .split_once("[dev-dependencies]\n")
        .context("the page names no dependencies")?;
    let tokio = dependencies
        .lines()
        .find(|line| line.starts_with("tokio = "))
        .context("the page does not name tokio")?;
    let tests: Vec<String> = programs(&page)
        .enumerate()
        .map(|(n, program)| format!("mod program_{n} {{\n{program}\n}}\n"))
        .collect();
    let folder = package("testing", tokio, &(tests.concat() + "fn main() {}\n"))?;
    let manifest = folder.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    fs::write(
        &manifest,
        text.replace("tidelock = { ", "tidelock = { features = [\"test-util\"], "),
    )?;
    sh::run(cargo(&["test", "--quiet"], &folder)).context("the tests of testing-your-service.md")
}

/// Writes a package that depends on the library with its default features, as `cargo add` does.
fn package(name: &str, dependency: &str, program: &str) -> Result<PathBuf> {
    let folder = root().join("target/consumers").join(name);
    fs::create_dir_all(folder.join("src"))?;
    let library = root().join("crates/tidelock");
    // The empty `[workspace]` keeps the package out of ours, whose lock file would hide a conflict.
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n\
         tidelock = {{ path = \"{}\" }}\n{dependency}\n\n[workspace]\n",
        library.display()
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::write(folder.join("src/main.rs"), program)?;
    Ok(folder)
}

fn cargo(args: &[&str], folder: &std::path::Path) -> std::process::Command {
    let mut cargo = sh::cargo(args);
    cargo
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", root().join("target/consumers/target"))
        // Nobody debugs these programs, and they compile drivers that nothing else here does.
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo
}

/// The Rust programs of a page.
fn programs(page: &str) -> impl Iterator<Item = &str> {
    let blocks = page.split("```rust\n").skip(1);
    blocks.filter_map(|block| block.split_once("\n```").map(|(program, _)| program))
}

/// The first Rust program of a page.
fn first_program(page: &str) -> Option<&str> {
    programs(page).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_program_of_a_page_is_found() {
        let page = "# T\n```console\n$ x\n```\n```rust\nfn main() {}\n```\n```rust\nother\n```\n";
        assert_eq!(first_program(page), Some("fn main() {}"));
        assert_eq!(first_program("no code"), None);
    }
}
