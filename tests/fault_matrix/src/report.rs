//! Renders the results as a table for the terminal and as a page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use time::OffsetDateTime;

use crate::matrix::{Cell, Results, State};
use crate::store::Store;

/// The table and its totals, for the terminal.
pub(crate) fn summary(cells: &[Cell], results: &Results) -> String {
    let mut text = String::from("\n");
    table(&mut text, cells, results);
    let _ = writeln!(text, "\n{}", totals(cells, results));
    red(&mut text, cells, results);
    text
}

/// The page.
pub(crate) fn page(cells: &[Cell], results: &Results) -> String {
    let mut text = String::from(HEAD);
    let now = OffsetDateTime::now_utc();
    let (date, minutes) = (now.date(), results.took.as_secs() / 60);
    let _ = writeln!(text, "- date: {date}, in {minutes} minutes");
    let seeds: Vec<String> = results.seeds.iter().map(u64::to_string).collect();
    let _ = writeln!(text, "- seeds: {}", seeds.join(", "));
    for (store, version) in &results.versions {
        let _ = writeln!(text, "- {store}: {version}");
    }
    let _ = writeln!(text, "\n{}\n", totals(cells, results));
    table(&mut text, cells, results);
    red(&mut text, cells, results);
    reasons(&mut text, cells, results);
    evidence(&mut text, cells, results);
    text
}

const HEAD: &str = "# The fault matrix

Written by `cargo xtask faults --write docs/faults.md`. A row is a fault, a column a store; `cargo xtask faults --store redis --row T05` runs one of them.

A *story* is a run of three processes on a server of its own. Each has tasks that hold a lock for a moment, for about a lease, or always,
that campaign in an election, and that run a job once per slot (the last two where the store has tokens), and writes down
on the boot clock when it asked, was granted a lock and with which token, acted on it, was told of a loss, gave it back. In the middle the fault is made; then every process must
get its locks again. Their histories are put together and checked: no two acted on one lock at once (unless the store forgot it, and then the first was told within a third of its lease
and half a second); tokens grew; no slot was run again after it was done; no lock was free for longer than a lease and a second while somebody waited; nobody acted on what was no longer proved, and every loss was told;
nothing was left in the store after a lease, nor more files open. Each check is itself tested with a lock that breaks its promise (`cargo test -p fault_matrix`).
Other rows are answered by *tests* of their own, which are named below.

`+` green, **red**, `·` not applicable, `?` can happen here; no test covers it.

";

fn symbol(state: State) -> &'static str {
    match state {
        State::Green => "+",
        State::Red => "**red**",
        State::NotApplicable => "·",
        State::Open => "?",
    }
}

fn stores(cells: &[Cell]) -> Vec<Store> {
    let mut stores: Vec<Store> = cells.iter().map(|cell| cell.store).collect();
    stores.sort_unstable();
    stores.dedup();
    stores
}

fn rows<'a>(cells: &'a [Cell]) -> BTreeMap<u32, Vec<&'a Cell>> {
    let mut rows: BTreeMap<u32, Vec<&'a Cell>> = BTreeMap::new();
    for cell in cells {
        rows.entry(cell.row.id).or_default().push(cell);
    }
    rows
}

fn table(text: &mut String, cells: &[Cell], results: &Results) {
    let stores = stores(cells);
    let names: Vec<&str> = stores.iter().map(|store| store.name()).collect();
    let _ = writeln!(text, "| row | fault | {} |", names.join(" | "));
    let _ = writeln!(text, "| --- | --- |{}", " :---: |".repeat(names.len()));
    for (id, cells) in rows(cells) {
        let what = cells.first().map_or("", |cell| cell.row.what);
        let states = cells.iter().map(|cell| symbol(cell.state(results)));
        let states: Vec<&str> = states.collect();
        let _ = writeln!(text, "| T{id:02} | {what} | {} |", states.join(" | "));
    }
}

