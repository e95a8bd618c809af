//! Checks that the code compiles for the platforms it is not tested on.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;

use crate::sh::{self, have, root};

const TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "x86_64-apple-darwin"];

/// Replaces the C compiler and archiver of the other platform with a script that creates empty files. A check never
/// links, so it needs neither the C code of `SQLite` and of the TLS library nor a cross compiler of hundreds of
/// megabytes.
const STAND_IN: &str = "#!/bin/sh\nout=''\nwhile [ $# -gt 0 ]; do\n  case \"$1\" in -o) out=\"$2\" ;; -o*) out=\"${1#-o}\" ;; *.a) out=\"$1\" ;; esac\n  shift\ndone\n[ -z \"$out\" ] || : > \"$out\"\n";

/// Checks each platform whose standard library can be installed, and returns those whose cannot.
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
            "--features",
            "etcd,mysql,postgres,screen,web,zookeeper",
            "--target",
            target,
        ]);
        let underscored = target.replace('-', "_");
        check
            .env(format!("CC_{underscored}"), &stand_in)
            .env(format!("AR_{underscored}"), &stand_in);
        // Without SDKROOT, the build scripts look for Apple's SDK.
        check.env("SDKROOT", "/").env("RUSTFLAGS", "-D warnings");
        sh::run(check)?;
        println!("compiles for {target}");
    }
    Ok(left_out)
}

fn installed(target: &str) -> bool {
    have("rustup") && sh::quiet(sh::command("rustup", &["target", "add", target])).is_ok()
}
