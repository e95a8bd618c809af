//! The copy of the workspace into which mutants are woven.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::list::Mutant;
use super::weave;
use crate::rooms::SOURCES;
use crate::sh::root;

/// A package with mutants, and where its copy lies.
#[derive(Debug)]
pub(super) struct Project {
    /// The workspace that is copied.
    pub(super) home: PathBuf,
    /// The copy, a workspace as well.
    pub(super) copy: PathBuf,
    /// Where cargo builds.
    pub(super) target: PathBuf,
    pub(super) package: String,
    /// The sources of the package in its workspace, with a `/` at the end.
    pub(super) sources: String,
}

/// What the root of the library gets: the switch. It is a function of the crate, so that the library depends on nothing new.
///
/// `TIDELOCK_MUTANT=7` switches that mutant on. `TIDELOCK_MUTANTS_SEEN=FILE` switches none on, and appends to the file the
/// number of each switch that the process asks, at its first question.
const SWITCH: &str = "
mod no_mutants {
    fn on(_: u32) -> bool {
        false
    }
}

#[doc(hidden)]
pub(crate) fn mutant(id: u32) -> bool {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    static ACTIVE: AtomicU32 = AtomicU32::new(u32::MAX);
    const NOTES: u32 = u32::MAX - 1;
    static SEEN: [AtomicBool; 65536] = [const { AtomicBool::new(false) }; 65536];
    let mut active = ACTIVE.load(Relaxed);
    if active == u32::MAX {
        let chosen = std::env::var(\"TIDELOCK_MUTANT\").ok().and_then(|id| id.parse().ok());
        let notes = std::env::var_os(\"TIDELOCK_MUTANTS_SEEN\").is_some();
        active = chosen.unwrap_or(if notes { NOTES } else { 0 });
        ACTIVE.store(active, Relaxed);
    }
    if active == NOTES && !SEEN[id as usize].swap(true, Relaxed) {
        use std::io::Write;
        if let Some(path) = std::env::var_os(\"TIDELOCK_MUTANTS_SEEN\") {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(format!(\"{id}\\n\").as_bytes()));
        }
    }
    active == id
}
";

/// The lints that are errors by default, and that a mutant may break without being wrong Rust.
const ALLOW: &str = "#![allow(warnings, arithmetic_overflow, unconditional_panic)]\n";

/// The switch in the build that shows which places are compiled at all: a function that none of them may call. A name that does not
/// exist would do, but the compiler looks through all crates for a similar one, at each place.
pub(super) const NO_SWITCH: &str = "crate::no_mutants::on";

impl Project {
    pub(super) fn tidelock() -> Self {
        Self {
            home: root(),
            copy: root().join("target/mutants/workspace"),
            target: root().join("target"),
            package: "tidelock".to_owned(),
            sources: SOURCES.to_owned(),
        }
    }

    /// Where a package lies in the copy. Not where it lies in the original: cargo names what it builds by that path, so the
    /// two workspaces can share a target directory, and the crates of others in it.
    pub(super) fn folder(&self, package: &str) -> PathBuf {
        self.copy.join("woven").join(package)
    }

    /// The sources of the package with mutants, in the copy.
    pub(super) fn woven(&self) -> PathBuf {
        self.folder(&self.package).join("src")
    }

    /// Copies all packages, without mutants in them. Everything else becomes a link to the original.
    pub(super) fn copy(&self) -> Result<()> {
        fs::create_dir_all(&self.copy)?;
        let manifest = fs::read_to_string(self.home.join("Cargo.toml"))?;
        let members = members(&manifest)?;
        let mut flat = manifest.clone();
        let homes: Vec<PathBuf> = members.iter().map(|it| self.home.join(it)).collect();
        for member in &members {
            let (_, name) = member.rsplit_once('/').unwrap_or(("", member));
            let to = format!("\"woven/{name}\"");
            flat = flat.replace(&format!("\"{member}\""), &to);
            let woven = self.home.join(&self.sources);
            copy_package(&self.home.join(member), &self.folder(name), &homes, &woven)?;
        }
        let flat = flat.replace("exclude = ", "# exclude = ");
        let flat = flat.replace("default-members = ", "# default-members = ");
        write(&self.copy.join("Cargo.toml"), flat.as_bytes())?;
        // A package without dependencies may have none.
        if let Ok(lock) = fs::read(self.home.join("Cargo.lock")) {
            write(&self.copy.join("Cargo.lock"), &lock)?;
        }
        for entry in fs::read_dir(&self.home)? {
            let name = entry?.file_name();
            let to = self.copy.join(&name);
            let own = ["target", ".git", "Cargo.toml", "Cargo.lock", ".cargo"];
            if !own.iter().any(|own| name == **own) && fs::symlink_metadata(&to).is_err() {
                std::os::unix::fs::symlink(self.home.join(&name), to)?;
            }
        }
        Ok(())
    }

    /// Writes the sources with these mutants.
    pub(super) fn weave(&self, mutants: &[&Mutant], switch: &str) -> Result<()> {
        let sources = self.home.join(&self.sources);
        let mut files = Vec::new();
        list(&sources, Path::new(""), &mut files)?;
        let mut with: HashSet<&str> = mutants.iter().map(|it| it.file.as_str()).collect();
        for file in files {
            let name = file.to_string_lossy().into_owned();
            let mut code = fs::read(sources.join(&file))?;
            if with.remove(name.as_str()) {
                let own: Vec<&Mutant> = mutants
                    .iter()
                    .copied()
                    .filter(|it| it.file == name)
                    .collect();
                let text = String::from_utf8(code)?;
                let woven = weave::weave(&text, &own, switch);
                code = woven.with_context(|| name.clone())?.into_bytes();
            }
            if name == "lib.rs" {
                code = [ALLOW.as_bytes(), &code, SWITCH.as_bytes()].concat();
            }
            write(&self.woven().join(&file), &code)?;
        }
        ensure!(with.is_empty(), "files without sources: {with:?}");
        Ok(())
    }
}

/// The paths of the members of a workspace; `.` if it is one package.
fn members(manifest: &str) -> Result<Vec<String>> {
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("members = ["));
    let line = line.context("the manifest lists no members in one line")?;
    let names = line.split('"').skip(1).step_by(2);
    Ok(names.map(str::to_owned).collect())
}

/// Copies a package, without packages of the workspace that lie inside it, and without the sources that are woven.
fn copy_package(from: &Path, to: &Path, members: &[PathBuf], woven: &Path) -> Result<()> {
    let inside: Vec<&PathBuf> = members
        .iter()
        .filter(|it| it.starts_with(from) && *it != from)
        .collect();
    let mut files = Vec::new();
    list(from, Path::new(""), &mut files)?;
    for file in files {
        let source = from.join(&file);
        let other = inside.iter().any(|it| source.starts_with(it));
        // Woven sources that are first written without mutants would look changed to cargo each time.
        if other || source.starts_with(woven) {
            continue;
        }
        let mut bytes = fs::read(&source)?;
        if file == Path::new("Cargo.toml") {
            let text = String::from_utf8(bytes)?;
            bytes = text
                .replace("\"../../crates/", "\"../")
                .replace("\"../crates/", "\"../")
                .into_bytes();
        }
        write(&to.join(&file), &bytes)?;
    }
    Ok(())
}

/// The files below a folder, relative to it.
fn list(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                list(root, &path, files)?;
            }
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// Writes a file if it differs. Otherwise cargo would build what has not changed.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|before| before == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(path, bytes)?)
}
