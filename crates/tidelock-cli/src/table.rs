//! Tables for people at a terminal. Elsewhere the output has no table and no colour, and its form does not change.

use std::io::IsTerminal;

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use tidelock::{Escaped, Finding, Holder, Severity, Snapshot};

use crate::inspect::{mode_of, rounded};

/// Whether the reader of stdout is a person.
pub(crate) fn is_wanted() -> bool {
    std::io::stdout().is_terminal()
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table
}

/// In colour, unless the user does not want any (<https://no-color.org>).
fn coloured(text: impl ToString, colour: Color) -> Cell {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let cell = Cell::new(text);
    if unwanted { cell } else { cell.fg(colour) }
}

/// A row for each holder; a free lock has one row.
pub(crate) fn of_locks(locks: &[Snapshot]) -> Table {
    let mut table = table(&[
        "lock", "held by", "process", "since", "left", "token", "waiting",
    ]);
    for lock in locks {
        let text = |value: Option<u64>| value.map(|n| n.to_string()).unwrap_or_default();
        let token = text(lock.token.map(tidelock::FencingToken::get));
        let mut of_lock = [
            Escaped(&lock.name).to_string(),
            left(lock),
            token,
            text(lock.waiters),
        ];
        let mut add = |by: Cell, process: String, since: String| {
            // Only the first row of a lock repeats what concerns all holders.
            let [name, left, token, waiters] = std::mem::take(&mut of_lock).map(Cell::new);
            table.add_row([name, by, process.into(), since.into(), left, token, waiters]);
        };
        if lock.holders.is_empty() {
            add(coloured("free", Color::Green), String::new(), String::new());
        }
        for holder in &lock.holders {
            let (by, process, since) = columns_of(holder);
            add(coloured(by, Color::Yellow), process, since);
        }
    }
    table
}

fn left(lock: &Snapshot) -> String {
    match lock.expires_in {
        Some(left) => humantime::format_duration(rounded(left)).to_string(),
        None if lock.is_locked() => "no expiry".to_owned(),
        None => String::new(),
    }
}

/// The program, the process, and since when it is connected.
fn columns_of(holder: &Holder) -> (String, String, String) {
    let side = match mode_of(holder.mode) {
        "exclusive" => String::new(),
        side => format!(" to {side}"),
    };
    match &holder.client {
        Some(client) => (
            format!("{}{side}", Escaped(&client.program)),
            format!("{} on {}", client.pid, Escaped(&client.host)),
            humantime::format_rfc3339_seconds(client.since).to_string(),
        ),
        None => (
            format!("{}{side}", Escaped(&holder.owner)),
            String::new(),
            String::new(),
        ),
    }
}

/// A row for each lock: name, mode, number of holders.
pub(crate) fn of_modes(rows: Vec<[String; 3]>) -> Table {
    let mut table = table(&["lock", "mode", "holders"]);
    table.add_rows(rows);
    table
}

/// A row for each finding.
pub(crate) fn of_findings(findings: &[Finding]) -> Table {
    let mut table = table(&["", "subject", "found", "meaning"]);
    for finding in findings {
        let severity = match finding.severity {
            Severity::Good => coloured("good", Color::Green),
            Severity::Advice => coloured("advice", Color::Yellow),
            _ => coloured("danger", Color::Red),
        };
        let advice = finding.advice.as_ref();
        let advice = advice.map(|advice| format!("\n→ {}", Escaped(advice)));
        let meaning = format!(
            "{}{}",
            Escaped(&finding.meaning),
            advice.unwrap_or_default()
        );
        let [subject, found] = [&finding.subject, &finding.found].map(|it| Cell::new(Escaped(it)));
        table.add_row([severity, subject, found, meaning.into()]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_forges_neither_lines_nor_colours() {
        let mut seen = Snapshot::free("evil\nx: free\u{1b}[31m");
        let free = of_locks(std::slice::from_ref(&seen)).to_string();
        seen.holders.push(Holder::new("evil\u{9b}31m\nowner", 1));
        let held = of_locks(&[seen]).to_string();
        for text in [free, held] {
            assert!(!text.contains(['\u{1b}', '\u{9b}']), "{text:?}");
            assert_eq!(text.lines().count(), 2, "{text}"); // header and row
            assert!(text.contains(r"evil\nx: free\u{1b}[31m"), "{text}");
        }
    }
}
