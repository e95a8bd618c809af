//! Archives and packages: the program, its man pages, its completions and its licences.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::build::Built;
use super::{Release, VERSION, empty, put, script};
use crate::sh::{self, command, root};

/// Every entry of an archive has the time of the commit and belongs to root, in the order of the names.
pub(super) const TAR: &str = "tar --sort=name --mtime=\"@$SOURCE_DATE_EPOCH\" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w";

/// A file of the template folder, filled in.
pub(super) fn filled(template: &str, values: &[(&str, &str)]) -> Result<String> {
    let path = root().join("xtask/dist").join(template);
    let mut text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    for (name, value) in values {
        text = text.replace(&format!("@{name}@"), value);
    }
    Ok(text)
}

/// The archive for those who unpack it by hand, and for Homebrew.
pub(super) fn archive(release: &Release, built: &Built) -> Result<()> {
    let name = format!("tidelock-{VERSION}-{}", built.target);
    let above = release.work.join("archive");
    let folder = above.join(&name);
    empty(&folder)?;
    put(&built.path, &folder.join("tidelock"))?;
    let command_crate = release.source().join("crates/tidelock-cli");
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        put(&command_crate.join(file), &folder.join(file))?;
    }
    for entry in fs::read_dir(command_crate.join("share"))? {
        let path = entry?.path();
        let is_page = path.extension().is_some_and(|it| it == "1");
        let file = path.file_name().context("a file without a name")?;
        let kind = if is_page { "man" } else { "completions" };
        put(&path, &folder.join(kind).join(file))?;
    }
    let to = release.out.join(format!("{name}.tar.gz"));
    let pack = format!("{TAR} -C \"$ABOVE\" -c {name} | gzip -9n > \"$TO\"");
    script(&pack, &[("ABOVE", &above), ("TO", &to)]).map(drop)
}

/// The files of an installed package. `zsh`: where the distribution keeps completions for it.
fn tree(release: &Release, built: &Built, folder: &Path, zsh: &str) -> Result<()> {
    empty(folder)?;
    put(&built.path, &folder.join("usr/bin/tidelock"))?;
    let crate_folder = release.source().join("crates/tidelock-cli");
    let share = crate_folder.join("share");
    let to = folder.join("usr/share");
    for entry in fs::read_dir(&share)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "1") {
            let file = path.file_name().context("a page without a name")?;
            put(&path, &to.join("man/man1").join(file))?;
        }
    }
    let completions = [
        ("tidelock.bash", "bash-completion/completions/tidelock"),
        ("_tidelock", zsh),
        ("tidelock.fish", "fish/vendor_completions.d/tidelock.fish"),
    ];
    for (from, place) in completions {
        put(&share.join(from), &to.join(place))?;
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        put(
            &crate_folder.join(licence),
            &to.join("doc/tidelock").join(licence),
        )?;
    }
    put(
        &release.source().join("CHANGELOG.md"),
        &to.join("doc/tidelock/changelog.md"),
    )?;
    let tidy = "gzip -9n \"$TREE\"/usr/share/man/man1/*.1; chmod -R u+rwX,go+rX,go-w \"$TREE\"; \
                find \"$TREE\" -exec touch -h -d \"@$SOURCE_DATE_EPOCH\" {} +";
    script(tidy, &[("TREE", folder)]).map(drop)
}

pub(super) fn deb(release: &Release) -> Result<()> {
    let folder = release.work.join("deb");
    let built = &release.dynamic;
    tree(release, built, &folder, "zsh/vendor-completions/_tidelock")?;
    let arch = sh::quiet(command("dpkg", &["--print-architecture"]))?;
    let arch = arch.trim();
    let glibc = glibc(&built.path)?;
    let control = filled(
        "control",
        &[("VERSION", VERSION), ("ARCH", arch), ("GLIBC", &glibc)],
    )?;
    fs::create_dir_all(folder.join("DEBIAN"))?;
    fs::write(folder.join("DEBIAN/control"), control)?;
    // dpkg takes the times of its own files from SOURCE_DATE_EPOCH, and those of ours from the files.
    let licence = "Licence: MIT or Apache-2.0, at your choice; the texts are beside this file.\n";
    fs::write(folder.join("usr/share/doc/tidelock/copyright"), licence)?;
    let to = release.out.join(format!("tidelock_{VERSION}-1_{arch}.deb"));
    let pack = "chmod -R u+rwX,go+rX,go-w \"$TREE\"; dpkg-deb --root-owner-group -Zxz --threads-max=1 --build \"$TREE\" \"$TO\"";
    script(pack, &[("TREE", &folder), ("TO", &to)]).map(drop)
}

/// The oldest glibc that has every symbol which the program uses.
fn glibc(path: &Path) -> Result<String> {
    let told = sh::quiet(command("objdump", &["-p", &path.to_string_lossy()]))?;
    let words = told.split_whitespace();
    let versions = words.filter_map(|word| word.strip_prefix("GLIBC_"));
    newest(versions).context("the program names no version of glibc")
}

/// The greatest of versions like `2.34`.
fn newest<'a>(versions: impl Iterator<Item = &'a str>) -> Option<String> {
    let numbers = |version: &str| -> Vec<u32> {
        version
            .split('.')
            .filter_map(|it| it.parse().ok())
            .collect()
    };
    versions.max_by_key(|it| numbers(it)).map(str::to_owned)
}

pub(super) fn rpm(release: &Release) -> Result<()> {
    let folder = release.work.join("rpm");
    empty(&folder)?;
    let files = folder.join("files");
    let built = &release.dynamic;
    tree(release, built, &files, "zsh/site-functions/_tidelock")?;
    let spec = filled(
        "tidelock.spec",
        &[("VERSION", VERSION), ("TREE", &files.to_string_lossy())],
    )?;
    let spec_file = folder.join("tidelock.spec");
    fs::write(&spec_file, spec)?;
    // Nothing of this machine in the package: no host name, no time but the commit's, no links by build id, no stripping.
    let pack = "rpmbuild -bb --quiet --define \"_topdir $FOLDER/top\" --define '_buildhost localhost' \
        --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
        --define '_build_id_links none' --define 'debug_package %{nil}' --define '__os_install_post %{nil}' \
        \"$SPEC\"; mv \"$FOLDER\"/top/RPMS/*/*.rpm \"$OUT\"";
    let variables = [
        ("FOLDER", &*folder),
        ("SPEC", &*spec_file),
        ("OUT", &*release.out),
    ];
    script(pack, &variables).map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_newest_version_is_found_by_its_numbers() {
        let all = ["2.9", "2.34", "2.2.5", "ABI_DT_RELR"];
        assert_eq!(super::newest(all.into_iter()).as_deref(), Some("2.34"));
        assert!(super::newest(std::iter::empty()).is_none());
    }
}
