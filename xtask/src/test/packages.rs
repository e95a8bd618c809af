//! What `cargo publish` would upload: a file that is missing there is missing for every user, and a file too many stays
//! public.

use std::fs;

use anyhow::{Context, Result, bail};

use super::Tally;
use crate::sh::{self, cargo, root};

const PACKAGES: [&str; 2] = ["tidelock", "tidelock-cli"];
/// Rewrites the lists instead of comparing them.
pub(super) const WRITE: &str = "TIDELOCK_WRITE_DOCS";

/// Compares the files of each package with the list that is kept, without the programs, which change daily.
pub(super) fn packages(_: &mut Tally) -> Result<()> {
    for name in PACKAGES {
        let listed = sh::quiet(cargo(&["package", "-p", name, "--list", "--allow-dirty"]))?;
        let files = without_programs(&listed);
        let kept = root().join(format!("xtask/packages/{name}.txt"));
        if std::env::var_os(WRITE).is_some() {
            fs::write(&kept, files)?;
            continue;
        }
        let expected = fs::read_to_string(&kept).with_context(|| kept.display().to_string())?;
        let changes = changes(&expected, &files);
        if !changes.is_empty() {
            bail!(
                "the package {name} has other files:\n{}\nif they should be published: {WRITE}=1 cargo xtask test --only packages",
                changes.join("\n")
            );
        }
    }
    Ok(())
}

fn without_programs(listed: &str) -> String {
    // cargo adds the commit where there is a repository.
    let is_program = |line: &str| line.starts_with("src/") || line.starts_with("examples/");
    let kept = |line: &&str| !is_program(line) && *line != ".cargo_vcs_info.json";
    let lines = listed.lines().filter(kept);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The lines that only one of the texts has.
fn changes(expected: &str, found: &str) -> Vec<String> {
    let only = |sign: char, one: &str, other: &str| -> Vec<String> {
        let lines = one
            .lines()
            .filter(|line| other.lines().all(|it| it != *line));
        lines.map(|line| format!("{sign} {line}")).collect()
    };
    [only('-', expected, found), only('+', found, expected)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_no_sources_and_a_change_names_its_side() {
        let files = without_programs("Cargo.toml\nsrc/lib.rs\nexamples/a.rs\npages/a.md\n");
        assert_eq!(files, "Cargo.toml\npages/a.md\n");
        assert_eq!(changes("a\nb\n", "b\nc\n"), ["- a", "+ c"]);
        assert!(changes(&files, &files).is_empty());
    }
}
