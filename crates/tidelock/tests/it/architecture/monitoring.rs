//! The dashboard and the alert rules in `monitoring/` name metrics and labels that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::sources;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// The words of a text: metric names, labels and their values.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The text literals of the module that exports the metrics and of the enums whose names are labels, as Prometheus
/// writes them.
fn exported() -> BTreeSet<String> {
    let homes = [
        "engine/instruments/",
        "types/loss_reason.rs",
        "types/reasons.rs",
    ];
    let code = sources().into_iter().filter(|(name, code)| {
        homes.iter().any(|home| name.starts_with(home)) || code.contains("enum LostReason")
    });
    code.flat_map(|(_, code)| {
        let literals = code.split('"').skip(1).step_by(2);
        literals
            .map(|text| text.replace('.', "_"))
            .collect::<Vec<_>>()
    })
    .collect()
}

fn metrics() -> BTreeSet<String> {
    let is_metric = |name: &String| {
        (name.starts_with("tidelock_") || name.starts_with("db_client_"))
            && words(name).next() == Some(name)
    };
    exported().into_iter().filter(is_metric).collect()
}

/// The metrics that a text names, without the ends that Prometheus adds to those of a histogram.
fn named(text: &str) -> BTreeSet<String> {
    let known = metrics();
    let names =
        words(text).filter(|word| word.starts_with("tidelock_") || word.starts_with("db_client_"));
    names
        .map(|name| {
            let ends = ["_bucket", "_count", "_sum"];
            let without = ends.iter().filter_map(|end| name.strip_suffix(end));
            let base = without.into_iter().find(|base| known.contains(*base));
            base.unwrap_or(name).to_owned()
        })
        .collect()
}

#[test]
fn every_metric_of_the_dashboard_and_the_rules_exists() {
    for file in ["monitoring/grafana.json", "monitoring/alerts.yml"] {
        let unknown: Vec<_> = named(&read(file)).difference(&metrics()).cloned().collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[test]
fn every_metric_is_on_the_dashboard() {
    let shown = named(&read("monitoring/grafana.json"));
    let missing: Vec<_> = metrics().difference(&shown).cloned().collect();
    assert!(missing.is_empty() && !shown.is_empty(), "{missing:?}");
}

/// Checks each `label="value"` of a rule or a panel. `job` and what Grafana fills in are not ours.
#[test]
fn every_label_of_the_dashboard_and_the_rules_exists() {
    let known = exported();
    for file in ["monitoring/grafana.json", "monitoring/alerts.yml"] {
        let text = read(file).replace("\\\"", "\"");
        let inside = text
            .split('{')
            .skip(1)
            .filter_map(|rest| rest.split('}').next());
        let pairs = inside.flat_map(|inside| inside.split(','));
        for pair in pairs {
            let Some((label, value)) = pair.split_once('=') else {
                continue;
            };
            let label = label.trim_end_matches('!').trim();
            let value = value.trim_matches(|c| "~\"!".contains(c));
            assert!(
                label == "job" || known.contains(label),
                "{file}: no label is called {label}"
            );
            let is_ours = label != "store" && !value.is_empty() && !value.starts_with('$');
            assert!(
                !is_ours || known.contains(value) || value == "page" || value == "ticket",
                "{file}: {label} is never {value}"
            );
        }
    }
}

#[test]
fn every_alert_says_what_to_do() {
    let page = read("docs/operating.md");
    let rules = read("monitoring/alerts.yml");
    let names: Vec<_> = rules
        .lines()
        .filter_map(|l| l.trim().strip_prefix("- alert: "))
        .collect();
    assert_eq!(names.len(), 6);
    for name in names {
        let anchor = format!("docs/operating.md#{}", name.to_lowercase());
        assert!(rules.contains(&anchor), "{name} has no runbook");
        assert!(
            page.contains(&format!("### {name}\n")),
            "{name} is not on the page"
        );
    }
}