fn totals(cells: &[Cell], results: &Results) -> String {
    let count = |state| {
        cells
            .iter()
            .filter(|cell| cell.state(results) == state)
            .count()
    };
    let runs = results.played.values().flatten();
    let (mut stories, mut grants, mut losses) = (0, 0, 0);
    for (_, outcome) in runs {
        stories += 1;
        grants += outcome.grants;
        losses += outcome.losses;
    }
    format!(
        "{} cells: {} green, {} red, {} not applicable, {} open; {stories} stories with {grants} grants and {losses} losses, {} tests",
        cells.len(),
        count(State::Green),
        count(State::Red),
        count(State::NotApplicable),
        count(State::Open),
        results.tests.len()
    )
}

fn red(text: &mut String, cells: &[Cell], results: &Results) {
    let is_red = |cell: &&Cell| cell.state(results) == State::Red;
    let red: Vec<&Cell> = cells.iter().filter(is_red).collect();
    if red.is_empty() {
        return;
    }
    text.push_str("\n## Red\n\n");
    for cell in red {
        let (id, store) = (cell.row.id, cell.store);
        for story in &cell.answer.stories {
            let runs = results.played.get(&(store, story.name));
            let Some(runs) = runs else {
                let _ = writeln!(text, "- T{id:02} {store}: {} was not played", story.name);
                continue;
            };
            for (seed, outcome) in runs.iter().filter(|(_, run)| !run.breaches.is_empty()) {
                let _ = writeln!(
                    text,
                    "- T{id:02} {store}, {}: `cargo xtask faults --store {store} --row T{id:02} --seed {seed}`",
                    story.name
                );
                for breach in outcome.breaches.iter().take(3) {
                    let how = breach.to_string().replace('\n', " ");
                    let _ = writeln!(text, "  - {how}");
                }
            }
        }
        for name in &cell.missing {
            let _ = writeln!(text, "- T{id:02} {store}: no test is called `{name}`");
        }
        for test in cell
            .tests
            .iter()
            .filter(|test| results.tests.get(test) != Some(&true))
        {
            let _ = writeln!(text, "- T{id:02} {store}: the test `{}`", test.name());
        }
    }
}

fn reasons(text: &mut String, cells: &[Cell], results: &Results) {
    text.push_str("\n## Not applicable, and open\n\n| row | stores | why |\n| --- | --- | --- |\n");
    for (id, cells) in rows(cells) {
        let mut whys: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for cell in cells {
            let why = match cell.state(results) {
                State::NotApplicable => cell.answer.not_applicable.unwrap_or_default(),
                State::Open => "**open**: no story and no test yet",
                _ => continue,
            };
            whys.entry(why).or_default().push(cell.store.name());
        }
        for (why, stores) in whys {
            let all = stores.len() == Store::ALL.len();
            let stores = if all {
                "all".to_owned()
            } else {
                stores.join(", ")
            };
            let _ = writeln!(text, "| T{id:02} | {stores} | {why} |");
        }
    }
}

fn evidence(text: &mut String, cells: &[Cell], results: &Results) {
    text.push_str("\n## What answers\n\n| row | by stories | by tests |\n| --- | --- | --- |\n");
    for (id, cells) in rows(cells) {
        let mut stories: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut tests: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for cell in cells
            .iter()
            .filter(|cell| cell.state(results) != State::NotApplicable)
        {
            for story in &cell.answer.stories {
                stories
                    .entry(story.name)
                    .or_default()
                    .push(cell.store.name());
            }
            for test in &cell.tests {
                let stores = tests.entry(test.name()).or_default();
                if stores.last() != Some(&cell.store.name()) {
                    stores.push(cell.store.name());
                }
            }
        }
        if stories.is_empty() && tests.is_empty() {
            continue;
        }
        let list = |found: BTreeMap<&str, Vec<&str>>, tick: &str| {
            let each = found.into_iter().map(|(name, stores)| {
                let how_many = stores.len();
                let stores = if how_many > 4 {
                    format!("{how_many} stores")
                } else {
                    stores.join(", ")
                };
                format!("{tick}{name}{tick} ({stores})")
            });
            each.collect::<Vec<_>>().join("; ")
        };
        let (stories, tests) = (list(stories, ""), list(tests, "`"));
        let _ = writeln!(text, "| T{id:02} | {stories} | {tests} |");
    }
}
