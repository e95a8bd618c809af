//! Copies of the library with bugs that a search must find. So the sources that are published contain none of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::sh::root;

/// A place in the library that is changed.
pub(crate) struct Change {
    /// In the folder of the library's sources.
    pub(crate) file: &'static str,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
}

/// Copies these packages to that folder, with the changes to the library, which must be one of them. The folder is a
/// workspace of its own.
///
/// # Errors
/// If a place is not there exactly once: the code has changed, and so must the list of bugs.
pub(crate) fn plant<'a>(
    folder: &Path,
    packages: &[&str],
    changes: impl IntoIterator<Item = &'a Change>,
) -> Result<()> {
    let mut files = BTreeMap::new();
    for package in packages {
        read(&root(), Path::new(package), &mut files)?;
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let manifest = with_members(&manifest, packages)?;
    files.insert("Cargo.toml".into(), manifest.into_bytes());
    files.insert("Cargo.lock".into(), fs::read(root().join("Cargo.lock"))?);
    let sources = Path::new("crates/tidelock/src");
    for Change { file, from, to } in changes {
        let code = files.get_mut(&sources.join(file));
        let code = code.with_context(|| format!("no file {file}"))?;
        let original = std::str::from_utf8(code)?;
        let found = original.matches(from).count();
        ensure!(found == 1, "{file}: found {found} times, not once: {from}");
        *code = original.replace(from, to).into_bytes();
    }
    for (path, code) in files {
        write(&folder.join(path), &code)?;
    }
    Ok(())
}

/// The manifest of the workspace, with the packages of the copy only.
fn with_members(manifest: &str, packages: &[&str]) -> Result<String> {
    let members = manifest.lines().find(|line| line.starts_with("members = "));
    let own = format!("members = {packages:?}");
    let manifest = manifest.replace(members.context("no members in the manifest")?, &own);
    Ok(manifest.replace("default-members = ", "# default-members = "))
}

/// Reads all files of a folder.
fn read(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read(root, &path, files)?;
        } else {
            files.insert(path, fs::read(entry.path())?);
        }
    }
    Ok(())
}

/// Writes a file if it differs. Otherwise cargo would build what has not changed.
fn write(path: &Path, code: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|before| before == code) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(path, code)?)
}
