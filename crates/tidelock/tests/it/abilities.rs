//! The documented table of store capabilities is generated from what the stores report.

use std::fs;
use std::path::Path;

use tidelock::store::{Capabilities, LockKind};
use tidelock::testing::{Fixture, abilities};

fn row((store, can): &(&str, Capabilities)) -> String {
    let word = |able| if able { "yes" } else { "no" };
    format!(
        "| `{store}` | {} | {} | {} | {} | {} | {} | {} | {} |",
        word(can.shared),
        word(can.durable),
        word(can.wakes),
        word(can.queues),
        word(can.has(LockKind::Fenced)),
        word(can.sequencers),
        word(can.delays),
        word(can.has(LockKind::Read) && can.has(LockKind::Write))
    )
}

/// Rewritten with `TIDELOCK_WRITE_DOCS=1` and all features on.
#[test]
fn the_table_of_abilities_is_what_the_stores_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/stores/README.md");
    let text = fs::read_to_string(&page).unwrap();
    let rows: Vec<String> = abilities().iter().map(row).collect();
    let (before, rest) = text
        .split_once("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
        .unwrap();
    let (table, after) = rest.split_once("\n\n").unwrap();
    if std::env::var_os("TIDELOCK_WRITE_DOCS").is_some() {
        let table = rows.join("\n");
        let text = format!(
            "{before}| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n{table}\n\n{after}"
        );
        return fs::write(page, text).unwrap();
    }
    // A build with fewer stores generates fewer rows.
    for row in &rows {
        assert!(
            table.lines().any(|line| line == row),
            "not in the docs: {row}"
        );
    }
    if rows.len() == 10 {
        assert_eq!(table.lines().count(), 10, "the docs have a row too many");
    }
}

/// The error of a store without a kind of lock names exactly the stores that have it.
#[tokio::test]
async fn the_error_names_every_store_that_has_the_kind() {
    // A set has no kind of lock but the plain one.
    let client = Fixture::all_of([Fixture::memory()]);
    let client = client.client(client.builder()).await;
    let fenced = client.lock("x").fenced().try_acquire().await.map(drop);
    let sides = client.read_write_lock("x").map(drop);
    for (kinds, error) in [
        (&[LockKind::Fenced][..], fenced.unwrap_err()),
        (&[LockKind::Read, LockKind::Write], sides.unwrap_err()),
    ] {
        let said = error.to_string();
        let (_, named) = said.split_once("these have: ").unwrap();
        let named: Vec<&str> = named.split(", ").collect();
        for (store, can) in abilities() {
            let has = kinds.iter().all(|kind| can.has(*kind));
            assert_eq!(named.contains(store), has, "{store}: {said}");
        }
    }
}
