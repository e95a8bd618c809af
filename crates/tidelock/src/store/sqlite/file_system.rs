//! The file system of the lock file. SQLite needs locks and shared memory that all its users share. Over a network or
//! into a virtual machine they are not shared, so two processes could hold one lock; we refuse such file systems.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};

/// The known facts about the file system of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// The type by its system name. Empty: unknown.
    pub(crate) kind: String,
}

/// Network and cluster file systems, and folders shared with the host of a virtual machine, by their kernel names.
const REMOTE: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "smb2",
    "ncpfs",
    "afs",
    "coda",
    "9p",
    "virtiofs",
    "vboxsf",
    "vmhgfs",
    "prl_fs",
    "drvfs",
    "ceph",
    "lustre",
    "gpfs",
    "beegfs",
    "beegfs_nodev",
    "glusterfs",
    "gfs2",
    "gfs",
    "ocfs2",
    "orangefs",
    "pvfs2",
    "panfs",
    "mmfs",
    "fakeowner",
    "davfs",
    "webdav",
    "afpfs",
];

/// File systems in user space with local data. Any other may be remote: sshfs, gcsfuse, Docker's shares.
const LOCAL_FUSE: &[&str] = &[
    "fuseblk",
    "fuse.fuse-overlayfs",
    "fuse.bindfs",
    "fuse.gocryptfs",
    "fuse.encfs",
    "fuse.ext2",
    "fuse.mergerfs",
    "fuse.ntfs-3g",
];

/// Magic numbers of `statfs`, in case `/proc` cannot be read.
#[cfg(any(target_os = "linux", test, feature = "fuzzing"))]
const MAGIC: &[(u64, &str)] = &[
    (0x6969, "nfs"),
    (0x517b, "smbfs"),
    (0xfe53_4d42, "smb2"),
    (0xff53_4d42, "cifs"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x0bd0_0bd0, "lustre"),
    (0x786f_4256, "vboxsf"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0x2003_0528, "orangefs"),
    (0xaad7_aaea, "panfs"),
    (0x6573_5546, "fuse"),
];

impl FileSystem {
    /// Fails on an unsuitable file system. The error names the file system, the reason and an alternative.
    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        let fuse = self.kind.starts_with("fuse") && !LOCAL_FUSE.contains(&self.kind.as_str());
        if !fuse && !REMOTE.contains(&self.kind.as_str()) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported).because(format!(
            "{} is on a file system of type {}, which is shared over a network, with a virtual machine's host or by a program in user space: \
             SQLite's locks do not hold across it, and two processes could have the same lock. \
             Put the file on a local disk, or use a store that is made for several machines, such as redis://",
            path.display(),
            self.kind
        )))
    }
}

/// Refuses a file that two processes may see differently.
pub(crate) fn check(file: &Path) -> Result<()> {
    if is_mount_point(file) {
        return Err(Error::new(ErrorKind::Unsupported).because(format!(
            "{} is mounted without its folder: the -wal and -shm files beside it would not be shared, and two processes \
             could have the same lock. Mount the folder instead",
            file.display()
        )));
    }
    of(file.parent().unwrap_or(file)).check(file)
}

/// True if the file itself is a mount point. This is a common mistake with containers.
#[cfg(target_os = "linux")]
fn is_mount_point(file: &Path) -> bool {
    std::fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| lists_point(&mounts, file))
}

#[cfg(not(target_os = "linux"))]
fn is_mount_point(_file: &Path) -> bool {
    false
}

#[cfg(any(target_os = "linux", test, feature = "fuzzing"))]
pub(crate) fn lists_point(mountinfo: &str, file: &Path) -> bool {
    let mut points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points.any(|point| Path::new(&unescaped(point)) == file)
}

