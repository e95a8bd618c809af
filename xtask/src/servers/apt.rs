use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::sh::{self, have, root};

/// Every package that wants to start a service calls this script; exit code 101 forbids it.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Redis 8 of the next Debian release, with the libraries it was built against.
const REDIS8: [&str; 16] = [
    "redis-server",
    "redis-tools",
    "libc6",
    "libssl3t64",
    "libatomic1",
    "libjemalloc2",
    "liblzf1",
    "libsystemd0",
    "libgcc-s1",
    "libstdc++6",
    "libcap2",
    "zlib1g",
    "libzstd1",
    "liblua5.1-0",
    "lua-cjson",
    "lua-bitop",
];

/// Installs packages without letting any of them start a service.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    println!("installing {}", packages.join(" "));
    let _policy = NoServices::set()?;
    // A fresh machine may have no package lists at all.
    sh::quiet(as_root("apt-get", &["update", "-qq"])?)?;
    let options = [
        "-o",
        "DPkg::Lock::Timeout=300",
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
    ];
    sh::quiet(as_root("apt-get", &[&options, packages].concat())?).map(drop)
}

fn as_root(program: &str, args: &[&str]) -> Result<Command> {
    let root = sh::quiet(sh::command("id", &["-u"]))?.trim() == "0";
    let quietly = ["DEBIAN_FRONTEND=noninteractive", program];
    let all = [&quietly, args].concat();
    match (root, have("sudo")) {
        (true, _) => Ok(sh::command("env", &all)),
        (false, true) => Ok(sh::command("sudo", &[&["env"], all.as_slice()].concat())),
        (false, false) => bail!(
            "neither root nor sudo: run `apt-get install` by hand for {}",
            args.join(" ")
        ),
    }
}

/// While it lives, no package starts a service. Dropping it restores the previous policy.
struct NoServices {
    ours: bool,
}

impl NoServices {
    fn set() -> Result<Self> {
        // If the machine already has a policy, we keep it. We forbid services only where there is none.
        let ours = !Path::new(POLICY).exists();
        if ours {
            let script = "printf '#!/bin/sh\\nexit 101\\n' > \"$0\" && chmod 755 \"$0\"";
            sh::quiet(as_root("sh", &["-c", script, POLICY])?)?;
        }
        Ok(Self { ours })
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        let removed = !self.ours || as_root("rm", &["-f", POLICY]).and_then(sh::quiet).is_ok();
        if !removed {
            eprintln!("could not remove {POLICY}: while it is there, packages start no services");
        }
    }
}

/// Unpacks Redis 8 next to the system's packages, and writes a script that starts it with its own libraries.
pub(super) fn redis8() -> Result<()> {
    let home = root().join("target/servers/redis8");
    let server = home.join("server");
    if server.is_file() {
        return Ok(());
    }
    println!("unpacking Redis 8");
    unpack(&home)?;
    fs::write(&server, script(&home)?)?;
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755))
        .context("making the script executable")
}

/// Downloads the packages of the next Debian, and unpacks them into `root`. The system's own package lists stay.
fn unpack(home: &Path) -> Result<()> {
    let debs = home.join("debs");
    fs::create_dir_all(home.join("lists/partial"))?;
    fs::create_dir_all(&debs)?;
    let sources =
        "Types: deb\nURIs: http://deb.debian.org/debian\nSuites: trixie\nComponents: main\n";
    let system = fs::read_to_string("/etc/apt/sources.list.d/debian.sources").unwrap_or_default();
    fs::write(
        home.join("x.sources"),
        trixie(&system).unwrap_or_else(|| sources.to_owned()),
    )?;
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.current_dir(&debs).arg("-o").arg(format!(
            "Dir::Etc::sourcelist={}",
            home.join("x.sources").display()
        ));
        command.args([
            "-o",
            "Dir::Etc::sourceparts=-",
            "-o",
            "APT::Sandbox::User=root",
            "-o",
        ]);
        command
            .arg(format!(
                "Dir::State::lists={}",
                home.join("lists").display()
            ))
            .args(args);
        sh::quiet(command)
    };
    apt(&["update", "-qq"])?;
    apt(&[&["download", "-qq"], REDIS8.as_slice()].concat())?;
    for deb in fs::read_dir(&debs)?.flatten() {
        let mut unpack = sh::command("dpkg", &["-x"]);
        unpack.arg(deb.path()).arg(home.join("root"));
        sh::quiet(unpack)?;
    }
    fs::remove_dir_all(home.join("lists")).context("removing the lists")
}

/// The script that starts the server with its own loader and libraries.
fn script(home: &Path) -> Result<String> {
    let libraries = libraries(&home.join("root/usr/lib"))?;
    let loader = fs::read_dir(&libraries)?
        .flatten()
        .map(|entry| entry.path());
    let loader = loader.into_iter().find(|path| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"ld-linux"))
    });
    // Relative to the script, so that a copy of the target directory still works.
    let within = |path: &Path| {
        path.strip_prefix(home)
            .map(|path| path.display().to_string())
    };
    Ok(format!(
        "#!/bin/sh\nhere=$(dirname \"$0\")\nexec \"$here/{}\" --library-path \"$here/{}\" \"$here/root/usr/bin/redis-server\" \"$@\"\n",
        within(&loader.context("the packages hold no loader")?)?,
        within(&libraries)?,
    ))
}

/// The system's own first source with the suite changed, so that a mirror set there is used here too.
fn trixie(system: &str) -> Option<String> {
    let first = system
        .split("\n\n")
        .next()
        .filter(|text| text.contains("Suites:"))?;
    let line = |line: &str| {
        if line.starts_with("Suites:") {
            "Suites: trixie".to_owned()
        } else {
            line.to_owned()
        }
    };
    Some(first.lines().map(line).collect::<Vec<_>>().join("\n") + "\n")
}

fn libraries(lib: &Path) -> Result<std::path::PathBuf> {
    let mut dirs = fs::read_dir(lib)?.flatten().map(|entry| entry.path());
    dirs.find(|path| path.to_string_lossy().ends_with("-linux-gnu"))
        .context("the packages hold no libraries")
}
