//! Whether the code compiles for the platforms it is not tested on.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;

use crate::sh::{self, have, root};

const TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "x86_64-apple-darwin"];

/// Stands in for a C compiler and archiver of the other platform. A check never links, so the C code of `SQLite` and of
/// the TLS library need not be there, and no cross compiler of hundreds of megabytes either.
const STAND_IN: &str = "#!/bin/sh\nout=''\nwhile [ $# -gt 0 ]; do\n  case \"$1\" in -o) out=\"$2\" ;; -o*) out=\"${1#-o}\" ;; *.a) out=\"$1\" ;; esac\n  shift\ndone\n[ -z \"$out\" ] || : > \"$out\"\n";

/// Checks each platform whose standard library can be had, and returns those that cannot.
pub(crate) fn check() -> Result<Vec<&'static str>> {
    let stand_in = root().join("target/tools/no-cc");
    fs::create_dir_all(root().join("target/tools"))?;
    fs::write(&stand_in, STAND_IN)?;
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755))?;
    let mut left_out = Vec::new();
    for target in TARGETS {
        if !installed(target) {
            left_out.push(target);
            continue;
        }
        let mut check = sh::cargo(&[
            "check",
            "--quiet",
            "-p",
            "tidelock",
            "-p",
            "tidelock-cli",
            "--target",
            target,
        ]);
        let underscored = target.replace('-', "_");
        check
            .env(format!("CC_{underscored}"), &stand_in)
            .env(format!("AR_{underscored}"), &stand_in);
        // Else the build scripts look for Apple's kit.
        check.env("SDKROOT", "/").env("RUSTFLAGS", "-D warnings");
        sh::run(check)?;
        println!("compiles for {target}");
    }
    Ok(left_out)
}

fn installed(target: &str) -> bool {
    have("rustup") && sh::quiet(sh::command("rustup", &["target", "add", target])).is_ok()
}
