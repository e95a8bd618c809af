//! The databases: the statements that make their tables.

use std::time::Duration;

use anyhow::Result;
use testkit::servers::{MariaDb, PostgresServer};

use super::{Stand, WAITERS_LIVE};
use crate::scenario::Has;

pub(crate) struct Postgres(PostgresServer);

impl Stand for Postgres {
    const NAME: &'static str = "postgres";
    const HAS: Has = Has::ALL_SIDES;

    fn start() -> Result<Self> {
        Ok(Self(PostgresServer::start()?))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn dump(&self) -> Result<String> {
        self.0.dump()
    }

    fn load(&self, text: &str, age: Duration) -> Result<()> {
        let moved = format!(
            "DO $move$ DECLARE one record; BEGIN FOR one IN SELECT table_name AS t, column_name AS c \
             FROM information_schema.columns WHERE table_schema = 'public' AND data_type = 'timestamp with time zone' \
             LOOP EXECUTE format('UPDATE %I SET %I = %I + interval ''{} seconds''', one.t, one.c, one.c); END LOOP; END $move$; \
             UPDATE public.tidelock_locks_waiters SET alive = alive + interval '{} seconds';",
            age.as_secs(),
            WAITERS_LIVE.as_secs()
        );
        self.0.query(&format!("{text}\n{moved}")).map(drop)
    }
}

pub(crate) struct MySql(MariaDb);

impl Stand for MySql {
    const NAME: &'static str = "mysql";
    const HAS: Has = Has {
        read_write: false,
        ..Has::ALL_SIDES
    };

    fn start() -> Result<Self> {
        Ok(Self(MariaDb::start()?))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    fn dump(&self) -> Result<String> {
        self.0.dump()
    }

    fn load(&self, text: &str, age: Duration) -> Result<()> {
        let columns = [
            ("tidelock_locks", "expires", age),
            ("tidelock_clients", "expires", age),
            ("tidelock_marks", "expires", age),
            ("tidelock_waiters", "alive", age + WAITERS_LIVE),
        ];
        let moved = columns.map(|(table, column, by)| {
            let micros = by.as_micros();
            format!("UPDATE {table} SET {column} = {column} + {micros} WHERE {column} > 0;")
        });
        self.0
            .query(&format!("{text}\n{}", moved.join("\n")))
            .map(drop)
    }
}
