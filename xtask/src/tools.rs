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

/// The folder of the programs that draw a flame graph from perf's output. Empty if they are on the search path.
pub(crate) fn inferno() -> Result<PathBuf> {
    let program = tool("inferno", "inferno-flamegraph")?;
    Ok(program.parent().unwrap_or(&program).to_path_buf())
}

/// Builds the tool into the target directory, unless it is there or on the search path. The build takes some minutes.
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
