//! Where the lock file is, from URL to path, and with which rights its files are made.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::files::Id;
use crate::error::{Error, ErrorKind, Result};

/// What `sqlite:machine` means: the lock file of a machine, for the users of a group.
const MACHINE: &str = "/var/lib/tidelock/locks.db";

/// The path in what follows `sqlite:`. Taken literally, without escapes or options: `sqlite:locks.db` is relative to the
/// working folder at the time of connecting, `sqlite:/var/lib/x/locks.db` and `sqlite:///var/lib/x/locks.db` are absolute,
/// and `~/` at the start is the home folder, because no shell expands it behind a colon. `sqlite:machine` is the file that
/// the users of a machine share.
pub(super) fn path_of(rest: &str) -> Result<PathBuf> {
    if rest == "machine" {
        return Ok(PathBuf::from(MACHINE));
    }
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
    if path.contains(['?', '#']) {
        return Err(invalid(
            "sqlite: has no options, and a path with ? or # in it would be another lock file than the one without; write sqlite:PATH without them, \
             or rename the file"
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

/// The path without links: two ways to one file must be seen to be one. Makes no folder, because a mistyped path
/// would then be an empty store, in which every lock is free.
pub(super) fn resolve(path: &Path) -> Result<PathBuf> {
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

/// The administrator makes the folder that the users of a machine share: nobody else can say which group it is for.
#[cfg(unix)]
fn check_machine(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = path.parent().unwrap_or(path);
    let what = match std::fs::metadata(folder) {
        // Without setgid the files would belong to the group of the user who comes first. A folder that every user may write
        // is one in which every user may remove or replace them.
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

/// The rights of a new file in that folder: for its owner only, unless the folder is made for a group (setgid). Then also
/// for that group, whatever the umask of the user who comes first.
#[cfg(unix)]
pub(super) fn rights_in(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    let folder = file.parent().and_then(|folder| folder.metadata().ok());
    let mode = folder.map_or(0, |meta| meta.permissions().mode());
    let group = if mode & 0o2000 == 0 { 0 } else { mode & 0o060 };
    0o600 | group
}

/// The rights of a file, for those that are made beside it. SQLite does the same.
#[cfg(unix)]
pub(super) fn rights_of(file: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    let meta = file.metadata();
    meta.map_or(0o600, |meta| meta.permissions().mode() & 0o666)
}

#[cfg(not(unix))]
pub(super) fn rights_in(_file: &Path) -> u32 {
    0o600
}

#[cfg(not(unix))]
pub(super) fn rights_of(_file: &Path) -> u32 {
    0o600
}

/// Makes an empty file with exactly these rights, unless there is one. Returns which file it is, if it was made here. An
/// error is found again, and explained, when the file is opened.
///
/// Never opens the file: on POSIX, closing any descriptor of a file drops all locks this process has on it, also those
/// that SQLite holds through another connection.
#[cfg(target_os = "linux")]
pub(super) fn make_file(path: &Path, rights: u32) -> Option<Id> {
    make(path, |new| prepare(new, rights))
}

/// Makes a file beside that one, with the same rights.
#[cfg(target_os = "linux")]
pub(super) fn make_companion(path: &Path, main: &Path) -> Option<Id> {
    use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};
    use std::os::unix::fs::MetadataExt;
    make(path, |new| {
        // Made by root it would otherwise belong to root, and keep the owner of the lock file out. SQLite does the same.
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
    // The umask took some of the rights away.
    chmodat(CWD, path, mode, AtFlags::empty())
}

#[cfg(target_os = "linux")]
fn make(path: &Path, prepare: impl Fn(&Path) -> rustix::io::Result<()>) -> Option<Id> {
    use rustix::fs::{AtFlags, CWD, RenameFlags, renameat_with, unlinkat};
    if Id::of(path).is_some() {
        return None;
    }
    // It gets its name when it is ready: a user of the same group who found it in between could not open it.
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
        // A file system that cannot rename without replacing.
        let _ = prepare(path);
    }
    None
}

/// SQLite makes the file, with the rights the umask leaves.
#[cfg(not(target_os = "linux"))]
pub(super) fn make_file(_path: &Path, _rights: u32) -> Option<Id> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn make_companion(_path: &Path, _main: &Path) -> Option<Id> {
    None
}

/// Opens a file of our own beside the database. Not for the database itself, nor for what SQLite keeps beside it.
pub(super) fn open_companion(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true);
    // Elsewhere it has been made, with the right rights.
    options.create(!cfg!(target_os = "linux")).truncate(false);
    options.open(path)
}

/// That open file is the one at that path still.
#[cfg(unix)]
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), path.metadata()) {
        (Ok(open), Ok(there)) => id(open) == id(there),
        _ => false,
    }
}

/// An open file cannot be removed here.
#[cfg(not(unix))]
pub(super) fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

/// A file with two names has two places for its `-wal` and `-shm`: processes that use one name would not see those that
/// use the other.
#[cfg(unix)]
pub(super) fn refuse_links(path: &Path) -> Result<()> {
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
pub(super) fn refuse_links(_path: &Path) -> Result<()> {
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
    fn what_is_made_belongs_to_its_owner_or_to_the_group_of_the_folder() {
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
            // One that is there is left as it is.
            make_file(&path, 0o644);
            assert_eq!(rights_of(&path), of_file);
            std::fs::remove_file(&path).unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_root_makes_beside_a_file_belongs_to_the_owner_of_the_file() {
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
