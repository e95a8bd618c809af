//! A real terminal.
#![cfg(target_os = "linux")]

use ratatui::widgets::TableState;

use super::{Colours, draw, screen};

/// Says that this process is the child of the test below.
const PANICS: &str = "TIDELOCK_TEST_PANICS";

/// The test runs itself at a terminal, where it panics with the screen on.
#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    use std::process::{Command, Stdio};

    if std::env::var_os(PANICS).is_some() {
        let mut terminal = super::super::terminal::Terminal::take().unwrap();
        let mut table = TableState::default();
        let drawn = terminal.screen().draw(|frame| {
            draw(frame, &screen(), &mut table, Colours(true));
        });
        drawn.unwrap();
        panic!("on purpose");
    }
    let itself = std::env::current_exe().unwrap();
    let name = "top::screen::tests::terminal::a_panic_leaves_the_terminal_as_it_was";
    let script = format!(
        "stty cols 120 rows 20; '{}' --exact {name} --nocapture; stty -a",
        itself.display()
    );
    let output = Command::new("script")
        .args(["-q", "-c", &script, "/dev/null"])
        .env(PANICS, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let (screen, after) = text.split_once("\u{1b}[?1049l").expect(&text);
    assert!(screen.contains("order:stock:42"), "{text}");
    assert!(after.contains("on purpose"), "the message stays: {text}");
    assert!(!after.contains("\u{1b}[?1049"), "{text}");
    assert!(
        after.contains(" icanon") && after.contains(" echo "),
        "{text}"
    );
    assert!(after.contains("\u{1b}[?25h"), "a cursor: {text}");
}
