//! Tools that cargo installs.

use std::path::PathBuf;

use anyhow::Result;

use crate::sh::{self, have, root};

/// Builds `cargo-deny` into the target directory unless it is there or on the search path. Takes some minutes once.
pub(crate) fn cargo_deny() -> Result<PathBuf> {
    if have("cargo-deny") {
        return Ok("cargo-deny".into());
    }
    let home = root().join("target/tools");
    let program = home.join("bin/cargo-deny");
    if !program.is_file() {
        println!("building cargo-deny; once, and some minutes");
        let mut install = sh::cargo(&["install", "--locked", "--quiet", "cargo-deny", "--root"]);
        install.arg(&home);
        sh::run(install)?;
    }
    Ok(program)
}
