use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::dist::{Release, build, debian, empty, scratch, script};

const MEGABYTE: u64 = 1_000_000;

pub(crate) fn no_private_paths(release: &Release) -> Result<String> {
    for built in [&release.dynamic, &release.fixed] {
        let bytes = fs::read(&built.path)?;
        for path in build::private_paths()? {
            let name = path.to_string_lossy().into_owned();
            let found = bytes.windows(name.len()).any(|it| it == name.as_bytes());
            ensure!(!found, "{} names {name}", built.path.display());
        }
    }
    Ok(String::new())
}

pub(crate) fn sizes(release: &Release) -> Result<String> {
    let bounds = [
        (release.dynamic.path.clone(), 12),
        (release.fixed.path.clone(), 12),
        (release.artefact(".deb")?, 6),
        (release.artefact("-image.tar")?, 8),
    ];
    let mut told = Vec::new();
    for (path, bound) in bounds {
        let bytes = fs::metadata(&path)?.len();
        ensure!(
            bytes <= bound * MEGABYTE,
            "{} has {bytes} bytes, more than {bound} MB",
            path.display()
        );
        told.push(format!(
            "{}.{}",
            bytes / MEGABYTE,
            bytes % MEGABYTE / 100_000
        ));
    }
    Ok(format!("{} MB", told.join(", ")))
}

/// How often the program is started. The quickest start says most: the others also show what else the machine does.
const STARTS: usize = 30;

/// From the start of the process to the line with which `hold` says that it has the lock. A figure and no bound: a bound in
/// milliseconds would say more about what else the machine does.
pub(crate) fn first_lock(release: &Release) -> Result<String> {
    let folder = scratch("first-lock");
    empty(&folder)?;
    let store = format!("sqlite:{}", folder.join("locks.db").display());
    let mut times = Vec::new();
    for _ in 0..STARTS {
        times.push(start(&release.fixed.path, &store)?);
    }
    times.sort();
    let [quickest, .., _] = times[..] else {
        bail!("it was not started");
    };
    let middle = times.get(STARTS / 2).copied().unwrap_or(quickest);
    Ok(format!(
        "{quickest:.1?} at best, {middle:.1?} in the middle; goal: 10 ms"
    ))
}

fn start(program: &Path, store: &str) -> Result<Duration> {
    let mut hold = Command::new(program);
    hold.args(["--store", store, "hold", "job"]);
    hold.stdin(Stdio::piped()).stdout(Stdio::piped());
    let begun = Instant::now();
    let mut child = hold.spawn().context("starting hold")?;
    let mut line = String::new();
    let stdout = child.stdout.as_mut().context("no stdout")?;
    let read = BufReader::new(stdout).read_line(&mut line);
    let took = begun.elapsed();
    // It releases the lock at the end of its input.
    drop(child.stdin.take());
    let status = child.wait()?;
    read?;
    ensure!(status.success() && !line.is_empty(), "hold: {status}");
    Ok(took)
}

/// Namespaces of its own: no network, and an end for every process that is left.
pub(crate) const ALONE: &str = "unshare --net --mount --pid --fork --kill-child";

/// Installs the package into a fresh Debian, as its user would, and removes it.
pub(crate) fn deb(release: &Release) -> Result<String> {
    let kept = debian::archive("debian", "libgcc-s1")?;
    let root = scratch("debian");
    let install = format!(
        "rm -rf \"$ROOT\"; mkdir -p \"$ROOT\"; tar -xf \"$KEPT\" -C \"$ROOT\"; cp \"$DEB\" \"$ROOT/tidelock.deb\"
        {ALONE} --mount-proc=\"$ROOT/proc\" chroot \"$ROOT\" sh -euc '
            dpkg -i /tidelock.deb > /dev/null
            tidelock --version | sed -n 1p
            tidelock demo --store sqlite:/tmp/locks.db --stock 100 > /tmp/demo.txt 2>&1 || {{ cat /tmp/demo.txt >&2; exit 1; }}
            grep -q \"with fencing\" /tmp/demo.txt
            test -s /usr/share/bash-completion/completions/tidelock
            dpkg -r tidelock > /dev/null
            ! test -e /usr/bin/tidelock'"
    );
    let deb = release.artefact(".deb")?;
    let told = script(&install, &[("ROOT", &root), ("KEPT", &kept), ("DEB", &deb)])?;
    Ok(told.trim().to_owned())
}

/// Installs the package into an empty folder. Its program needs a C library, so only the files are compared.
pub(crate) fn rpm(release: &Release) -> Result<String> {
    let root = scratch("rpm-root");
    empty(&root)?;
    let install = "rpm --root \"$ROOT\" --initdb
        rpm -qp --requires \"$RPM\" 2>/dev/null | grep '^libc.so.6' > /dev/null
        rpm --root \"$ROOT\" -i --nodeps \"$RPM\" 2>/dev/null
        cmp \"$ROOT/usr/bin/tidelock\" \"$BIN\"
        test -s \"$ROOT/usr/share/man/man1/tidelock.1.gz\"
        rpm --root \"$ROOT\" -e tidelock
        if test -e \"$ROOT/usr/bin/tidelock\"; then echo 'the program is still there' >&2; exit 1; fi";
    let variables = [
        ("ROOT", &*root),
        ("RPM", &*release.artefact(".rpm")?),
        ("BIN", &*release.dynamic.path),
    ];
    script(install, &variables)?;
    if root.join("usr/share/doc/tidelock").exists() {
        bail!("the folder of its documents is left");
    }
    Ok(String::new())
}
