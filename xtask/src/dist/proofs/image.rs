use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::installed::ALONE;
use crate::dist::image::{DESCRIPTION, USER};
use crate::dist::{Release, empty, scratch, script, sha256};
use crate::sh::{self, cargo};

/// Unpacks the archive as a registry's client would, and follows the digests from the index to the layer.
pub(crate) fn layout(release: &Release) -> Result<String> {
    let folder = scratch("image-read");
    empty(&folder)?;
    let archive = release.artefact("-image.tar")?;
    let unpack = "tar -xf \"$FROM\" -C \"$TO\"";
    script(unpack, &[("FROM", &archive), ("TO", &folder)])?;
    let index = read(&folder.join("index.json"))?;
    let manifest_file = blob(&folder, at(&index, "/manifests/0")?)?;
    let manifest = read(&manifest_file)?;
    let config = read(&blob(&folder, at(&manifest, "/config")?)?)?;
    ensure!(at(&config, "/config/User")? == USER, "it runs as root");
    for labels in [
        at(&config, "/config/Labels")?,
        at(&manifest, "/annotations")?,
    ] {
        ensure!(labels == &of_the_crate()?, "other labels: {labels}");
    }
    let layer = blob(&folder, at(&manifest, "/layers/0")?)?;
    let tar = folder.join("layer.tar");
    let root = folder.join("root");
    fs::create_dir_all(&root)?;
    let unpack = "gzip -dc \"$LAYER\" > \"$TAR\"; tar -xpf \"$TAR\" -C \"$ROOT\"";
    script(unpack, &[("LAYER", &layer), ("TAR", &tar), ("ROOT", &root)])?;
    let unpacked = format!("sha256:{}", sha256(&tar)?);
    ensure!(
        at(&config, "/rootfs/diff_ids/0")? == &Value::from(unpacked),
        "the layer is not the one that the configuration names"
    );
    let authorities = fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt"))?;
    ensure!(authorities.contains("BEGIN CERTIFICATE"), "no authorities");
    let digest = sha256(&manifest_file)?;
    Ok(format!("sha256:{}…", digest.get(..12).unwrap_or(&digest)))
}

/// The demo with nothing but the files of the image, as the image's user, without a network.
pub(crate) fn demo(release: &Release) -> Result<String> {
    let run = format!(
        "mkdir -p \"$ROOT/proc\"
        {ALONE} --mount-proc=\"$ROOT/proc\" chroot --userspec={USER} \"$ROOT\" /usr/bin/tidelock \
            demo --store sqlite:/tmp/locks.db --stock 100 2>&1 | grep 'with fencing' > /dev/null"
    );
    script(&run, &[("ROOT", &root(release)?)])?;
    Ok(String::new())
}

/// A static glibc could not look up a name here: it would need files of the machine's own glibc.
pub(crate) fn by_name(release: &Release) -> Result<String> {
    let root = root(release)?;
    fs::write(root.join("etc/hosts"), "127.0.0.1 locks.internal\n")?;
    let run = format!(
        "{ALONE} --mount-proc=\"$ROOT/proc\" bash -euo pipefail -c '
            ip link set lo up
            redis-server --port 6379 --save \"\" > /dev/null &
            for i in {{1..600}}; do redis-cli ping > /dev/null 2>&1 && break; sleep 0.05; done
            chroot --userspec={USER} \"$ROOT\" /usr/bin/tidelock --store redis://locks.internal run job -- /usr/bin/tidelock --version | sed -n 1p'"
    );
    let told = script(&run, &[("ROOT", &root)])?;
    Ok(told.trim().to_owned())
}

/// The labels that the image must have, from what cargo knows of the command's crate. Whoever changes the licence or the
/// version there changes the image too.
fn of_the_crate() -> Result<Value> {
    let metadata = sh::quiet(cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let crates = at(&metadata, "/packages")?.as_array();
    let mut crates = crates.context("no list of crates")?.iter();
    let ours = crates.find(|one| one.get("name").is_some_and(|name| name == "tidelock-cli"));
    let ours = ours.context("no tidelock-cli")?;
    Ok(json!({
        "org.opencontainers.image.title": "tidelock",
        "org.opencontainers.image.description": DESCRIPTION,
        "org.opencontainers.image.version": at(ours, "/version")?,
        "org.opencontainers.image.licenses": at(ours, "/license")?,
        "org.opencontainers.image.documentation": at(ours, "/documentation")?,
    }))
}

/// The files of the image, which [`layout`] has unpacked.
fn root(_: &Release) -> Result<PathBuf> {
    let root = scratch("image-read/root");
    ensure!(root.is_dir(), "the image was not unpacked");
    Ok(root)
}

/// The file of a descriptor, with its size and digest checked.
fn blob(folder: &Path, descriptor: &Value) -> Result<PathBuf> {
    let digest = at(descriptor, "/digest")?.as_str().unwrap_or_default();
    let hex = digest.strip_prefix("sha256:").context("no SHA-256")?;
    let path = folder.join("blobs/sha256").join(hex);
    ensure!(sha256(&path)? == hex, "{} has other bytes", path.display());
    let size = fs::metadata(&path)?.len();
    ensure!(at(descriptor, "/size")? == &Value::from(size), "size");
    Ok(path)
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

fn at<'a>(value: &'a Value, pointer: &str) -> Result<&'a Value> {
    value
        .pointer(pointer)
        .with_context(|| format!("no {pointer}"))
}
