//! A selling process: the demo starts it, gives it orders on stdin, and reads its messages from stdout.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidelock::{AcquireOptions, CancelToken, Client, ErrorKind, Lock};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::task::JoinSet;

use super::stock::{Checked, Stock};
use crate::acquire::{Held, acquire};
use crate::args::{Manner, SellerArgs, StoreArgs};
use crate::exit::{Failure, Outcome};
use crate::inspect::print_line;
use crate::store;

/// How long a seller works between reading the stock and writing it back.
const THINK: Duration = Duration::from_millis(1);
/// The lease of the seller that will be frozen: the others wait this long for it to end.
const SHORT_LEASE: Duration = Duration::from_millis(1500);

/// A message of a seller, one JSON value per line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Word {
    /// Ready, and waits for "go".
    Ready,
    /// Holds the lock, and will write next.
    Holding,
    /// The store has no fencing tokens.
    Unsupported,
    /// The number of pieces sold so far.
    Sold(u64),
    /// The final result.
    Done(Sales),
}

/// The result of one process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sales {
    pub(crate) sold: u64,
    pub(crate) refused: u64,
    pub(crate) waits_us: Vec<u64>,
}

impl Sales {
    pub(crate) fn add(&mut self, other: Self) {
        self.sold += other.sold;
        self.refused += other.refused;
        self.waits_us.extend(other.waits_us);
    }
}

/// Sells until nothing is left.
pub(crate) async fn sell(args: &StoreArgs, what: SellerArgs) -> Outcome {
    #[cfg(unix)]
    crate::run::boot::die_with_parent();
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let sales = match what.manner {
        Manner::Careless => sell_carelessly(&what, &mut orders).await?,
        Manner::Late => {
            // Without details in the store the client writes nothing in the background that the freeze could interrupt
            // halfway.
            let client = store::connect_silently(args).await?;
            let Some(sales) = sell_late(&client, &what, &mut orders).await? else {
                say(&Word::Unsupported)?;
                return Ok(ExitCode::SUCCESS);
            };
            sales
        }
        Manner::Locked | Manner::Fenced => {
            let client = store::connect(args).await?;
            let sales = sell_in_turn(&client, &what, &mut orders).await?;
            client.close(Duration::from_secs(1)).await;
            sales
        }
    };
    say(&Word::Done(sales))?;
    Ok(ExitCode::SUCCESS)
}

fn say(word: &Word) -> Outcome<()> {
    print_line(&serde_json::to_string(word).map_err(Failure::internal)?)
}

async fn go(orders: &mut Lines<BufReader<Stdin>>) -> Outcome<()> {
    match orders.next_line().await {
        Ok(Some(_)) => Ok(()),
        _ => Err(Failure::internal("demo: a seller was left alone")),
    }
}

fn open(file: &Path) -> Outcome<Stock> {
    Stock::open(file).map_err(stock_failed)
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn stock_failed(error: std::io::Error) -> Failure {
    Failure::internal(format!("demo: the stock file: {error}"))
}

/// Act 1: every worker reads, works, and writes back, without a lock.
async fn sell_carelessly(
    what: &SellerArgs,
    orders: &mut Lines<BufReader<Stdin>>,
) -> Outcome<Sales> {
    let mut first = Vec::new();
    for _ in 0..what.workers {
        let mut stock = open(&what.file)?;
        // All workers read before the first one writes. So at least one piece is sold more than once in every run.
        let seen = stock.read().map_err(stock_failed)?;
        first.push((stock, seen));
    }
    say(&Word::Ready)?;
    go(orders).await?;
    let sold = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for (mut stock, mut seen) in first {
        let sold = Arc::clone(&sold);
        workers.spawn(async move {
            while seen > 0 {
                tokio::time::sleep(THINK).await;
                stock.write(seen - 1)?;
                sold.fetch_add(1, Ordering::Relaxed);
                seen = stock.read()?;
            }
            Ok(Sales::default())
        });
    }
    let mut sales = all(workers, &sold).await?;
    sales.sold = sold.load(Ordering::Relaxed);
    Ok(sales)
}

/// Waits for all workers, and reports the number of sold pieces meanwhile.
async fn all(mut workers: JoinSet<Outcome2>, sold: &AtomicU64) -> Outcome<Sales> {
    let mut sales = Sales::default();
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            _ = tick.tick() => say(&Word::Sold(sold.load(Ordering::Relaxed)))?,
            done = workers.join_next() => match done {
                Some(done) => sales.add(done.map_err(Failure::internal)?.map_err(Failure::from)?),
                None => return Ok(sales),
            },
        }
    }
}

/// An error that ends a worker early.
#[derive(Debug)]
enum Trouble {
    Stock(std::io::Error),
    Lock(tidelock::Error),
}

type Outcome2 = Result<Sales, Trouble>;

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Stock(error)
    }
}

