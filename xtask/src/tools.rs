//! Tools that cargo installs.

use std::path::PathBuf;

use anyhow::Result;

use crate::sh::{self, have, root};

pub(crate) fn cargo_deny() -> Result<PathBuf> {
    tool("cargo-deny", "cargo-deny")
}

pub(crate) fn cargo_fuzz() -> Result<PathBuf> {
    tool("cargo-fuzz", "cargo-fuzz")
}

/// The folder of the programs that make a flame graph of what perf has seen. Empty: they are on the search path.
pub(crate) fn inferno() -> Result<PathBuf> {
    let program = tool("inferno", "inferno-flamegraph")?;
    Ok(program.parent().unwrap_or(&program).to_path_buf())
}

/// Builds it into the target directory unless it is there or on the search path. Takes some minutes once.
fn tool(name: &str, program: &str) -> Result<PathBuf> {
    if have(program) {
        return Ok(program.into());
    }
    let home = root().join("target/tools");
    let program = home.join("bin").join(program);
    if !program.is_file() {
        println!("building {name}; once, and some minutes");
        let mut install = sh::cargo(&["install", "--locked", "--quiet", name, "--root"]);
        install.arg(&home);
        sh::run(install)?;
    }
    Ok(program)
}
