//! `cargo xtask dist --from-source`: the demo of README.md on a machine that has nothing but Rust and a C compiler.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use super::proofs::installed::ALONE;
use super::{build, debian, empty, scratch, script};
use crate::sh::{self, cargo, command};

/// A minimal Debian with a C compiler. This machine's Rust and its packages of other crates are mounted into it, as `rustup` and
/// cargo would have fetched them: it has no network.
pub(super) fn run() -> Result<()> {
    build::install_tools(true)?;
    let kept = debian::archive("debian-gcc", "gcc,libc6-dev")?;
    let root = scratch("from-source");
    empty(&root)?;
    let unpack =
        "tar -xf \"$KEPT\" -C \"$ROOT\"; mkdir -p \"$ROOT\"/rust \"$ROOT\"/root/.cargo/registry";
    script(unpack, &[("KEPT", &kept), ("ROOT", &root)])?;
    // What git knows of this folder, as it is now.
    let source = build::copy_source(&root.join("root"))?;
    let mut fetch = cargo(&["fetch", "--locked", "--quiet"]);
    fetch.current_dir(&source);
    sh::quiet(fetch)?;
    let begun = Instant::now();
    let told = demo(&root)?;
    println!("{}", told.trim_end());
    println!(
        "{:.0} s from an empty target folder to the end of the demo",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

fn demo(root: &Path) -> Result<String> {
    let rust = PathBuf::from(sh::quiet(command("rustc", &["--print", "sysroot"]))?.trim());
    let registry = build::cargo_home()?.join("registry");
    let run = format!(
        "{ALONE} --mount-proc=\"$ROOT/proc\" bash -euo pipefail -c '
            mount --bind \"$RUST\" \"$ROOT/rust\"
            mount --bind \"$REGISTRY\" \"$ROOT/root/.cargo/registry\"
            chroot \"$ROOT\" /usr/bin/env -i HOME=/root PATH=/rust/bin:/usr/bin:/bin sh -euc \"
                cd /root/source
                cargo run --quiet --release --offline -- demo --store sqlite:locks.db > demo.txt 2>&1 || {{ cat demo.txt >&2; exit 1; }}
                grep -q with.fencing demo.txt; grep -A3 stock demo.txt\"'"
    );
    let variables = [("ROOT", root), ("RUST", &*rust), ("REGISTRY", &*registry)];
    script(&run, &variables)
}
