//! Writes `interop/redisson/golden/<version>.json` anew. Look at the difference before it is committed: it is what
//! Redisson does differently now, or what was asked of it differently.

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
