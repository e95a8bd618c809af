//! Records `interop/redisson/golden/<version>.json` again. Review the diff before you commit it: it shows what Redisson
//! does differently now, or which steps of the recording changed.

use std::fs;

use testkit::golden;
use testkit::java::RedissonVersion;

fn main() -> anyhow::Result<()> {
    for version in RedissonVersion::ALL {
        let path = golden::path(version);
        fs::write(&path, golden::record(version)?.to_text()?)?;
        println!("{}", path.display());
    }
    Ok(())
}
