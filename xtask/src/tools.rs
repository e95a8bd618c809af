//! Tools that cargo installs.

use std::path::PathBuf;

use anyhow::Result;

use crate::sh::{self, have, root};

pub(crate) fn cargo_deny() -> Result<PathBuf> {
    tool("cargo-deny")
}

pub(crate) fn cargo_fuzz() -> Result<PathBuf> {
    tool("cargo-fuzz")
}

/// Builds it into the target directory unless it is there or on the search path. Takes some minutes once.
fn tool(name: &str) -> Result<PathBuf> {
    if have(name) {
        return Ok(name.into());
    }
    let home = root().join("target/tools");
    let program = home.join("bin").join(name);
    if !program.is_file() {
        println!("building {name}; once, and some minutes");
        let mut install = sh::cargo(&["install", "--locked", "--quiet", name, "--root"]);
        install.arg(&home);
        sh::run(install)?;
    }
    Ok(program)
}
