//! The container image: an OCI layout of one layer, with the program that needs nothing else.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::packages::TAR;
use super::{Release, VERSION, empty, epoch, put, script, sha256};
use crate::sh::{self, command};

/// The user of the image. Not root: the command needs no right of root.
pub(super) const USER: &str = "65532:65532";
pub(super) const DESCRIPTION: &str =
    "Run a program under a distributed lock, and see who holds what";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Where the program looks for the authorities that it trusts.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

pub(super) fn write(release: &Release) -> Result<()> {
    let root = release.work.join("image-root");
    fill(release, &root)?;
    let layout = release.work.join("image");
    empty(&layout)?;
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let tar = release.work.join("layer.tar");
    // Home and /tmp belong to the user, everything else to root.
    let pack = format!(
        "{TAR} -C \"$ROOT\" --exclude=./tmp --exclude=./home/tidelock -cf \"$TAR\" . && \
        {} --owner=65532 --group=65532 -C \"$ROOT\" -rf \"$TAR\" ./home/tidelock ./tmp && gzip -9nk -f \"$TAR\"",
        TAR.replace(" --owner=0 --group=0", "")
    );
    script(&pack, &[("ROOT", &root), ("TAR", &tar)])?;
    let packed = tar.with_extension("tar.gz");
    let layer = blob(&blobs, &fs::read(&packed)?, LAYER)?;
    let config = json!({
        "architecture": architecture(&release.fixed.target),
        "os": "linux",
        "created": created()?,
        "config": {
            "User": USER,
            "Entrypoint": ["/usr/bin/tidelock"],
            "WorkingDir": "/home/tidelock",
            "Env": ["PATH=/usr/bin"],
            "Labels": labels(),
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(&tar)?)] },
    });
    let config = blob(&blobs, config.to_string().as_bytes(), CONFIG)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer],
        "annotations": labels(),
    });
    let manifest = blob(&blobs, manifest.to_string().as_bytes(), MANIFEST)?;
    let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
    fs::write(layout.join("index.json"), index.to_string())?;
    fs::write(
        layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    let to = release.out.join(format!("tidelock-{VERSION}-image.tar"));
    let pack = format!("{TAR} -C \"$LAYOUT\" -cf \"$TO\" .");
    script(&pack, &[("LAYOUT", &layout), ("TO", &to)]).map(drop)
}

/// The files of the image: the program, its user, the authorities, and a folder for temporary files.
fn fill(release: &Release, root: &Path) -> Result<()> {
    empty(root)?;
    put(&release.fixed.path, &root.join("usr/bin/tidelock"))?;
    put(Path::new(AUTHORITIES), &root.join(&AUTHORITIES[1..]))
        .context("install ca-certificates: the image has those of this machine")?;
    for folder in ["tmp", "home/tidelock"] {
        fs::create_dir_all(root.join(folder))?;
    }
    // The default store is in the home folder that the user database names.
    let user = "root:x:0:0::/:/\ntidelock:x:65532:65532::/home/tidelock:/\n";
    fs::write(root.join("etc/passwd"), user)?;
    Ok(())
}

/// Stores bytes under their digest, and returns the descriptor.
fn blob(blobs: &Path, bytes: &[u8], media: &str) -> Result<Value> {
    let new = blobs.join("new");
    fs::write(&new, bytes)?;
    let digest = sha256(&new)?;
    fs::rename(&new, blobs.join(&digest))?;
    Ok(json!({ "mediaType": media, "digest": format!("sha256:{digest}"), "size": bytes.len() }))
}

fn labels() -> Value {
    json!({
        "org.opencontainers.image.title": "tidelock",
        "org.opencontainers.image.description": DESCRIPTION,
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.documentation": "https://docs.rs/tidelock",
    })
}

fn created() -> Result<String> {
    let at = format!("@{}", epoch()?);
    let told = sh::quiet(command("date", &["-u", "-d", &at, "+%Y-%m-%dT%H:%M:%SZ"]))?;
    Ok(told.trim().to_owned())
}

/// The name that Go has for it, which the format uses.
fn architecture(target: &str) -> &str {
    match target.split('-').next() {
        Some("x86_64") => "amd64",
        Some("aarch64") => "arm64",
        other => other.unwrap_or("unknown"),
    }
}