/// The free bytes for unprivileged users on the file system of this file.
#[cfg(unix)]
pub(crate) fn free_space(file: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(file.parent()?).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
pub(crate) fn free_space(_file: &Path) -> Option<u64> {
    None
}

/// The bytes that a few hundred transactions need.
const NEEDED_SPACE: u64 = 1 << 20;

/// True if less space is left than a few hundred transactions need.
pub(crate) fn is_full(file: &Path) -> bool {
    free_space(file).is_some_and(is_too_little)
}

fn is_too_little(free: u64) -> bool {
    free < NEEDED_SPACE
}

/// The file system of a folder.
#[cfg(target_os = "linux")]
pub(crate) fn of(folder: &Path) -> FileSystem {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(folder).ok().map(|meta| {
        let device = meta.dev();
        format!(
            "{}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        )
    });
    let listed = std::fs::read_to_string("/proc/self/mountinfo")
        .ok()
        .and_then(|mounts| listed(&mounts, folder, device.as_deref()));
    let kind = listed.unwrap_or_else(|| {
        let magic = rustix::fs::statfs(folder).map_or(0, |found| found.f_type);
        #[allow(
            clippy::unnecessary_fallible_conversions,
            clippy::useless_conversion,
            reason = "unsigned or of 32 bits on some systems"
        )]
        let magic = i64::try_from(magic).unwrap_or(0);
        by_number(magic).to_owned()
    });
    FileSystem { kind }
}

/// We read the file system type only on Linux.
#[cfg(not(target_os = "linux"))]
pub(crate) fn of(_folder: &Path) -> FileSystem {
    FileSystem {
        kind: String::new(),
    }
}

#[cfg(any(target_os = "linux", test, feature = "fuzzing"))]
fn by_number(magic: i64) -> &'static str {
    // Where the kernel's word has 32 bits, a number above 0x7fff_ffff arrives as a negative one.
    let magic = magic.cast_unsigned() & 0xffff_ffff;
    MAGIC
        .iter()
        .find(|(number, _)| *number == magic)
        .map_or("", |(_, kind)| kind)
}

/// Returns the type of the mount that contains a folder. Of all mounts that contain it, we prefer one with the folder's
/// device number, because a later mount over it has another one. Of these we take the innermost and newest.
#[cfg(any(target_os = "linux", test, feature = "fuzzing"))]
pub(crate) fn listed(mountinfo: &str, folder: &Path, device: Option<&str>) -> Option<String> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, system) = line.split_once(" - ")?;
            let mount: Vec<&str> = mount.split(' ').collect();
            let point = unescaped(mount.get(4)?);
            let ours = device == mount.get(2).copied();
            folder.starts_with(&point).then(|| {
                (
                    ours,
                    point.len(),
                    system.split(' ').next().unwrap_or_default(),
                )
            })
        })
        .max_by_key(|(ours, length, _)| (*ours, *length))
        .map(|(_, _, kind)| kind.to_owned())
}

