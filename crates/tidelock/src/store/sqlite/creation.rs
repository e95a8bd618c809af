//! Creates the files of a lock file with the right permissions, and opens `-lock`.

use std::fs::File;
use std::path::Path;

use crate::store::sqlite::files::Id;

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
/// Never opens a file that others can find. On POSIX, closing any descriptor of a file drops all locks that this process
/// has on it, including those that SQLite holds through another connection.
#[cfg(target_os = "linux")]
pub(crate) fn make_file(path: &Path, rights: u32) -> Option<Id> {
    make(path, rights, None)
}

/// Creates a file beside `main`, with the same permissions.
#[cfg(target_os = "linux")]
pub(crate) fn make_companion(path: &Path, main: &Path) -> Option<Id> {
    use std::os::unix::fs::MetadataExt;
    // A file created by root would otherwise belong to root, and the owner of the lock file could not open it. SQLite
    // does the same.
    let owner = main
        .metadata()
        .ok()
        .filter(|_| rustix::process::geteuid().is_root());
    let owner = owner.map(|meta| (meta.uid(), meta.gid()));
    make(path, rights_of(main), owner)
}

/// A user and a group.
#[cfg(target_os = "linux")]
type FileOwner = (u32, u32);

#[cfg(target_os = "linux")]
fn make(path: &Path, rights: u32, owner: Option<FileOwner>) -> Option<Id> {
    use rustix::fs::{AtFlags, CWD, RenameFlags, renameat_with, unlinkat};
    use std::io::ErrorKind::{InvalidInput, Unsupported};
    if Id::of(path).is_some() {
        return None;
    }
    // We rename the file when it is ready. Otherwise a user of the same group could find it before its permissions are
    // set, and fail to open it.
    let new = path.with_file_name(format!(".{}.new", uuid::Uuid::new_v4()));
    let made = prepare(&new, rights, owner).and_then(|()| {
        let id = Id::of(&new);
        renameat_with(CWD, &new, CWD, path, RenameFlags::NOREPLACE)?;
        Ok(id)
    });
    let error = match made {
        Ok(id) => return id,
        Err(error) => error,
    };
    let _ = unlinkat(CWD, &new, AtFlags::empty());
    if matches!(error.kind(), InvalidInput | Unsupported) {
        // This file system does not support a rename that never replaces.
        let _ = prepare_in_place(path, rights, owner);
    }
    None
}

/// Creates the file, and closes it before anybody can look for it by this name.
#[cfg(target_os = "linux")]
fn prepare(new: &Path, rights: u32, owner: Option<FileOwner>) -> std::io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
    let mut options = File::options();
    let file = options
        .write(true)
        .create_new(true)
        .mode(rights)
        .open(new)?;
    // The umask removed some permissions from the new file. We change the open file, not what the path leads to: another
    // user who may write the folder could replace the file by a link, and root would give that user a file of root.
    file.set_permissions(std::fs::Permissions::from_mode(rights))?;
    match owner {
        Some((user, group)) => fchown(&file, Some(user), Some(group)),
        None => Ok(()),
    }
}

/// As [`prepare`], for a name that others look for. A descriptor that can neither read nor write drops no locks when it
/// is closed.
#[cfg(target_os = "linux")]
fn prepare_in_place(path: &Path, rights: u32, owner: Option<FileOwner>) -> std::io::Result<()> {
    use rustix::fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid, chmodat, chownat, mknodat, openat,
    };
    use std::os::fd::AsRawFd;
    let mode = Mode::from_raw_mode(rights);
    mknodat(CWD, path, FileType::RegularFile, mode, 0)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    // Another user who may write the folder may have replaced the file since.
    if !is_just_made(&file.metadata()?) {
        return Ok(());
    }
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    chmodat(CWD, opened, mode, AtFlags::empty())?;
    if let Some((user, group)) = owner {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        chownat(&file, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

/// Whether this can be the file that this user has created just now.
#[cfg(target_os = "linux")]
fn is_just_made(meta: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = meta.uid() == rustix::process::geteuid().as_raw();
    own && meta.is_file() && meta.nlink() == 1 && meta.len() == 0
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

/// Opens our own `-lock` file beside the database. Never use this for the database itself, nor for the `-wal` and
/// `-shm` of SQLite: closing the descriptor would drop SQLite's locks.
///
/// Refuses a link, with an error of the kind `TooManyLinks`. Every user who may write the folder can put one there, and
/// this process would overwrite the file that the link leads to.
pub(crate) fn open_companion(path: &Path) -> std::io::Result<File> {
    let file = open_after_a_look(path)?;
    if has_one_name(&file.metadata()?) {
        Ok(file)
    } else {
        Err(is_link())
    }
}

/// We look at the file before we open it. Otherwise closing a hard link to `-shm` would drop SQLite's locks. A descriptor
/// that can neither read nor write drops none.
#[cfg(target_os = "linux")]
fn open_after_a_look(path: &Path) -> std::io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::os::fd::AsRawFd;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let seen = File::from(openat(CWD, path, flags, Mode::empty())?);
    if !has_one_name(&seen.metadata()?) {
        return Err(is_link());
    }
    // This is the file that we have looked at, whatever the path leads to by now. The path is for systems without /proc,
    // and its error is the one that people understand.
    let again = format!("/proc/self/fd/{}", seen.as_raw_fd());
    let opened = File::options().read(true).write(true).open(again);
    opened.or_else(|_| open_by_path(path))
}

#[cfg(not(target_os = "linux"))]
fn open_after_a_look(path: &Path) -> std::io::Result<File> {
    match path.symlink_metadata() {
        Ok(meta) if !has_one_name(&meta) => Err(is_link()),
        _ => open_by_path(path),
    }
}

fn open_by_path(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true);
    // On Linux, `make_companion` has already created it with the right permissions.
    options.create(!cfg!(target_os = "linux")).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    match options.open(path) {
        Err(_) if path.is_symlink() => Err(is_link()),
        opened => opened,
    }
}

fn is_link() -> std::io::Error {
    let why = "it is a symbolic link, has several hard links, or is no plain file";
    std::io::Error::new(std::io::ErrorKind::TooManyLinks, why)
}

/// Whether this is a plain file without further hard links. One that was removed just now has none at all.
#[cfg(unix)]
fn has_one_name(meta: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    meta.is_file() && meta.nlink() <= 1
}

#[cfg(not(unix))]
fn has_one_name(meta: &std::fs::Metadata) -> bool {
    meta.is_file()
}

/// True if the open file is still the one at this path.
#[cfg(unix)]
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(open), Ok(there)) => id(open) == id(there),
        _ => false,
    }
}

