use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Tally, api, consumers, manifests, packages, side_by_side, web_service};
use crate::programs::{self, Program};
use crate::sh::{self, cargo, root};
use crate::{mutants, platforms, schedules, servers, tools};

/// One thing a change has to pass.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) run: fn(&mut Tally) -> Result<()>,
}

/// All of them, in the order in which a change most likely fails.
pub(crate) const PARTS: [Part; 19] = [
    Part {
        name: "servers",
        about: "what the tests need is installed",
        run: |_| servers::run(servers::Args::default()),
    },
    Part {
        name: "format",
        about: "cargo fmt",
        run: |_| sh::run(cargo(&["fmt", "--all", "--check"])),
    },
    Part {
        name: "clippy",
        about: "no warnings anywhere",
        run: clippy,
    },
    Part {
        name: "command",
        about: "release build, which tests start",
        run: command,
    },
    Part {
        name: "features",
        about: "the library with no feature, and with each alone; the command without any",
        run: features,
    },
    Part {
        name: "tests",
        about: "library and command without servers, the unit tests of all packages, and the protocol in every state",
        run: tests_without_servers,
    },
    Part {
        name: "schedules",
        about: "the engine in some thousand orders of its tasks",
        run: |_| schedules::some(),
    },
    Part {
        name: "server-tests",
        about: "tests on real servers, on one host and on several, and the test kit",
        run: server_tests,
    },
    Part {
        name: "valkey",
        about: "the tests of the Redis store once more, on Valkey 9",
        run: valkey,
    },
    Part {
        name: "simulation",
        about: "ten thousand stories of locks under faults, on a clock that is moved",
        run: simulation,
    },
    Part {
        name: "doc-tests",
        about: "examples in the docs",
        run: |tally| tests(tally, &["--workspace", "--doc"]),
    },
    Part {
        name: "examples",
        about: "example programs build, and those that need no server and end by themselves run",
        run: examples,
    },
    Part {
        name: "consumers",
        about: "packages outside the workspace resolve and compile",
        run: consumers::consumers,
    },
    Part {
        name: "manifests",
        about: "the manifests for Kubernetes have the form that it accepts",
        run: manifests::manifests,
    },
    Part {
        name: "packages",
        about: "the files that would be published",
        run: packages::packages,
    },
    Part {
        name: "api",
        about: "the public API, item by item, and that the changelog tells its changes",
        run: api::api,
    },
    Part {
        name: "docs",
        about: "docs without warnings",
        run: docs,
    },
    Part {
        name: "deny",
        about: "licences, sources and advisories of dependencies",
        run: deny,
    },
    Part {
        name: "platforms",
        about: "compiles for Windows and macOS",
        run: other_platforms,
    },
];

/// Runs only if it is named. On a fresh clone it takes longer than a part may: it installs cargo-mutants, and builds the tests of the
/// library once more.
pub(crate) const ON_DEMAND: Part = Part {
    name: "mutants",
    about: "tests notice what is changed in the lines that a change touches; only if named here",
    run: |_| mutants::touched(),
};

fn clippy(_: &mut Tally) -> Result<()> {
    sh::run(cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))
}

fn command(_: &mut Tally) -> Result<()> {
    build_command()
}

/// Builds the command as the tests want it.
pub(crate) fn build_command() -> Result<()> {
    sh::run(cargo(&[
        "build",
        "--release",
        "-p",
        "tidelock-cli",
        // The tests use every store.
        "--all-features",
        "--quiet",
    ]))
}

fn features(_: &mut Tally) -> Result<()> {
    each_feature_of("tidelock")?;
    // The command without any feature is what most people build: it lacks the stores that cost most.
    with_features("tidelock-cli", &[])
}

/// Each feature of the command alone. Most of them bring a driver of their own, which takes minutes.
pub(crate) fn features_of_the_command(_: &mut Tally) -> Result<()> {
    each_feature_of("tidelock-cli")
}

fn each_feature_of(package: &str) -> Result<()> {
    with_features(package, &[])?;
    let folder = root().join("crates").join(package);
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml"))?;
    let names = feature_names(&manifest);
    ensure!(!names.is_empty(), "{package} has no features");
    for name in names {
        with_features(package, &["--features", name])?;
    }
    Ok(())
}

fn with_features(package: &str, features: &[&str]) -> Result<()> {
    let check = ["clippy", "-p", package, "--quiet", "--no-default-features"];
    let strict = ["--", "-D", "warnings"];
    sh::run(cargo(&[check.as_slice(), features, &strict].concat()))
}

/// The features of a manifest, without `default`.
pub(crate) fn feature_names(manifest: &str) -> Vec<&str> {
    let lines = manifest
        .lines()
        .skip_while(|line| *line != "[features]")
        .skip(1);
    let table = lines.take_while(|line| !line.starts_with('['));
    let keys = table
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "));
    keys.map(|(name, _)| name.trim())
        .filter(|name| *name != "default")
        .collect()
}