/// Decodes escapes in a mount point, such as `\040` for a space.
#[cfg(any(target_os = "linux", test, feature = "fuzzing"))]
pub(crate) fn unescaped(point: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(point.to_owned(), |text, (code, is)| text.replace(code, is))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw
31 22 0:40 / /home/ann rw,relatime - nfs4 filer:/home rw,vers=4.2
32 22 0:41 / /mnt/my\\040share rw - cifs //filer/share rw
33 22 0:42 / /mnt/ssh rw - fuse.sshfs ann@host: rw
34 22 0:43 / /mnt/ntfs rw - fuseblk /dev/sdb1 rw
35 22 0:44 / /vagrant rw - vboxsf vagrant rw
36 22 0:45 / /mnt/wsl rw - 9p C:\\134 rw
37 22 0:46 / /mnt/vm rw - virtiofs share rw
38 22 0:47 / /mnt/odd rw - fuse.gcsfuse bucket rw
39 22 0:48 / /merged rw - overlay overlay rw,lowerdir=/a,upperdir=/b,workdir=/c
40 22 0:49 / /merged/data rw - ceph mon:/ rw
41 22 0:50 /sub /pool rw - btrfs /dev/vdb rw
42 22 0:51 / /twice rw - nfs old:/ rw
43 22 0:52 / /twice rw - xfs /dev/vdc rw
44 22 0:53 / /mnt/vmware rw - fuse.vmhgfs-fuse vmhgfs-fuse rw
45 22 0:54 / /mnt/gluster rw - fuse.glusterfs host:/vol rw
";

    fn judge(folder: &str, device: Option<&str>) -> (String, bool) {
        let kind = listed(MOUNTS, Path::new(folder), device).unwrap();
        let volume = FileSystem { kind };
        let fits = volume.check(Path::new(folder)).is_ok();
        (volume.kind, fits)
    }

    #[test]
    fn a_lock_file_on_a_shared_file_system_is_refused() {
        for (folder, kind, fits) in [
            ("/var/lib/shop", "ext4", true),
            ("/dev/shm", "tmpfs", true),
            ("/dev/shmoo", "ext4", true),
            ("/home/ann/locks", "nfs4", false),
            ("/mnt/my share/x", "cifs", false),
            ("/mnt/ssh", "fuse.sshfs", false),
            ("/mnt/ntfs", "fuseblk", true),
            ("/vagrant", "vboxsf", false),
            ("/mnt/wsl/Users", "9p", false),
            ("/mnt/vm", "virtiofs", false),
            ("/mnt/odd", "fuse.gcsfuse", false),
            ("/merged/x", "overlay", true),
            ("/merged/data", "ceph", false),
            ("/pool", "btrfs", true),
            ("/mnt/vmware", "fuse.vmhgfs-fuse", false),
            ("/mnt/gluster", "fuse.glusterfs", false),
        ] {
            assert_eq!(judge(folder, None), (kind.to_owned(), fits), "{folder}");
        }
    }

    #[test]
    fn the_device_tells_which_of_two_mounts_in_one_place_it_is() {
        assert_eq!(judge("/twice", Some("0:52")), ("xfs".to_owned(), true));
        assert_eq!(judge("/twice", Some("0:51")), ("nfs".to_owned(), false));
        assert_eq!(judge("/twice", None).0, "xfs");
        // A btrfs subvolume has a device number that no mount shows.
        assert_eq!(judge("/pool/sub", Some("0:99")).0, "btrfs");
        // The device number identifies a folder hidden under a mount point.
        assert_eq!(judge("/merged/data", Some("254:0")).0, "ext4");
    }

    #[test]
    fn a_disk_without_room_for_more_transactions_is_full() {
        assert!(is_too_little(NEEDED_SPACE - 1));
        assert!(!is_too_little(NEEDED_SPACE));
    }

    #[cfg(unix)]
    #[test]
    fn the_free_space_of_a_folder_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let free = free_space(&folder.path().join("locks.db"));
        assert!(free.is_some_and(|free| free > 1), "{free:?}");
    }

    #[test]
    fn a_file_that_is_mounted_without_its_folder_is_told() {
        let mounts = format!("{MOUNTS}46 22 254:0 /srv/l.db /app/l.db rw - ext4 /dev/vda rw\n");
        assert!(lists_point(&mounts, Path::new("/app/l.db")));
        assert!(!lists_point(&mounts, Path::new("/srv/l.db")));
    }

    #[test]
    fn without_proc_the_number_decides() {
        for (magic, kind) in [
            (0x6969, "nfs"),
            (0xff53_4d42, "cifs"),
            (i64::from(0xff53_4d42_u32.cast_signed()), "cifs"),
            (0x6573_5546, "fuse"),
            (0xef53, ""),
        ] {
            assert_eq!(by_number(magic), kind);
        }
        assert!(
            FileSystem {
                kind: "fuse".to_owned()
            }
            .check(Path::new("/x"))
            .is_err()
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machines_own_folders_have_a_known_type() {
        assert!(!of(Path::new("/proc")).kind.is_empty());
        assert_eq!(of(Path::new("/proc")).kind, "proc");
    }
}
