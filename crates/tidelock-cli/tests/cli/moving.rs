//! The commands of `docs/moving.md`, and `tidelock token` on SQLite.

use std::path::Path;
use std::process::Command;

use crate::bench::Bench;

const PAGE: &str = include_str!("../../../../docs/moving.md");

/// Each command of the page, and the lines that it prints.
pub(crate) fn commands(page: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut console = false;
    for line in page.lines() {
        match (line, line.strip_prefix("$ "), found.last_mut()) {
            ("```console", ..) => console = true,
            ("```", ..) => console = false,
            (_, Some(command), _) if console => found.push((command.to_owned(), String::new())),
            (_, None, Some((_, said))) if console => {
                said.push_str(line);
                said.push('\n');
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_commands_of_the_page_about_moving_work() {
    let (old, new) = (Bench::new(), Bench::new());
    for _ in 0..2 {
        assert_eq!(old.code(&["run", "--fenced", "ledger", "--", "true"]), 0);
    }
    let commands = commands(PAGE);
    assert_eq!(commands.len(), 5, "{commands:?}");
    let folder = Path::new(env!("CARGO_BIN_EXE_tidelock")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    for (command, printed) in commands {
        let said = Command::new("sh")
            .args(["-c", &command])
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("OLD", old.url())
            .env("NEW", new.url())
            .output()
            .unwrap();
        assert!(said.status.success(), "{command}: {said:?}");
        assert_eq!(String::from_utf8_lossy(&said.stdout), printed, "{command}");
    }
    let next = new.output(&[
        "run",
        "--fenced",
        "ledger",
        "--",
        "sh",
        "-c",
        "echo $TIDELOCK_TOKEN",
    ]);
    assert_eq!(next.stdout, b"5009\n");
}

#[test]
fn a_token_that_is_shown_creates_nothing_and_none_is_said() {
    let bench = Bench::new();
    assert_eq!(
        bench.code(&["token", "ledger"]),
        64,
        "there is no store yet"
    );
    assert_eq!(bench.code(&["run", "other", "--", "true"]), 0);
    let shown = bench.output(&["token", "ledger", "--json"]).stdout;
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!(
        (&shown["name"], &shown["newest"]),
        (&"ledger".into(), &1.into())
    );
    let over = u64::MAX.to_string();
    let refused = bench.output(&["token", "ledger", "--at-least", &over]);
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("9223372036854775807"));
}
