use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::dist::build::Built;
use crate::dist::papers::CHECKSUMS;
use crate::dist::{Release, script, sha256};

/// A crate's name and version.
type Part = (String, String);

pub(crate) fn checksums(release: &Release) -> Result<String> {
    script(
        &format!("cd \"$OUT\"; sha256sum --check --quiet --strict {CHECKSUMS}"),
        &[("OUT", &release.out)],
    )?;
    let formula = fs::read_to_string(release.artefact("tidelock.rb")?)?;
    let archive = release.artefact(&format!("{}.tar.gz", release.fixed.target))?;
    ensure!(
        formula.contains(&sha256(&archive)?),
        "the formula's checksum"
    );
    Ok(String::new())
}

/// Reads the list back from the section that `cargo auditable` writes.
fn inside(release: &Release, built: &Built) -> Result<BTreeSet<Part>> {
    let section = release.work.join("dep-v0");
    // As root, objcopy would replace /dev/null by its copy.
    let dump = "objcopy --dump-section .dep-v0=\"$SECTION\" \"$BIN\" \"$SECTION.copy\"
        python3 -c 'import sys,zlib; sys.stdout.write(zlib.decompress(open(sys.argv[1],\"rb\").read()).decode())' \"$SECTION\"";
    let text = script(dump, &[("SECTION", &section), ("BIN", &built.path)])?;
    named(&serde_json::from_str(&text)?, "packages")
}

pub(crate) fn listed_inside(release: &Release) -> Result<String> {
    let locked = locked(release)?;
    let mut counts = Vec::new();
    for built in [&release.dynamic, &release.fixed] {
        let listed = inside(release, built)?;
        let strange: Vec<_> = listed.difference(&locked).collect();
        ensure!(strange.is_empty(), "not in Cargo.lock: {strange:?}");
        ensure!(listed.iter().any(|(name, _)| name == "ring"), "no ring");
        counts.push(listed.len().to_string());
    }
    Ok(format!("{} crates", counts.join(" and ")))
}

pub(crate) fn sbom(release: &Release) -> Result<String> {
    let text = fs::read_to_string(release.artefact(".cdx.json")?)?;
    let bill: Value = serde_json::from_str(&text)?;
    let mut parts = named(&bill, "components")?;
    let strange: Vec<_> = parts.difference(&locked(release)?).cloned().collect();
    ensure!(strange.is_empty(), "not in Cargo.lock: {strange:?}");
    // The bill is about the command itself, so it is not among its parts.
    parts.insert(("tidelock-cli".to_owned(), crate::dist::VERSION.to_owned()));
    let missing: Vec<_> = inside(release, &release.dynamic)?
        .difference(&parts)
        .cloned()
        .collect();
    ensure!(
        missing.is_empty(),
        "in the program, not in the list: {missing:?}"
    );
    Ok(format!("{} parts", parts.len()))
}

/// The crates of an array of objects with `name` and `version`.
fn named(of: &Value, array: &str) -> Result<BTreeSet<Part>> {
    let all = of.get(array).and_then(Value::as_array);
    let all = all.with_context(|| format!("no array {array}"))?;
    let text = |one: &Value, key: &str| one.get(key)?.as_str().map(str::to_owned);
    let parts: BTreeSet<Part> = all
        .iter()
        .filter_map(|one| Some((text(one, "name")?, text(one, "version")?)))
        .collect();
    ensure!(!parts.is_empty(), "{array} is empty");
    Ok(parts)
}

fn locked(release: &Release) -> Result<BTreeSet<Part>> {
    let text = fs::read_to_string(release.source().join("Cargo.lock"))?;
    Ok(in_lock_file(&text))
}

/// The crates of a `Cargo.lock`: the line `version = …` follows the line `name = …`.
fn in_lock_file(text: &str) -> BTreeSet<Part> {
    let value = |line: &str, key: &str| -> Option<String> {
        let quoted = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        Some(quoted.trim_end_matches('"').to_owned())
    };
    let lines: Vec<&str> = text.lines().collect();
    let pairs = lines.windows(2).filter_map(|pair| match pair {
        [one, other] => Some((value(one, "name")?, value(other, "version")?)),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn crates_are_read_from_the_lock_file() {
        let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.2.3\"\ndependencies = [\n \"b\",\n]\n";
        let found = super::in_lock_file(text);
        assert_eq!(found.len(), 1);
        assert!(found.contains(&("a".to_owned(), "1.2.3".to_owned())));
    }
}
