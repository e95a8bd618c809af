//! Tools that cargo installs, and one of Python.

use std::path::PathBuf;

use anyhow::Result;

use crate::sh::{self, have, root};

/// It notes the crates of a program inside it.
pub(crate) fn cargo_auditable() -> Result<PathBuf> {
    tool("cargo-auditable@0.7.7", "cargo-auditable")
}

pub(crate) fn cargo_cyclonedx() -> Result<PathBuf> {
    tool("cargo-cyclonedx@0.5.9", "cargo-cyclonedx")
}

/// The script that looks for what keeps people from using a page, for the tests in a browser.
pub(crate) fn axe() -> Result<()> {
    const VERSION: &str = "4.14.1";
    let home = root().join("target/tools/axe");
    if home.join("package/axe.min.js").is_file() {
        return Ok(());
    }
    std::fs::create_dir_all(&home)?;
    let package = format!("axe-core@{VERSION}");
    let mut pack = sh::command("npm", &["pack", "--silent", &package]);
    pack.current_dir(&home);
    sh::quiet(pack)?;
    let archive = format!("axe-core-{VERSION}.tgz");
    let mut unpack = sh::command("tar", &["-xzf", &archive]);
    unpack.current_dir(&home);
    sh::quiet(unpack).map(drop)
}

pub(crate) fn cargo_deny() -> Result<PathBuf> {
    tool("cargo-deny", "cargo-deny")
}

pub(crate) fn cargo_fuzz() -> Result<PathBuf> {
    tool("cargo-fuzz", "cargo-fuzz")
}

/// Counts the lines that tests reach. It needs the tools of the compiler that read the counts.
pub(crate) fn cargo_llvm_cov() -> Result<PathBuf> {
    component("llvm-tools", &[])?;
    tool("cargo-llvm-cov", "cargo-llvm-cov")
}

/// Interprets a program, and finds races and undefined behaviour. Only nightly has it.
pub(crate) fn miri() -> Result<()> {
    component("miri", &["--toolchain", "nightly"])?;
    component("rust-src", &["--toolchain", "nightly"])
}

/// Adds a part of the compiler, unless it is there.
fn component(name: &str, toolchain: &[&str]) -> Result<()> {
    let mut add = sh::command("rustup", &["component", "add", name]);
    add.args(toolchain);
    sh::quiet(add).map(drop)
}

/// Lists the mutants of a package. Its names of mutants are in a committed list, so its version is fixed.
pub(crate) fn cargo_mutants() -> Result<PathBuf> {
    tool("cargo-mutants@27.1.0", "cargo-mutants")
}

/// The folder of the programs that draw a flame graph from perf's output. Empty if they are on the search path.
pub(crate) fn inferno() -> Result<PathBuf> {
    let program = tool("inferno", "inferno-flamegraph")?;
    Ok(program.parent().unwrap_or(&program).to_path_buf())
}

/// It brings the schemas of Kubernetes with it; `kubeconform` and `kubectl` fetch them from elsewhere.
pub(crate) fn kubernetes_validate() -> Result<PathBuf> {
    let home = root().join("target/tools/kubernetes");
    let program = home.join("bin/kubernetes-validate");
    if !program.is_file() {
        let folder = home.to_string_lossy();
        sh::quiet(sh::command("python3", &["-m", "venv", &folder]))?;
        let pip = home.join("bin/pip");
        let install = ["install", "--quiet", "kubernetes-validate==1.37.0"];
        sh::quiet(sh::command(&pip.to_string_lossy(), &install))?;
    }
    Ok(program)
}

pub(crate) fn mdbook() -> Result<PathBuf> {
    tool("mdbook", "mdbook")
}

/// Builds the tool, `NAME` or `NAME@VERSION`, into the target directory, unless it is there or on the search path. The build
/// takes some minutes.
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
