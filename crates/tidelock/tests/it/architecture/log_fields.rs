//! Texts from a store do not reach the log unescaped: they could forge lines of it.

use super::sources;

/// Fields whose own `Display` escapes (`Error`, `Name`), and values that this process made itself.
const SAFE: [&str; 6] = ["error", "name", "owner", "reason", "held_at", "location"];

/// The values that the statements of a file log by their `Display`.
fn displayed(code: &str) -> Vec<&str> {
    let levels = ["trace!(", "debug!(", "info!(", "warn!(", "error!("];
    let statements = levels
        .iter()
        .flat_map(|level| code.split(level).skip(1))
        // The message comes last.
        .filter_map(|rest| rest.split('"').next());
    let values = statements.flat_map(|fields| fields.split('%').skip(1));
    values
        .map(|value| value.split(',').next().unwrap_or(value).trim())
        .collect()
}

#[test]
fn log_fields_from_outside_are_escaped() {
    let mut values = 0;
    for (file, code) in sources() {
        for value in displayed(&code) {
            values += 1;
            let last = value.rsplit('.').next().unwrap();
            assert!(
                value.starts_with("Escaped(") || SAFE.contains(&last),
                "{file} logs {value}: write Escaped({value})"
            );
        }
    }
    assert!(values > 40, "only {values} found");
}
