//! One act: starts the sellers, lets them begin together, and adds up their results.

use std::path::{Path, PathBuf};
use std::time::Instant;

use indicatif::ProgressBar;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::crew::Seller;
use super::report::Report;
use super::seller::{Sales, Word};
use super::stock::Stock;
use crate::args::{DemoArgs, Manner, StoreArgs};
use crate::exit::{Failure, Outcome};
use crate::{secret, store};

/// The inputs of an act.
pub(crate) struct Stage<'a> {
    pub(crate) store: &'a StoreArgs,
    pub(crate) what: &'a DemoArgs,
    pub(crate) folder: &'a Path,
    pub(crate) bar: ProgressBar,
}

impl Stage<'_> {
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("stock")
    }

    /// Sells the whole stock in one manner.
    pub(crate) async fn play(&self, act: u8, manner: Manner) -> Outcome<Report> {
        let stock = self.what.stock;
        let shown = secret::shown(&store::url(self.store)?);
        Stock::create(&self.file(), stock).map_err(Failure::internal)?;
        let name = self.lock_name(manner);
        let late = match manner {
            Manner::Fenced => match self.late_seller(&name).await? {
                None => return Ok(Report::not_applicable(act, shown, stock)),
                late => late,
            },
            _ => None,
        };
        let mut crew = Vec::new();
        for _ in 0..self.what.processes {
            crew.push(Seller::start(self, manner, &name)?);
        }
        for seller in &mut crew {
            seller.hear().await?;
        }
        let begun = Instant::now();
        let sales = self.sell(crew, late).await?;
        Ok(Report::new(act, shown, stock, sales, begun.elapsed()))
    }

    /// The stock file and the lock of act 2 belong to this run, so a lock left by a killed demo blocks no other run.
    /// All runs share the fenced lock, because its token counter stays in the store for good.
    fn lock_name(&self, manner: Manner) -> String {
        let own = self
            .folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        match manner {
            Manner::Fenced | Manner::Late => "tidelock-demo:fenced".to_owned(),
            Manner::Careless | Manner::Locked => format!("tidelock-demo:{own}"),
        }
    }

    /// Starts a seller that acquires the lock, reads the stock, and freezes. `None`: the store has no tokens.
    #[cfg(unix)]
    async fn late_seller(&self, name: &str) -> Outcome<Option<Seller>> {
        let mut late = Seller::start(self, Manner::Late, name)?;
        match late.hear().await? {
            Word::Holding => Ok(Some(late)),
            _ => Ok(None),
        }
    }

    #[cfg(not(unix))]
    async fn late_seller(&self, _: &str) -> Outcome<Option<Seller>> {
        // This system cannot freeze a process.
        Ok(None)
    }

    async fn sell(&self, mut crew: Vec<Seller>, mut late: Option<Seller>) -> Outcome<Sales> {
        for seller in &mut crew {
            seller.tell_to_go().await?;
        }
        let (progress, mut heard) = unbounded_channel();
        let mut running = JoinSet::new();
        for seller in crew {
            running.spawn(listen(seller, progress.clone()));
        }
        let mut sales = Sales::default();
        loop {
            tokio::select! {
                // Progress comes before endings; otherwise all sellers may be done before the frozen one is thawed.
                biased;
                Some(more) = heard.recv() => {
                    self.bar.inc(more);
                    if more > 0 && let Some(mut late) = late.take() {
                        // Another seller has sold with a later token: now the frozen seller continues and tries to
                        // write.
                        late.tell_to_go().await?;
                        #[cfg(unix)]
                        late.thaw()?;
                        running.spawn(listen(late, progress.clone()));
                    }
                }
                done = running.join_next() => match done {
                    Some(done) => sales.add(done.map_err(Failure::internal)??),
                    None => return Ok(sales),
                },
            }
        }
    }
}

/// Reads a seller's messages until it is done.
async fn listen(mut seller: Seller, progress: UnboundedSender<u64>) -> Outcome<Sales> {
    let mut told = 0;
    loop {
        let (sold, sales) = match seller.hear().await? {
            Word::Sold(sold) => (sold, None),
            Word::Done(sales) => (sales.sold, Some(sales)),
            _ => continue,
        };
        // An error means that the act is over, so the progress has no reader.
        let _ = progress.send(sold - told);
        told = sold;
        if let Some(sales) = sales {
            return Ok(sales);
        }
    }
}