fn tests_without_servers(tally: &mut Tally) -> Result<()> {
    let names = test_programs(&OWN_PACKAGES)?;
    let mut programs = built(&of_all_packages(&names, &["--lib", "--bins"]))?;
    let model = built(&["-p", "model_checking"]).map(|built| programs.extend(built));
    let default = side_by_side(tally, programs, &[], None);
    // The default build of the command has neither the screen nor the page, so their tests need another one. We build it after
    // the tests of the default one have run: its command replaces the one that they start.
    let with = ["-p", "tidelock-cli", "--features", "screen,web"];
    let viewers = built(&[with.as_slice(), &["--bins", "--test", "cli"]].concat());
    let viewers = viewers.and_then(|programs| {
        side_by_side(tally, programs, &["screen", "top", "unlock", "web"], None)
    });
    default.and(viewers).and(model)
}

/// Builds programs of tests with these arguments of `cargo test`.
fn built(args: &[&str]) -> Result<Vec<Program>> {
    let mut build = cargo(&["test", "--no-run", "--quiet"]);
    build
        .args(args)
        .arg("--message-format=json-render-diagnostics");
    programs::build(build)
}

/// Runs `cargo test` with these arguments, all of it even if some fails.
pub(crate) fn tests(tally: &mut Tally, args: &[&str]) -> Result<()> {
    let mut command = cargo(&["test", "--no-fail-fast"]);
    command.args(args);
    prepare(&mut command, None);
    let shown = sh::show(&command);
    let passed = sh::tee(command, |line| tally.read(line))?;
    ensure!(passed, "{shown}");
    Ok(())
}

/// The packages whose tests need no server.
const OWN_PACKAGES: [&str; 2] = ["tidelock", "tidelock-cli"];

/// The packages whose tests need servers.
pub(crate) const SERVER_PACKAGES: [&str; 7] = [
    "testkit",
    "real_servers",
    "fault_matrix",
    "soak",
    "load",
    "bench",
    "xtask",
];

/// These programs of tests, built with all packages. With fewer packages fewer features may be needed, and cargo would
/// build the library and its dependencies once more.
fn of_all_packages<'a>(programs: &'a [String], rest: &[&'a str]) -> Vec<&'a str> {
    let packages = OWN_PACKAGES.iter().chain(&SERVER_PACKAGES);
    let packages = packages.flat_map(|name| ["-p", name]);
    let programs = programs.iter().flat_map(|name| ["--test", name]);
    packages
        .chain(programs)
        .chain(rest.iter().copied())
        .collect()
}

fn server_tests(tally: &mut Tally) -> Result<()> {
    let programs = test_programs(&SERVER_PACKAGES)?;
    side_by_side(tally, built(&of_all_packages(&programs, &[]))?, &[], None)
}

/// Runs these programs, on a server of another flavour if there is one.
fn side_by_side(
    tally: &mut Tally,
    programs: Vec<Program>,
    rest: &[&str],
    flavour: Option<&str>,
) -> Result<()> {
    side_by_side::run(tally, programs, rest, |program| {
        prepare(program, flavour);
        program.env("TIDELOCK_REQUIRE", "1");
    })
}

/// What tests find in their environment.
fn prepare(command: &mut std::process::Command, flavour: Option<&str>) {
    command.env("TIDELOCK_BIN", root().join("target/release/tidelock"));
    if let Some(flavour) = flavour {
        command.env("TIDELOCK_FLAVOUR", flavour);
    }
}

/// The programs of tests of these packages.
fn test_programs(packages: &[&str]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for package in packages {
        for home in [".", "bench", "crates", "tests"] {
            let folder = format!("{home}/{package}/tests");
            if root().join(&folder).exists() {
                names.extend(names_in(&folder)?);
            }
        }
    }
    Ok(names)
}

/// Tests that another server of the Redis family cannot change: they run on other servers, or count what the client does.
const OF_NO_FAMILY: [&str; 10] = [
    "allocations",
    "command",
    "compat",
    "etcd",
    "fleet",
    "memcached",
    "mysql",
    "postgres",
    "sqlite",
    "zookeeper",
];

/// The tests of the Redis family that tell most in little time, without the suite of promises; `cargo xtask full` runs all.
fn valkey(tally: &mut Tally) -> Result<()> {
    let own = [
        "redis",
        "redis_faults",
        "replicas",
        "round_trips",
        "sentinel",
        "cluster",
    ]
    .map(str::to_owned);
    family(tally, "valkey9", &own, &["--skip", "promises::"])
}

/// The test binaries of `real_servers`.
pub(crate) fn binaries() -> Result<Vec<String>> {
    test_programs(&["real_servers"])
}

/// The programs of a folder: files, and folders with a `main.rs`.
fn names_in(folder: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join(folder))? {
        let path = entry?.path();
        let is_program = path.extension().is_some() || path.join("main.rs").exists();
        let name = path.file_stem().and_then(|name| name.to_str());
        names.extend(name.filter(|_| is_program).map(str::to_owned));
    }
    names.sort_unstable();
    Ok(names)
}

