//! Tables for people at a terminal. Elsewhere the output has no table and no colour, and its form does not change.

use std::io::IsTerminal;

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use tidelock::once::{Mark, MarkState};
use tidelock::{Escaped, Finding, Holder, Severity, Snapshot};

use crate::inspect::{mode_of, permits_held, permits_of, program_of, rounded};
use crate::once::{time, took};

/// A narrower terminal breaks the lines itself; otherwise a table would have one letter in a line. The terminal of a
/// script or of a container may say that it has no columns.
const NARROWEST: u16 = 72;

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
    if table.width().is_some_and(|width| width < NARROWEST) {
        table.set_width(NARROWEST);
    }
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
        "lock",
        "held by",
        "user",
        "process",
        "connected since",
        "left",
        "token",
        "waiting",
    ]);
    for lock in locks {
        let text = |value: Option<u64>| value.map(|n| n.to_string()).unwrap_or_default();
        let token = text(lock.token.map(tidelock::FencingToken::get));
        let mut of_lock = [name(lock), left(lock), token, text(lock.waiters)];
        let mut add = |by: Cell, of_client: [String; 3]| {
            // Only the first row of a lock repeats what concerns all holders.
            let [name, left, token, waiters] = std::mem::take(&mut of_lock).map(Cell::new);
            let [user, process, since] = of_client.map(Cell::new);
            table.add_row([name, by, user, process, since, left, token, waiters]);
        };
        if lock.holders.is_empty() {
            add(coloured("free", Color::Green), Default::default());
        }
        for holder in &lock.holders {
            let (by, of_client) = columns_of(holder);
            add(coloured(by, Color::Yellow), of_client);
        }
    }
    table
}

fn name(lock: &Snapshot) -> String {
    let name = Escaped(&lock.name);
    match permits_of(lock) {
        Some(permits) => format!("{name} ({permits})"),
        None => name.to_string(),
    }
}

fn left(lock: &Snapshot) -> String {
    match lock.expires_in {
        Some(left) => humantime::format_duration(rounded(left)).to_string(),
        None if lock.is_locked() => "no expiry".to_owned(),
        None => String::new(),
    }
}

/// The program; and its user, its process, and since when it is connected.
fn columns_of(holder: &Holder) -> (String, [String; 3]) {
    let side = match mode_of(holder.mode) {
        "exclusive" => String::new(),
        "upgradeable_read" => " to read, upgradeable".to_owned(),
        "permits" => format!(" with {}", permits_held(holder)),
        side => format!(" to {side}"),
    };
    match &holder.client {
        Some(client) => (
            format!("{}{side}", Escaped(&client.program)),
            [
                Escaped(client.user.as_deref().unwrap_or_default()).to_string(),
                format!("{} on {}", client.pid, Escaped(&client.host)),
                humantime::format_rfc3339_seconds(client.since).to_string(),
            ],
        ),
        None => (
            format!("{}{side}", Escaped(&holder.owner)),
            Default::default(),
        ),
    }
}

/// A row for each lock: name, mode, number of holders.
pub(crate) fn of_modes(rows: Vec<[String; 3]>) -> Table {
    let mut table = table(&["lock", "mode", "holders"]);
    table.add_rows(rows);
    table
}

/// A row for each slot of a job.
pub(crate) fn of_marks(marks: &[Mark]) -> Table {
    let mut table = table(&[
        "slot", "state", "attempt", "token", "process", "started", "took", "error",
    ]);
    for mark in marks {
        let state = match mark.state {
            MarkState::Done => coloured("done", Color::Green),
            MarkState::Failed => coloured("failed", Color::Red),
            other => coloured(other.as_str(), Color::Yellow),
        };
        let process = &mark.process;
        let process = format!(
            "{} ({} on {})",
            program_of(process),
            process.pid,
            process.host
        );
        let took = mark.ended.map(|ended| took(mark.started, ended));
        let error = mark.error.as_deref().unwrap_or_default();
        table.add_row([
            Cell::new(Escaped(&mark.slot)),
            state,
            mark.attempt.into(),
            mark.token.into(),
            Cell::new(Escaped(process)),
            time(mark.started).into(),
            took.unwrap_or_default().into(),
            Cell::new(Escaped(error)),
        ]);
    }
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
