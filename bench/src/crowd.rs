//! One name and many clients, as separate processes would be: the lock and the fair lock of tidelock, and the prototype
//! of a hand-over for the lock, beside two tasks of the bare scripts that take turns.
//!
//! The sides run in turn, several times. On a busy machine the counts and the processor time of the server are
//! comparable, the times only within one round.

mod hand_over;
mod uncontended;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use load::{Contender, Side as _, Stamp, now_ns};
use testkit::servers::RedisServer;
use tidelock::{Client, Guard, Lock};
use tokio::task::JoinSet;

use crate::books::Books;
use crate::contention::Contention;
use crate::crowd::hand_over::{HandedOver, Told};
use crate::figures::{middle, number, short};
use crate::raw::Turns;
use crate::w2_hot::Floor;

/// The clients that compete for the name.
const CROWDS: [usize; 5] = [2, 16, 64, 256, 1_000];
/// Larger crowds are measured once.
const MANY: usize = 256;
const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_secs(1);

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Bare,
    Lock,
    FairLock,
    Prototype(Told),
}

impl Side {
    const ALL: [Self; 5] = [
        Self::Bare,
        Self::Lock,
        Self::FairLock,
        Self::Prototype(Told::Asks),
        Self::Prototype(Told::Enters),
    ];

    const fn about(self) -> &'static str {
        match self {
            Self::Bare => "bare scripts, two tasks by turns",
            Self::Lock => "`lock`",
            Self::FairLock => "`fair_lock`",
            Self::Prototype(Told::Asks) => "prototype, a waiter that is told asks",
            Self::Prototype(Told::Enters) => "prototype, a waiter that is told enters",
        }
    }
}

/// What one side did in one round.
struct Turned {
    contention: Contention,
    requests: f64,
    bytes_out: f64,
    server_us: f64,
}

/// Measures all crowds and prints the tables. `largest`: crowds with more clients are left out.
///
/// # Errors
/// The server cannot be started, or a client fails.
pub async fn run(largest: usize) -> Result<()> {
    let server = RedisServer::start()?;
    uncontended::run(&server).await?;
    println!(
        "\n| clients | | turns/s | gap p50, µs | of bare | gap p99, µs | of the median of bare | requests a turn | bytes out a turn | server CPU a turn, µs | least to most turns | longest wait, ms | overlaps |"
    );
    println!("| ---: | --- |{}", " ---: |".repeat(11));
    for clients in CROWDS.into_iter().filter(|clients| *clients <= largest) {
        let rounds = if clients > MANY { 1 } else { ROUNDS };
        let mut seen: Vec<(Side, Vec<Turned>)> = Side::ALL.map(|side| (side, Vec::new())).into();
        for _ in 0..rounds {
            for (side, turns) in &mut seen {
                turns.push(measure(&server, *side, clients).await?);
            }
        }
        let bare = middle(&seen[0].1, |turned| turned.contention.gap_p50);
        for (side, turns) in &seen {
            show(clients, *side, turns, bare);
        }
    }
    Ok(())
}

fn show(clients: usize, side: Side, turns: &[Turned], bare: f64) {
    let figure = |figure: fn(&Turned) -> f64| middle(turns, figure);
    let clients = if side == Side::Bare { 2 } else { clients };
    let overlaps: usize = turns.iter().map(|turned| turned.contention.overlaps).sum();
    let gap = figure(|turned| turned.contention.gap_p50);
    let longest = figure(|turned| turned.contention.gap_p99);
    let cells = [
        clients.to_string(),
        side.about().to_owned(),
        short(figure(|turned| turned.contention.per_second)),
        short(gap),
        short(gap / bare),
        short(longest),
        short(longest / bare),
        short(figure(|turned| turned.requests)),
        short(figure(|turned| turned.bytes_out)),
        short(figure(|turned| turned.server_us)),
        short(figure(|turned| turned.contention.process_share)),
        short(figure(|turned| turned.contention.longest_wait)),
        overlaps.to_string(),
    ];
    println!("| {} |", cells.join(" | "));
}

async fn measure(server: &RedisServer, side: Side, clients: usize) -> Result<Turned> {
    let url = server.url();
    match side {
        Side::Bare => {
            let name = Floor::Turns.lock();
            let mut two = Vec::new();
            for _ in 0..2 {
                two.push(Turns::connect(&url, name).await?.contender(name)?);
            }
            compete(server, two).await
        }
        Side::Lock | Side::FairLock => {
            let builder = Client::builder().publish_process_info(false);
            let (mut all, mut locks) = (Vec::new(), Vec::new());
            for _ in 0..clients {
                let client = builder.clone().connect(&url).await?;
                locks.push(Ours(match side {
                    Side::FairLock => client.fair_lock("crowd fair"),
                    _ => client.lock("crowd"),
                }));
                all.push(client);
            }
            let turned = compete(server, locks).await;
            for client in all {
                client.close(Duration::ZERO).await;
            }
            turned
        }
        Side::Prototype(told) => {
            let name = format!("crowd {told:?}");
            let mut all = Vec::new();
            for number in 0..clients {
                all.push(HandedOver::connect(&url, &name, number, told).await?);
            }
            compete(server, all).await
        }
    }
}

struct Ours(Lock);

impl Contender for Ours {
    type Held = Guard;

    async fn acquire(&mut self) -> Result<Guard> {
        Ok(self.0.acquire().await?)
    }

    async fn release(&mut self, guard: Guard) -> Result<()> {
        Ok(guard.release().await?)
    }
}

/// All acquire and release, again and again, with empty holds.
async fn compete(server: &RedisServer, all: Vec<impl Contender>) -> Result<Turned> {
    let clients = all.len();
    let stops = Arc::new(AtomicBool::new(false));
    let mut crowd = JoinSet::new();
    for mut contender in all {
        let stops = Arc::clone(&stops);
        crowd.spawn(async move {
            let mut stamps = Vec::new();
            while !stops.load(Ordering::Relaxed) {
                let asked = now_ns();
                let held = contender.acquire().await?;
                let (task, entered) = (0, now_ns());
                let leaving = now_ns();
                contender.release(held).await?;
                stamps.push(Stamp {
                    task,
                    asked,
                    entered,
                    leaving,
                    left: now_ns(),
                });
            }
            anyhow::Ok(stamps)
        });
    }
    // At first not all of them wait: some have not asked yet.
    tokio::time::sleep(TIME / 2).await;
    let (before, start) = (Books::read(server)?, now_ns());
    tokio::time::sleep(TIME).await;
    let (after, stop) = (Books::read(server)?, now_ns());
    stops.store(true, Ordering::Relaxed);
    let mut stamps = Vec::with_capacity(clients);
    while let Some(each) = crowd.join_next().await {
        stamps.push(each??);
    }
    let contention = Contention::of(&stamps, 1, start, stop);
    let turns = number(contention.holds.max(1));
    Ok(Turned {
        requests: (after.requests - before.requests) / turns,
        bytes_out: (after.went - before.went) / turns,
        server_us: (after.cpu_us - before.cpu_us) / turns,
        contention,
    })
}