/// On these systems an open file cannot be removed.
#[cfg(not(unix))]
pub(crate) fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_belongs_to_its_owner_or_to_the_group_of_the_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        for (of_folder, of_file) in [
            (0o700, 0o600),
            (0o770, 0o600),
            (0o2770, 0o660),
            (0o2750, 0o640),
        ] {
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
        // On a file system without a rename that never replaces.
        let other = folder.path().join("a.db-shm");
        prepare_in_place(&other, 0o600, Some((12_345, 54_321))).unwrap();
        let meta = other.metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (12_345, 54_321));
    }

    #[test]
    fn a_file_that_is_created_under_its_own_name_has_these_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        for rights in [0o600, 0o660, 0o666] {
            prepare_in_place(&path, rights, None).unwrap();
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, rights);
            assert!(prepare_in_place(&path, 0o644, None).is_err(), "it is there");
            assert_eq!(rights_of(&path), rights);
            std::fs::remove_file(&path).unwrap();
        }
    }

    /// Another user of the folder may put it there, so that root gives a file away.
    #[test]
    fn a_link_at_the_name_of_a_new_file_is_not_followed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (path, target) = (folder.path().join("new"), folder.path().join("target"));
        std::fs::write(&target, "text").unwrap();
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        prepare(&path, 0o666, None).unwrap_err();
        prepare_in_place(&path, 0o666, None).unwrap_err();
        assert_eq!(rights_of(&target), 0o640);
        let error = open_companion(&path).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TooManyLinks, "{error}");
    }

    /// To close one that can read or write would drop the locks that SQLite has on a file of that name.
    #[test]
    fn a_file_that_is_created_under_its_own_name_is_not_opened_to_read_or_write() {
        use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.db");
        let watch = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        add_watch(&watch, folder.path(), WatchFlags::OPEN).unwrap();
        let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
        let mut opened = Reader::new(&watch, &mut buffer);
        prepare_in_place(&path, 0o600, None).unwrap();
        let none = opened.next().unwrap_err();
        assert_eq!(none, rustix::io::Errno::AGAIN);
        drop(File::open(&path).unwrap());
        opened.next().unwrap();
    }

    /// As on a system without `/proc`.
    #[test]
    fn a_companion_that_is_opened_by_its_path_is_neither_created_nor_a_link() {
        use std::io::ErrorKind::{NotFound, TooManyLinks};
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("lock"), "").unwrap();
        std::os::unix::fs::symlink(path("lock"), path("link")).unwrap();
        open_by_path(&path("lock")).unwrap();
        for (name, kind) in [("link", TooManyLinks), ("missing", NotFound)] {
            let error = open_by_path(&path(name)).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
        assert!(!path("missing").exists());
    }

    /// Another user may have put something else there, to be given it by root.
    #[test]
    fn only_an_own_empty_file_with_one_name_counts_as_the_new_one() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let counts = |name: &str| is_just_made(&path(name).symlink_metadata().unwrap());
        std::fs::write(path("new"), "").unwrap();
        assert!(counts("new"));
        std::fs::write(path("text"), "text").unwrap();
        std::fs::write(path("two names"), "").unwrap();
        std::fs::hard_link(path("two names"), path("other name")).unwrap();
        std::os::unix::fs::symlink(path("new"), path("link")).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, path("pipe").as_path(), FileType::Fifo, mode, 0).unwrap();
        for name in ["text", "two names", "link", "pipe"] {
            assert!(!counts(name), "{name}");
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path("new"), Some(12_345), None).unwrap();
            assert!(!counts("new"), "it belongs to another user");
        }
    }

    #[test]
    fn a_file_that_was_replaced_or_removed_is_no_longer_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("lock"), folder.path().join("other"));
        std::fs::write(&path, "").unwrap();
        let file = File::open(&path).unwrap();
        assert!(is_at(&file, &path));
        std::fs::write(&other, "").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(!is_at(&file, &path));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_at(&file, &path));
    }
}
