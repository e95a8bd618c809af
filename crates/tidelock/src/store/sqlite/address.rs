//! The location of the lock file: resolves the URL to a path, and creates the files with the right permissions.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::store::sqlite::files::Id;
use crate::store::url::no_options;

/// The path of `sqlite:machine`: the lock file of a machine, for the users of a group.
const MACHINE: &str = "/var/lib/tidelock/locks.db";

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

/// The permissions of a new file in this folder: for its owner only, unless the folder has setgid. Then the group of
/// the folder has access too, regardless of the umask of the first user.
#[cfg(unix)]
pub(crate) fn rights_in(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    let folder = file.parent().and_then(|folder| folder.metadata().ok());
    let mode = folder.map_or(0, |meta| meta.permissions().mode());
    let group = if mode & 0o2000 == 0 { 0 } else { mode & 0o060 };
    0o600 | group
}

/// The permissions of a file, for the files created beside it. SQLite does the same.
#[cfg(unix)]
pub(crate) fn rights_of(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    let meta = file.metadata();
    meta.map_or(0o600, |meta| meta.permissions().mode() & 0o666)
}

#[cfg(not(unix))]
pub(crate) fn rights_in(_file: &Path) -> u32 {
    0o600
}

#[cfg(not(unix))]
pub(crate) fn rights_of(_file: &Path) -> u32 {
    0o600
}

/// Creates an empty file with exactly these permissions, unless one exists. Returns the identity of the file if this
/// call created it. Errors are ignored here: opening the file meets them again and explains them.
///
/// Never opens the file. On POSIX, closing any descriptor of a file drops all locks that this process has on it,
/// including those that SQLite holds through another connection.
#[cfg(target_os = "linux")]
pub(crate) fn make_file(path: &Path, rights: u32) -> Option<Id> {
    make(path, |new| prepare(new, rights))
}

/// Creates a file beside `main`, with the same permissions.
#[cfg(target_os = "linux")]
pub(crate) fn make_companion(path: &Path, main: &Path) -> Option<Id> {
    use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};
    use std::os::unix::fs::MetadataExt;
    make(path, |new| {
        // A file created by root would otherwise belong to root, and the owner of the lock file could not open it.
        // SQLite does the same.
        let owner = main
            .metadata()
            .ok()
            .filter(|_| rustix::process::geteuid().is_root());
        prepare(new, rights_of(main))?;
        owner.map_or(Ok(()), |meta| {
            let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
            chownat(CWD, new, Some(uid), Some(gid), AtFlags::empty())
        })
    })
}

#[cfg(target_os = "linux")]
fn prepare(path: &Path, rights: u32) -> rustix::io::Result<()> {
    use rustix::fs::{AtFlags, CWD, FileType, Mode, chmodat, mknodat};
    let mode = Mode::from_raw_mode(rights);
    mknodat(CWD, path, FileType::RegularFile, mode, 0)?;
    // The umask removed some permissions from the new file.
    chmodat(CWD, path, mode, AtFlags::empty())
}

#[cfg(target_os = "linux")]
fn make(path: &Path, prepare: impl Fn(&Path) -> rustix::io::Result<()>) -> Option<Id> {
    use rustix::fs::{AtFlags, CWD, RenameFlags, renameat_with, unlinkat};
    if Id::of(path).is_some() {
        return None;
    }
    // We rename the file when it is ready. Otherwise a user of the same group could find it before its permissions are
    // set, and fail to open it.
    let new = path.with_file_name(format!(".{}.new", uuid::Uuid::new_v4()));
    let made = prepare(&new).and_then(|()| {
        let id = Id::of(&new);
        renameat_with(CWD, &new, CWD, path, RenameFlags::NOREPLACE).map(|()| id)
    });
    let error = match made {
        Ok(id) => return id,
        Err(error) => error,
    };
    let _ = unlinkat(CWD, &new, AtFlags::empty());
    if error == rustix::io::Errno::INVAL || error == rustix::io::Errno::NOSYS {
        // This file system does not support a rename that never replaces.
        let _ = prepare(path);
    }
    None
}

/// SQLite creates the file, with the permissions that the umask leaves.
#[cfg(not(target_os = "linux"))]
pub(crate) fn make_file(_path: &Path, _rights: u32) -> Option<Id> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn make_companion(_path: &Path, _main: &Path) -> Option<Id> {
    None
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

/// Opens our own `-lock` file beside the database. Never use this for the database itself, nor for the `-wal` and
/// `-shm` of SQLite: closing the descriptor would drop SQLite's locks.
pub(crate) fn open_companion(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true);
    // On Linux, `make_companion` has already created it with the right permissions.
    options.create(!cfg!(target_os = "linux")).truncate(false);
    options.open(path)
}

/// True if the open file is still the one at this path.
#[cfg(unix)]
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), path.metadata()) {
        (Ok(open), Ok(there)) => id(open) == id(there),
        _ => false,
    }
}

/// On these systems an open file cannot be removed.
#[cfg(not(unix))]
pub(crate) fn is_at(_file: &File, _path: &Path) -> bool {
    true
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

    #[cfg(target_os = "linux")]
    #[test]
    fn a_new_file_belongs_to_its_owner_or_to_the_group_of_the_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        for (of_folder, of_file) in [(0o700, 0o600), (0o770, 0o600), (0o2770, 0o660)] {
            let rights = std::fs::Permissions::from_mode(of_folder);
            std::fs::set_permissions(folder.path(), rights).unwrap();
            make_file(&path, rights_in(&path));
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, of_file, "in {of_folder:o}");
            assert_eq!(rights_of(&path), of_file);
            // An existing file keeps its permissions.
            make_file(&path, 0o644);
            assert_eq!(rights_of(&path), of_file);
            std::fs::remove_file(&path).unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_root_creates_beside_a_file_belongs_to_its_owner() {
        use std::os::unix::fs::MetadataExt;
        if !rustix::process::geteuid().is_root() {
            eprintln!("LEFT OUT: only root can make files of other users");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (main, lock) = (folder.path().join("a.db"), folder.path().join("a.db-lock"));
        std::fs::write(&main, "").unwrap();
        std::os::unix::fs::chown(&main, Some(12_345), Some(54_321)).unwrap();
        let made = make_companion(&lock, &main);
        assert!(made.is_some() && made == Id::of(&lock));
        let meta = lock.metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (12_345, 54_321));
        assert_eq!(make_companion(&lock, &main), None, "it is there");
    }
}
