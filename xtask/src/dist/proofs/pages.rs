use std::fs;

use anyhow::{Context, Result, ensure};

use crate::book;
use crate::dist::{Release, VERSION, script};
use crate::sh::{self, command, root};

pub(crate) fn versions(release: &Release) -> Result<String> {
    let told = sh::quiet(command(
        &release.fixed.path.to_string_lossy(),
        &["--version"],
    ))?;
    let first = told.lines().next().unwrap_or_default();
    ensure!(first == format!("tidelock {VERSION}"), "--version: {first}");
    ensure!(!told.contains("left out"), "--version: {told}");
    let page = sh::quiet(command(&release.fixed.path.to_string_lossy(), &["man"]))?;
    ensure!(page.contains(VERSION), "the man page has another version");
    let changes = fs::read_to_string(release.source().join("CHANGELOG.md"))?;
    let section = changes.lines().find(|line| line.starts_with("## "));
    let section = section.context("no section in CHANGELOG.md")?;
    // The job of a release runs on its tag.
    let of_tag = std::env::var("GITHUB_REF_TYPE").is_ok_and(|it| it == "tag");
    let tag = std::env::var("GITHUB_REF_NAME").unwrap_or_default();
    ensure!(!of_tag || tag == format!("v{VERSION}"), "the tag is {tag}");
    ensure!(
        section.contains(VERSION) || (section == "## Unreleased" && !of_tag),
        "CHANGELOG.md begins with {section}"
    );
    Ok(format!("{VERSION}, {section}"))
}

/// Sets every page as a terminal would show it. A warning is an error.
pub(crate) fn man(release: &Release) -> Result<String> {
    let share = release.source().join("crates/tidelock-cli/share");
    let set = "for page in \"$SHARE\"/*.1; do
            MANWIDTH=80 man --warnings=all --local-file \"$page\" 2>\"$SHARE/warnings\" >/dev/null
            if test -s \"$SHARE/warnings\"; then echo \"$page\"; cat \"$SHARE/warnings\" >&2; exit 1; fi
        done
        rm \"$SHARE/warnings\"; ls \"$SHARE\"/*.1 | wc -l";
    let told = script(set, &[("SHARE", &share)])?;
    Ok(format!("{} pages", told.trim()))
}

/// Each shell completes `tidelock ru` to `run`.
pub(crate) fn completions(release: &Release) -> Result<String> {
    let share = release.source().join("crates/tidelock-cli/share");
    let complete = "
        bash --norc -euc 'source \"$SHARE/tidelock.bash\"; COMP_WORDS=(tidelock ru); COMP_CWORD=1
            _tidelock tidelock ru tidelock; [[ \" ${COMPREPLY[*]} \" == *\" run \"* ]]'
        timeout 60 zsh -fe \"$ZSH\"
        fish --no-config -c 'source \"$SHARE/tidelock.fish\"; complete -C \"tidelock ru\"' | grep '^run' > /dev/null";
    let zsh = root().join("xtask/dist/completes.zsh");
    script(complete, &[("SHARE", &share), ("ZSH", &zsh)])?;
    Ok(String::new())
}

/// Builds the site with mdBook. It fails on a page that is missing in the table of contents, and on a dead link.
pub(crate) fn book(_: &Release) -> Result<String> {
    Ok(format!("{} pages", book::build()?))
}
