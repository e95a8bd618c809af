//! Elections, jobs that run once per slot, barriers, and the queues of fair locks, in several processes on every store: shifted
//! tickers, wrong clocks, processes that are killed or frozen, rolling restarts.

mod barrier;
mod election;
mod emptied;
mod frozen;
mod killed;
mod queue;
mod slots;
mod store;

/// A test for each of these stores.
macro_rules! on {
    ($promise:path: $($store:ident)+) => {
        $(
            #[test]
            fn $store() -> anyhow::Result<()> {
                $promise(&crate::store::$store()?)
            }
        )+
    };
    (full: $promise:path: $($store:ident)+) => {
        $(
            #[test]
            #[ignore = "takes minutes; cargo xtask full"]
            fn $store() -> anyhow::Result<()> {
                $promise(&crate::store::$store()?)
            }
        )+
    };
}
pub(crate) use on;
