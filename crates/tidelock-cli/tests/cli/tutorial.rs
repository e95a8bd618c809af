//! The commands of `docs/tutorial.md`, in one shell. `TIDELOCK_WRITE_DOCS=1` writes what they print into the page.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::bench::Bench;
use crate::moving::commands;

const PAGE: &str = include_str!("../../../../docs/tutorial.md");
/// Ends the output of each command.
const END: &str = "-- end of a command --";

/// Runs the commands of the page one after the other, as a reader does. Returns what each prints.
fn run_all(bench: &Bench, commands: &[(String, String)]) -> Vec<String> {
    let mut script = "exec 2>&1 < /dev/null\n".to_owned();
    for (command, _) in commands {
        // The next command may print the exit code of this one.
        script.extend([command, "\n(code=$?; echo '", END, "'; exit $code)\n"]);
    }
    let folder = Path::new(env!("CARGO_BIN_EXE_tidelock")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell: Command = bench.program("bash");
    let output = shell
        .args(["-c", &script])
        .current_dir(bench.folder.path())
        .env_remove("TIDELOCK_STORE")
        .env("PATH", format!("{}:{path}", folder.display()))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let end = format!("{END}\n");
    let said: Vec<String> = said.split_terminator(&end).map(str::to_owned).collect();
    assert_eq!(said.len(), commands.len(), "{said:?}");
    said
}

/// What every run prints: without numbers, the width of columns, and the holder, who has another name elsewhere.
fn in_every_run(said: &str) -> String {
    let lines = said.lines().map(|line| {
        let line = line.split(" held by ").next().unwrap_or_default();
        let number = |c: char| c.is_ascii_digit() || c == '.';
        let words = line.split_whitespace().map(|word| word.replace(number, ""));
        words
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    });
    let mut lines: Vec<String> = lines.collect();
    // Two processes may write to the terminal at the same time.
    lines.sort();
    lines.join("\n")
}

#[test]
fn the_commands_of_the_tutorial_work() {
    let commands = commands(PAGE);
    assert!(commands.len() > 10, "{commands:?}");
    let bench = Bench::new();
    let said = run_all(&bench, &commands);
    if std::env::var_os("TIDELOCK_WRITE_DOCS").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial.md");
        std::fs::write(file, with_output(PAGE, &said)).unwrap();
        return;
    }
    for ((command, printed), said) in commands.iter().zip(&said) {
        if command.starts_with("tidelock") {
            assert_eq!(in_every_run(said), in_every_run(printed), "{command}");
        } else {
            assert_eq!(said, printed, "{command}");
        }
    }
}

/// The page with these outputs instead of its own.
fn with_output(page: &str, said: &[String]) -> String {
    let mut said = said.iter();
    let (mut fresh, mut console) = (String::new(), false);
    for line in page.lines() {
        console = match line {
            "```console" => true,
            "```" => false,
            _ => console,
        };
        let is_command = line.starts_with("$ ");
        if console && !is_command && line != "```console" {
            continue;
        }
        fresh.extend([line, "\n"]);
        if console && is_command {
            fresh += said.next().unwrap();
        }
    }
    fresh
}
