//! The location of the lock file: resolves the URL to a path.

use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::store::url::no_options;

/// The path of `sqlite:machine`: the lock file of a machine, for the users of a group.
const MACHINE: &str = "/var/lib/tidelock/locks.db";

/// Bounds the symbolic links that lead to a new file, as the kernel does for an existing one.
const MOST_LINKS: usize = 40;

/// Parses the path after `sqlite:`. We take it literally, without escapes or options. `sqlite:locks.db` is relative to
/// the working folder at the time of connecting; `sqlite:/var/lib/x/locks.db` and `sqlite:///var/lib/x/locks.db` are
/// absolute. `~/` at the start is the home folder, because no shell expands it after a colon. `sqlite:machine` is the
/// file that the users of a machine share.
pub(crate) fn path_of(rest: &str) -> Result<PathBuf> {
    if rest == "machine" {
        return Ok(PathBuf::from(MACHINE));
    }
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            // The error does not repeat the URL: a URL with a host may also contain a password.
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
    no_options("sqlite", path)?;
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

/// Resolves symbolic links, so that two paths to one file become the same path. Creates no folder, because a mistyped
/// path would then be an empty store in which every lock is free.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf> {
    if path == Path::new(MACHINE) {
        check_machine(path)?;
    }
    if path.is_dir() {
        return Err(invalid(format!(
            "{} is a folder; name a file in it",
            path.display()
        )));
    }
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let path = target_of(path)?;
    let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else {
        return Err(invalid(format!(
            "{} is not the path of a file",
            path.display()
        )));
    };
    match folder.canonicalize() {
        Ok(folder) => Ok(folder.join(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(invalid(format!(
            "there is no folder {}; correct the path, or make the folder (it is not made for you)",
            folder.display()
        ))),
        Err(error) => Err(Error::new(ErrorKind::Refused)
            .because(format!("the folder {} cannot be used", folder.display()))
            .caused_by(error)),
    }
}

/// Follows symbolic links to a file that does not exist yet. SQLite creates the file at the end of them, with its
/// companions beside it. If ours were beside the link, a process that finds the file there could not use it.
fn target_of(path: &Path) -> Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(next) = target.read_link() else {
            return Ok(target);
        };
        target.pop();
        target.push(next);
    }
    Err(invalid(format!(
        "{} leads through more than {MOST_LINKS} symbolic links, perhaps in a circle; name the file itself",
        path.display()
    )))
}

/// Checks the shared folder of the machine. The administrator creates it, because only the administrator knows which
/// group may use it.
#[cfg(unix)]
fn check_machine(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().unwrap_or(path);
    let what = match std::fs::metadata(folder) {
        // Without setgid, the files would belong to the group of the first user. In a folder that every user may write,
        // every user may remove or replace them.
        Ok(meta) if meta.permissions().mode() & 0o2072 == 0o2070 => return Ok(()),
        Ok(meta) => format!("has the rights {:o}", meta.permissions().mode() & 0o7777),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "is not there".to_owned(),
        Err(error) => format!("cannot be looked at ({error})"),
    };
    Err(Error::new(ErrorKind::Refused).because(format!(
        "the lock file of this machine has not been set up: its folder {0} {what}. Run once as root, with the group whose users share the locks: \
         install -d -m 2770 -g GROUP {0}",
        folder.display()
    )))
}

#[cfg(not(unix))]
fn check_machine(_path: &Path) -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported).because(
        "this system has no sqlite:machine; name a file that its users may all write: sqlite:PATH",
    ))
}

/// Why this user may not create files in the folder of this file. `None`: it may, or we cannot tell.
#[cfg(unix)]
pub(crate) fn may_not_make_files_beside(path: &Path) -> Option<std::io::Error> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    let checked = accessat(CWD, path.parent()?, rights, AtFlags::EACCESS);
    checked.err().map(Into::into)
}

#[cfg(not(unix))]
pub(crate) fn may_not_make_files_beside(_path: &Path) -> Option<std::io::Error> {
    None
}

/// Refuses a file with several hard links. Each name has its own `-wal` and `-shm`, so processes that use different
/// names would not see each other.
#[cfg(unix)]
pub(crate) fn refuse_links(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    match path.metadata().map(|meta| meta.nlink()) {
        Ok(links) if links > 1 => Err(Error::new(ErrorKind::Unsupported).because(format!(
            "the file has {links} hard links, and two processes that use different ones could have the same lock. Remove the others \
             (find them with: find / -xdev -samefile FILE)"
        ))),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
pub(crate) fn refuse_links(_path: &Path) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_literally() {
        let path = |rest| path_of(rest).unwrap();
        assert_eq!(path("/a/b c%20&x.db"), Path::new("/a/b c%20&x.db"));
        assert_eq!(path("///a/b.db"), Path::new("/a/b.db"));
        assert_eq!(path("b.db"), std::env::current_dir().unwrap().join("b.db"));
        assert!(path("~/b.db").is_absolute());
        assert!(!path("~/b.db").to_string_lossy().contains('~'));
        assert_eq!(path("machine"), Path::new(MACHINE));
        let here = std::env::current_dir().unwrap().join("machine");
        assert_eq!(path("./machine"), here);
    }

    #[test]
    fn paths_that_make_no_sense_are_refused() {
        for rest in [
            "",
            "//",
            "//host/a.db",
            ":memory:",
            "/a/",
            "a\0b",
            "a.db?mode=ro",
            "a.db#1",
        ] {
            let error = path_of(rest).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOptions, "{rest:?}");
        }
    }

    #[test]
    fn no_folder_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("typo");
        let error = resolve(&below.join("locks.db")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
        assert!(error.to_string().contains("there is no folder"), "{error}");
        assert!(!below.exists());
        assert!(resolve(folder.path()).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_cannot_be_used_is_told_from_one_that_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = resolve(&file.join("below/locks.db")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }

    /// Otherwise the files would belong to the group of the first user, or every user could remove them.
    #[cfg(unix)]
    #[test]
    fn the_folder_of_the_machine_is_for_one_group() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        for (rights, fits) in [
            (0o2770, true),
            (0o2775, true),
            (0o2777, false),
            (0o2750, false),
            (0o770, false),
        ] {
            let permissions = std::fs::Permissions::from_mode(rights);
            std::fs::set_permissions(folder.path(), permissions).unwrap();
            let checked = check_machine(&path);
            assert_eq!(checked.is_ok(), fits, "{rights:o}");
            if let Err(error) = checked {
                let said = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Refused, "{said}");
                assert!(said.contains(&format!("rights {rights:o}.")), "{said}");
            }
        }
        std::fs::write(&path, "").unwrap();
        for (path, why) in [
            (folder.path().join("missing/locks.db"), "is not there"),
            (path.join("below/locks.db"), "cannot be looked at"),
        ] {
            let said = check_machine(&path).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_user_without_rights_to_a_folder_hears_why() {
        use std::io::ErrorKind::{NotFound, PermissionDenied};
        let folder = tempfile::tempdir().unwrap();
        let why = |name: &str| may_not_make_files_beside(&folder.path().join(name));
        assert!(why("locks.db").is_none());
        let missing = why("missing/locks.db").map(|error| error.kind());
        assert_eq!(missing, Some(NotFound));
        // Nobody may enter a file that is no program, not even root.
        std::fs::write(folder.path().join("file"), "").unwrap();
        let denied = why("file/locks.db").map(|error| error.kind());
        assert_eq!(denied, Some(PermissionDenied));
    }
}