/// All tests of the Redis family on a server of another flavour.
pub(crate) fn whole_family(tally: &mut Tally, flavour: &str) -> Result<()> {
    let mut tests = binaries()?;
    tests.retain(|name| !OF_NO_FAMILY.contains(&name.as_str()));
    family(tally, flavour, &tests, &[])
}

/// The tests of the etcd store on an etcd of this flavour.
pub(crate) fn newer_etcd(tally: &mut Tally, flavour: &str) -> Result<()> {
    let programs = built(&of_all_packages(&["etcd".to_owned()], &[]))?;
    let bin = root().join("target/servers").join(flavour).join("bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path)))?;
    side_by_side::run(tally, programs, &[], |program| {
        prepare(program, None);
        program.env("TIDELOCK_REQUIRE", "1").env("PATH", &path);
    })
}

fn family(tally: &mut Tally, flavour: &str, programs: &[String], rest: &[&str]) -> Result<()> {
    let programs = built(&of_all_packages(programs, &[]))?;
    side_by_side(tally, programs, rest, Some(flavour))
}

fn simulation(tally: &mut Tally) -> Result<()> {
    // It does not wait for stores, so it is built to run fast.
    let fast = ["--profile", "bench", "-p", "simulation"];
    tests(tally, &[fast.as_slice(), &["--tests"]].concat())?;
    stories(10_000, &[])
}

/// Plays that many stories in the simulator.
pub(crate) fn stories(number: u32, flags: &[&str]) -> Result<()> {
    let run = ["run", "--quiet", "--profile", "bench", "-p", "simulation"];
    let number = number.to_string();
    let seeds = ["--", "--seeds", &number];
    sh::run(cargo(&[run.as_slice(), &seeds, flags].concat()))
}

/// They serve until somebody ends them.
const ENDLESS: [&str; 2] = ["leader", "metrics"];

/// Builds all examples, and runs those of the library that end by themselves. Without arguments they use the memory of their
/// process.
fn examples(_: &mut Tally) -> Result<()> {
    sh::run(cargo(&["build", "--examples", "--quiet"]))?;
    let names = names_in("crates/tidelock/examples")?;
    for endless in ENDLESS {
        ensure!(names.iter().any(|it| it == endless), "no example {endless}");
    }
    // Not by `cargo run`: it might wait for another cargo, and build again what that one has built otherwise.
    let this = std::env::current_exe()?;
    let built = this.with_file_name("examples");
    for name in names.iter().filter(|name| !ENDLESS.contains(&&***name)) {
        println!("-- {name}");
        let program = built.join(name);
        let example = sh::command(&program.to_string_lossy(), &[]);
        // The longest has its own limits, of a minute each.
        let succeeded = sh::tee_within(Duration::from_secs(300), example, |_| ())?;
        ensure!(succeeded, "the example {name} failed, or does not end");
    }
    println!("-- leader");
    web_service::check(&built.join("leader"))
}

fn docs(_: &mut Tally) -> Result<()> {
    let mut doc = cargo(&["doc", "--no-deps", "--workspace", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    sh::run(doc)
}

fn deny(tally: &mut Tally) -> Result<()> {
    let program = tools::cargo_deny()?;
    let check = |what: &[&str]| {
        let mut command = sh::command(
            &program.to_string_lossy(),
            &["check", "--hide-inclusion-graph"],
        );
        command.args(what);
        command
    };
    sh::run(check(&["bans", "licenses", "sources"]))?;
    let fetched = sh::quiet(sh::command(&program.to_string_lossy(), &["fetch", "db"]));
    if fetched.is_err() {
        println!("advisories were NOT checked: their database cannot be fetched from here");
        tally.not_checked("advisories");
        return Ok(());
    }
    sh::run(check(&["advisories"]))
}

fn other_platforms(tally: &mut Tally) -> Result<()> {
    for target in platforms::check()? {
        println!("{target} was NOT checked: rustup cannot add it here");
        tally.not_checked(target);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn features_are_read_from_the_manifest() {
        let manifest = "[package]\nname = \"x\"\n[features]\ndefault = [\"a\"]\n## Says a.\na = []\nb = [\"a\"]\n\n[lints]\nc = 1\n";
        assert_eq!(super::feature_names(manifest), ["a", "b"]);
    }
}
