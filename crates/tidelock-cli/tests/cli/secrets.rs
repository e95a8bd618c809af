//! A command that `run` starts sees no secret, and a lock's name cannot affect it.

use crate::bench::{Bench, Run};

const SECRET: &str = "hunter2";

/// The variables that the manual page names.
const OURS: [&str; 4] = [
    "TIDELOCK_NAME",
    "TIDELOCK_OWNER",
    "TIDELOCK_TOKEN",
    "TIDELOCK_STORE",
];

/// Whatever a name contains, it is treated neither as a flag, nor as shell syntax, nor as a path.
#[test]
fn a_nasty_name_is_only_a_name() {
    let bench = Bench::new();
    for name in [
        "-x",
        "--name=other",
        "--",
        "$(touch nasty)",
        "`touch nasty`",
        "a;touch nasty",
        "a|touch nasty&",
        "../nasty",
        "a\ntouch nasty",
        "'\"; DROP TABLE locks; --",
        "*",
        "%s%n",
        "{}",
    ] {
        let mut command = bench.tidelock(&[
            "run",
            "--",
            name,
            "sh",
            "-c",
            "printf %s \"$TIDELOCK_NAME\"",
        ]);
        command
            .current_dir(bench.folder.path())
            .stdin(std::process::Stdio::null());
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name:?}: {errors}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), name);
        assert_eq!(bench.code(&["try", "--", name, "true"]), 0, "{name:?}");
    }
    assert!(!bench.path("nasty").exists());
    // The store is unchanged: the table has not been dropped.
    assert_eq!(bench.code(&["ls"]), 0);
}

/// The arguments of the command are passed on unchanged, even if they look like our flags.
#[test]
fn words_of_a_command_are_handed_on_as_they_are() {
    let bench = Bench::new();
    let words = [
        "--name=x",
        "-v",
        "--",
        "$(touch nasty)",
        "",
        "a b",
        "\n",
        "*",
    ];
    let mut args = vec!["run", "job", "--", "printf", "%s|"];
    args.extend(words);
    let mut command = bench.tidelock(&args);
    let output = command.current_dir(bench.folder.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, words.map(|word| format!("{word}|")).concat());
    assert!(!bench.path("nasty").exists());
}

/// Neither the command nor the processes between it and us have the password in their environment or on their command
/// line.
#[cfg(target_os = "linux")]
#[test]
fn no_process_below_knows_the_password() {
    let bench = Bench::new();
    let file = bench.path("password");
    std::fs::write(&file, SECRET).unwrap();
    let mut command = bench.tidelock(&[
        "run",
        "job",
        "--",
        "sh",
        "-c",
        "echo $$; echo $PPID; read line; exit 0",
    ]);
    command
        .env("TIDELOCK_PASSWORD", SECRET)
        .env("TIDELOCK_PASSWORD_FILE", &file)
        .env("TIDELOCK_USER", "me");
    let mut run = Run::start(command);
    for what in ["the command", "its supervisor"] {
        let pid: u32 = run.line().parse().unwrap();
        for file in ["environ", "cmdline"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(SECRET), "{file} of {what}: {text}");
        }
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let names = environment
            .split('\0')
            .filter_map(|pair| pair.split('=').next());
        let ours: Vec<&str> = names.filter(|name| name.starts_with("TIDELOCK_")).collect();
        for name in &ours {
            let given = ["TIDELOCK_USER", "TIDELOCK_PASSWORD_FILE"].contains(name);
            assert!(given || OURS.contains(name), "{what} has {name}");
        }
    }
    drop(run.child.stdin.take());
    assert_eq!(run.end().0, Some(0));
}

/// The command inherits no file descriptor beyond those of its caller: the same ones as without `tidelock`.
#[cfg(target_os = "linux")]
#[test]
fn the_command_has_the_descriptors_of_its_caller() {
    let bench = Bench::new();
    let script = "echo $$; read line; exit 0";
    let mut bare = bench.program("sh");
    bare.args(["-c", script]);
    let open = |mut run: Run| {
        let pid: u32 = run.line().parse().unwrap();
        let folder = format!("/proc/{pid}/fd");
        let numbers = std::fs::read_dir(&folder).unwrap().map(|entry| {
            let name = entry.unwrap().file_name();
            name.to_string_lossy().parse::<u32>().unwrap()
        });
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        for fd in &numbers {
            let leads = std::fs::read_link(format!("{folder}/{fd}")).unwrap();
            assert!(!leads.to_string_lossy().contains("locks.db"), "{leads:?}");
        }
        drop(run.child.stdin.take());
        assert_eq!(run.end().0, Some(0));
        numbers
    };
    assert_eq!(open(bench.run(&[], script)), open(Run::start(bare)));
}
