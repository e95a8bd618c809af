//! Where the lock file is: from URL to path, made with rights for its owner only.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

/// The path in what follows `sqlite:`. Taken literally, without escapes or options: `sqlite:locks.db` is relative to the
/// working folder at the time of connecting, `sqlite:/var/lib/x/locks.db` and `sqlite:///var/lib/x/locks.db` are absolute,
/// and `~/` at the start is the home folder, because no shell expands it behind a colon.
pub(super) fn path_of(rest: &str) -> Result<PathBuf> {
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            // Not repeated: whoever writes a host may have written a password too.
            return Err(invalid(
                "the URL names a host; write sqlite:PATH or sqlite:///ABSOLUTE/PATH".to_owned(),
            ));
        }
        None => rest,
    };
    if path.is_empty() {
        return Err(invalid(
            "sqlite: needs a path, such as sqlite:locks.db or sqlite:/var/lib/shop/locks.db"
                .to_owned(),
        ));
    }
    if path == ":memory:" {
        return Err(invalid(
            "a database in memory is shared with nobody; for tests use the store memory:"
                .to_owned(),
        ));
    }
    if path.contains('\0') || path.ends_with('/') {
        return Err(invalid(format!(
            "{path:?} is not the path of a file; name a file, not a folder"
        )));
    }
    let path = match path.strip_prefix("~/") {
        Some(below) => home()?.join(below),
        None => PathBuf::from(path),
    };
    std::path::absolute(&path)
        .map_err(|error| invalid("the working folder cannot be read".to_owned()).caused_by(error))
}

fn home() -> Result<PathBuf> {
    std::env::var_os("HOME")
        .filter(|home| !home.is_empty())
        .map(PathBuf::from)
        .ok_or_else(|| invalid("the path begins with ~/ but HOME is not set".to_owned()))
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidOptions).because(why)
}

/// Makes the folder, and gives back the path without links: two ways to one file must be seen to be one.
pub(super) fn prepare(path: &Path) -> Result<PathBuf> {
    if path.is_dir() {
        return Err(invalid(format!(
            "{} is a folder; name a file in it",
            path.display()
        )));
    }
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else {
        return Err(invalid(format!(
            "{} is not the path of a file",
            path.display()
        )));
    };
    let made = make_folder(folder).and_then(|()| folder.canonicalize());
    made.map(|folder| folder.join(file)).map_err(|error| {
        Error::new(ErrorKind::Refused)
            .because(format!(
                "the folder {} cannot be made or used",
                folder.display()
            ))
            .caused_by(error)
    })
}

#[cfg(unix)]
fn make_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

#[cfg(not(unix))]
fn make_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// Makes an empty file that only its owner may use; SQLite gives its companions the same rights. An existing one is left as it is.
///
/// Never opens the file: on POSIX, closing any descriptor of a file drops all locks this process has on it, also those
/// that SQLite holds through another connection.
#[cfg(target_os = "linux")]
pub(super) fn make_file(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    // An error is found again, and explained, when SQLite opens the file.
    let _ = mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0);
}

/// SQLite makes the file, with the rights the umask leaves.
#[cfg(not(target_os = "linux"))]
pub(super) fn make_file(_path: &Path) {}

/// Which file it is, to notice that another one has taken its place. `None`: there is none.
#[cfg(unix)]
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// An open file cannot be replaced here.
#[cfg(not(unix))]
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    path.exists().then_some((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_literally() {
        let path = |rest| path_of(rest).unwrap();
        assert_eq!(path("/a/b c%20?x.db"), Path::new("/a/b c%20?x.db"));
        assert_eq!(path("///a/b.db"), Path::new("/a/b.db"));
        assert_eq!(path("b.db"), std::env::current_dir().unwrap().join("b.db"));
        assert!(path("~/b.db").is_absolute());
        assert!(!path("~/b.db").to_string_lossy().contains('~'));
    }

    #[test]
    fn paths_that_make_no_sense_are_refused() {
        for rest in ["", "//", "//host/a.db", ":memory:", "/a/", "a\0b"] {
            let error = path_of(rest).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{rest:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_made_belongs_to_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = prepare(&folder.path().join("x/y/locks.db")).unwrap();
        make_file(&path);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        #[cfg(target_os = "linux")]
        assert_eq!(mode(&path), 0o600);
        assert!(prepare(folder.path()).is_err());
    }
}
