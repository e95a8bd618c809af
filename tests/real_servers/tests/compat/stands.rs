//! The stores whose contents outlive a client: how to read all of them as text, and how to put the text into another.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use testkit::servers::{Flavour, MariaDb, PostgresServer, RedisServer};

pub(crate) trait Stand: Sized {
    const NAME: &'static str;
    /// Whether it has read-write locks.
    const READ_WRITE: bool = true;
    fn start() -> Result<Self>;
    fn url(&self) -> String;
    fn dump(&self) -> Result<String>;
    /// `age`: how far the times of the text lie back.
    fn load(&self, text: &str, age: Duration) -> Result<()>;
}

fn output(command: &mut Command) -> Result<String> {
    let said = command.output().with_context(|| format!("{command:?}"))?;
    let errors = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "{command:?}: {errors}");
    Ok(String::from_utf8(said.stdout)?)
}

pub(crate) struct Redis(RedisServer);

impl Stand for Redis {
    const NAME: &'static str = "redis";

    fn start() -> Result<Self> {
        // Always the same server: a key has one form on all.
        let server = RedisServer::builder().flavour(Flavour::Redis7).start()?;
        Ok(Self(server))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    /// A command in each line, as a JSON array.
    fn dump(&self) -> Result<String> {
        let mut lines = Vec::new();
        for key in self.0.keys()? {
            // See the mask.
            if key.contains("tidelock:processes") {
                continue;
            }
            let kind: String = self.0.query(&["TYPE", &key])?;
            let (make, read): (&str, &[&str]) = match &*kind {
                "string" => ("SET", &["GET", &key]),
                "hash" => ("HSET", &["HGETALL", &key]),
                "list" => ("RPUSH", &["LRANGE", &key, "0", "-1"]),
                "zset" => ("ZADD", &["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
                other => anyhow::bail!("{key} is a {other}"),
            };
            let parts: Vec<String> = match make {
                "SET" => vec![self.0.query(read)?],
                _ => self.0.query(read)?,
            };
            // The order of the fields of a hash is the server's.
            let mut pairs: Vec<Vec<String>> = parts.chunks(2).map(<[String]>::to_vec).collect();
            match make {
                "HSET" => pairs.sort(),
                "ZADD" => pairs.iter_mut().for_each(|pair| pair.reverse()),
                _ => {}
            }
            let mut words = vec![make.to_owned(), key.clone()];
            words.extend(pairs.into_iter().flatten());
            lines.push(serde_json::to_string(&words)?);
            let ttl: i64 = self.0.query(&["PTTL", &key])?;
            if ttl > 0 {
                lines.push(serde_json::to_string(&["PEXPIRE", &key, &ttl.to_string()])?);
            }
        }
        Ok(lines.join("\n") + "\n")
    }

    fn load(&self, text: &str, age: Duration) -> Result<()> {
        for line in text.lines() {
            let mut words: Vec<String> = serde_json::from_str(line)?;
            // A score is a time, in milliseconds.
            if let [command, _, score, _] = words.as_mut_slice()
                && command == "ZADD"
            {
                *score = (score.parse::<u128>()? + age.as_millis()).to_string();
            }
            self.0.admin(&words)?;
        }
        Ok(())
    }
}

pub(crate) struct File(TempDir);

impl File {
    fn path(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }

    fn python(&self, program: &str, argument: &str) -> Result<String> {
        let mut python = Command::new("python3");
        python.args(["-c", program]).arg(self.path()).arg(argument);
        output(&mut python)
    }
}

impl Stand for File {
    const NAME: &'static str = "sqlite";

    fn start() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    fn dump(&self) -> Result<String> {
        let program = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for name in 'application_id', 'user_version':
    print(f'PRAGMA {name} = {db.execute(\"PRAGMA \" + name).fetchone()[0]};')
print('\\n'.join(line for line in db.iterdump() if line not in ('BEGIN TRANSACTION;', 'COMMIT;')))";
        self.python(program, "")
    }

    /// Stamps of another boot stay as they are: the store handles them. Marks have times of the wall clock.
    fn load(&self, text: &str, age: Duration) -> Result<()> {
        let program = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.executescript(sys.argv[2])";
        let moved = format!(
            "{text}\nUPDATE marks SET ends = ends + {};",
            age.as_millis()
        );
        self.python(program, &moved).map(drop)
    }
}

pub(crate) struct Postgres(PostgresServer);

impl Stand for Postgres {
    const NAME: &'static str = "postgres";

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
             LOOP EXECUTE format('UPDATE %I SET %I = %I + interval ''{} seconds''', one.t, one.c, one.c); END LOOP; END $move$;",
            age.as_secs()
        );
        self.0.query(&format!("{text}\n{moved}")).map(drop)
    }
}

pub(crate) struct MySql(MariaDb);

impl Stand for MySql {
    const NAME: &'static str = "mysql";
    const READ_WRITE: bool = false;

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
        let tables = ["tidelock_locks", "tidelock_clients", "tidelock_marks"];
        let moved = tables.map(|table| {
            let micros = age.as_micros();
            format!("UPDATE {table} SET expires = expires + {micros} WHERE expires > 0;")
        });
        self.0
            .query(&format!("{text}\n{}", moved.join("\n")))
            .map(drop)
    }
}