impl From<tidelock::Error> for Trouble {
    fn from(error: tidelock::Error) -> Self {
        Self::Lock(error)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Stock(error) => stock_failed(error),
            Trouble::Lock(error) => error.into(),
        }
    }
}

/// Acts 2 and 3: one worker sells at a time.
async fn sell_in_turn(
    client: &Client,
    what: &SellerArgs,
    orders: &mut Lines<BufReader<Stdin>>,
) -> Outcome<Sales> {
    let fenced = what.manner == Manner::Fenced;
    let shop = Shop {
        lock: client.lock(&what.lock),
        fenced,
        sold: Arc::default(),
        sold_out: CancelToken::new(),
    };
    let mut workers = JoinSet::new();
    let stocks = (0..what.workers)
        .map(|_| open(&what.file))
        .collect::<Outcome<Vec<_>>>()?;
    say(&Word::Ready)?;
    go(orders).await?;
    for stock in stocks {
        workers.spawn(shop.clone().work(stock));
    }
    let mut sales = all(workers, &shop.sold).await?;
    sales.sold = shop.sold.load(Ordering::Relaxed);
    Ok(sales)
}

/// The state that the workers of a process share.
#[derive(Clone)]
struct Shop {
    lock: Lock,
    fenced: bool,
    sold: Arc<AtomicU64>,
    /// Fired when a worker finds nothing left: the others stop waiting for a lock that would show them the same.
    sold_out: CancelToken,
}

/// The result of one attempt to sell.
enum Sale {
    Sold,
    Refused,
    NothingLeft,
}

impl Shop {
    async fn work(self, mut stock: Stock) -> Outcome2 {
        let mut sales = Sales::default();
        loop {
            let asked = Instant::now();
            let options = AcquireOptions::new().cancel(&self.sold_out);
            let Held { guard, token, .. } = match acquire(&self.lock, self.fenced, options).await {
                Ok(held) => held,
                Err(error) if error.kind() == ErrorKind::Cancelled => return Ok(sales),
                Err(error) => return Err(error.into()),
            };
            let waited = asked.elapsed().as_micros();
            sales
                .waits_us
                .push(u64::try_from(waited).unwrap_or(u64::MAX));
            let token = token.map_or(0, tidelock::FencingToken::get);
            // A lost lock drops the sale before the write; the worker tries again with the next lock.
            match guard.while_held(self.serve(&mut stock, token)).await {
                Ok(sale) => match sale? {
                    Sale::Sold => drop(self.sold.fetch_add(1, Ordering::Relaxed)),
                    Sale::Refused => sales.refused += 1,
                    Sale::NothingLeft => self.sold_out.cancel(),
                },
                Err(_lost) => continue,
            }
            match guard.release().await {
                Err(error) if error.kind() != ErrorKind::Lost => return Err(error.into()),
                _ => {}
            }
            if self.sold_out.is_cancelled() {
                return Ok(sales);
            }
        }
    }

    async fn serve(&self, stock: &mut Stock, token: u64) -> std::io::Result<Sale> {
        let seen = if self.fenced {
            match stock.read_as(token)? {
                Checked::Done(seen) => seen,
                Checked::Refused => return Ok(Sale::Refused),
            }
        } else {
            stock.read()?
        };
        if seen == 0 {
            return Ok(Sale::NothingLeft);
        }
        tokio::time::sleep(THINK).await;
        if !self.fenced {
            stock.write(seen - 1)?;
        } else if stock.write_as(token, seen - 1)? == Checked::Refused {
            return Ok(Sale::Refused);
        }
        Ok(Sale::Sold)
    }
}

/// Stops this process, like a machine that hangs. It stops itself because then the moment is known: right after the
/// grant, long before the next renewal. (A process frozen within a transaction of an SQLite file blocks all writers;
/// the demo does not show that case.)
fn freeze() {
    #[cfg(unix)]
    // Cannot fail for a process that exists.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}

/// The seller of act 3 that ignores `lost()`: it freezes between reading and writing. `None`: the store has no tokens.
async fn sell_late(
    client: &Client,
    what: &SellerArgs,
    orders: &mut Lines<BufReader<Stdin>>,
) -> Outcome<Option<Sales>> {
    let options = AcquireOptions::new().lease(SHORT_LEASE);
    let guard = match client.lock(&what.lock).fenced().acquire_with(options).await {
        Ok(guard) => guard,
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let token = guard.token().get();
    let mut stock = open(&what.file)?;
    let mut sales = Sales::default();
    let Checked::Done(seen) = stock.read_as(token).map_err(stock_failed)? else {
        return Err(Failure::internal("demo: the first token was refused"));
    };
    say(&Word::Holding)?;
    freeze();
    // When the process continues, the order "go" is already in the pipe. It does not check `lost()`.
    go(orders).await?;
    match stock
        .write_as(token, seen.saturating_sub(1))
        .map_err(stock_failed)?
    {
        Checked::Done(()) => sales.sold += 1,
        Checked::Refused => sales.refused += 1,
    }
    Ok(Some(sales))
}
