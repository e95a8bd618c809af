//! What operators ask a lock file.

use std::sync::Arc;

use crate::error::Result;
use crate::snapshot::{ClientInfo, Finding, Snapshot};
use crate::store::sqlite::connection::{Database, Durable};
use crate::store::sqlite::{Sqlite, doctor, inspect, queued, sights};
use crate::store::{BoxFuture, CLIENT_INFO_TTL, ClientId, Name, Operate, Page};

impl Operate for Sqlite {
    fn inspect<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Snapshot>> {
        let name = name.clone();
        Box::pin(self.read(move |view| inspect::snapshot(view, name.as_str())))
    }

    fn list<'a>(&'a self, pattern: &'a str, after: Option<&'a str>) -> BoxFuture<'a, Result<Page>> {
        let (pattern, after) = (pattern.to_owned(), after.map(str::to_owned));
        Box::pin(self.read(move |view| inspect::page(view, &pattern, after.as_deref())))
    }

    fn force_release<'a>(
        &'a self,
        name: &'a Name,
        seen: Option<&'a Snapshot>,
    ) -> BoxFuture<'a, Result<bool>> {
        let (which, seen) = (name.clone(), seen.cloned());
        Box::pin(async move {
            let force = move |from: &mut Database| queued::force(from, &which, seen.as_ref());
            let (held, next) = self.worker.call(force).await?;
            self.wake(name, &next, held);
            Ok(held)
        })
    }

    fn announce<'a>(
        &'a self,
        client: &'a ClientId,
        info: Option<&'a ClientInfo>,
    ) -> BoxFuture<'a, Result<()>> {
        let (client, info) = (client.clone(), info.cloned());
        Box::pin(self.worker.call(move |database| {
            let Some(info) = &info else {
                return database.write(Durable::No, |view| view.retract(&client));
            };
            database.write(Durable::No, |view| {
                view.announce(&client, info, CLIENT_INFO_TTL)
            })?;
            sights::remember(database, None);
            Ok(())
        }))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Finding>>> {
        Box::pin(self.worker.call(|database| {
            let paths = Arc::clone(&database.setting.paths);
            Ok(doctor::examine(&paths, database.connected()?))
        }))
    }
}
