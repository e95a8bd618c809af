//! What a released version left in a store is understood by this one, and this version leaves the same. `compat/VERSION` has
//! the keys and tables of each version; `TIDELOCK_WRITE_COMPAT=1 cargo test -p real_servers --test compat` records them.

mod mask;
mod recording;
mod scenario;
mod stands;

use anyhow::{Result, ensure};

use crate::mask::masked;
use crate::recording::Recording;
use crate::stands::Stand;
use crate::stands::etcd::Etcd;
use crate::stands::redis::{Plain, Redis};
use crate::stands::sql::{MySql, Postgres};
use crate::stands::sqlite::File;
use crate::stands::zookeeper::ZooKeeper;

/// A client of this version works on what the last released version left.
async fn understands<S: Stand>() -> Result<()> {
    let kept = Recording::kept(S::NAME)?;
    let stand = S::start()?;
    stand.load(&kept.text, kept.age()?)?;
    scenario::is_understood(&stand.url(), &kept.known, S::HAS).await
}

/// A client of the last released version would find what it would have written itself. If it should find something else, an
/// older client must still understand it: see docs/upgrading.md, and record again.
async fn leaves_the_same<S: Stand>() -> Result<()> {
    let stand = S::start()?;
    let left = scenario::fill(&stand.url(), S::HAS).await?;
    if std::env::var_os("TIDELOCK_WRITE_COMPAT").is_some() {
        return Recording::new(&stand.dump()?, left).write(S::NAME);
    }
    let kept = Recording::kept(S::NAME)?;
    // Read by the same tools: those of another version of the server write the same contents in another form.
    let other = S::start()?;
    other.load(&kept.text, kept.age()?)?;
    let before = masked(&other.dump()?)?;
    let now = Recording::new(&stand.dump()?, left);
    let after = masked(&now.text)?;
    let gone: Vec<_> = before.iter().filter(|it| !after.contains(it)).collect();
    let new: Vec<_> = after.iter().filter(|it| !before.contains(it)).collect();
    ensure!(
        before == after,
        "{} left {gone:#?}\nthis version leaves {new:#?}",
        kept.version
    );
    Ok(())
}

macro_rules! stores {
    ($($module:ident: $stand:ty),+ $(,)?) => {$(
        mod $module {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn what_the_last_release_left_is_understood() -> Result<()> {
                understands::<$stand>().await
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn this_version_leaves_what_the_last_release_left() -> Result<()> {
                leaves_the_same::<$stand>().await
            }
        }
    )+};
}

stores! {
    redis: Redis,
    redis_plain: Plain,
    sqlite: File,
    postgres: Postgres,
    mysql: MySql,
    etcd: Etcd,
    zookeeper: ZooKeeper,
}
