//! Tasks of the repository: `cargo xtask --help`.

mod bench;
mod book;
mod compatibility;
mod coverage;
mod dist;
mod faults;
mod features;
mod flames;
mod full;
mod fuzz;
mod house;
mod idle;
mod miri;
mod mutants;
mod page;
mod partitions;
mod planted;
mod platforms;
mod programs;
mod rooms;
mod schedules;
mod servers;
mod sh;
mod soak;
mod storm;
mod test;
mod tools;

use anyhow::Result;
use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Tasks of the repository")]
enum Task {
    /// Installs the servers and tools that the tests need
    Servers(servers::Args),
    /// Runs all checks that a change must pass
    Test(test::Args),
    /// Runs the checks that take too long for every change, on every server, and writes docs/full.md
    Full(full::Args),
    /// Runs the fuzz targets on everything that reads bytes from outside, and writes docs/fuzz.md
    Fuzz(fuzz::Args),
    /// Measures what a lock costs, compared with its bare scripts and with other libraries
    Bench(bench::Args),
    /// Draws flame graphs of where the time of a lock goes, next to docs/performance.md
    Flames,
    /// Builds the pages of docs/ as one site, in target/book/site
    Book,
    /// Makes the artefacts of a release in target/dist; `--check` tries each as its user would
    Dist(dist::Args),
    /// Counts the crates that each feature of the library adds, and measures what they cost to build
    Features(features::Args),
    /// Counts how easily a stranger finds things in the library, and writes docs/house.md
    House(house::Args),
    /// Runs the tests of the engine's concurrent parts under Miri, and writes a part of docs/schedules.md
    Miri(miri::Args),
    /// Counts the lines of the library that its tests reach, and writes docs/coverage.md
    Coverage(coverage::Args),
    /// Changes one expression of the library at a time, looks which tests notice, and writes docs/mutants.md
    Mutants(mutants::Args),
    /// Runs the engine in very many orders of its tasks, finds planted bugs, and writes docs/schedules.md
    Schedules(schedules::Args),
    /// Runs mixed faults on one Redis for a long time, with Redisson
    Soak(soak::Args),
    /// Uses every kind of lock on every store for a long time, while processes of two builds take each other's places
    SoakEverywhere(soak::EverywhereArgs),
    /// Runs the tests beside real Redisson, and writes docs/compatibility.md
    Compatibility(compatibility::Args),
    /// Causes every fault of the catalogue on every store
    Faults(faults::Args),
    /// Parts a network of several hosts in every way, for each topology
    Partitions(partitions::Args),
    /// Makes one random fault after another on all stores at once, and writes docs/storms.md
    Storm(storm::Args),
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Servers(args) => servers::run(args),
        Task::Test(args) => test::run(&args),
        Task::Full(args) => full::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Flames => flames::run(),
        Task::Book => book::run(),
        Task::Dist(args) => dist::run(&args),
        Task::Features(args) => features::run(&args),
        Task::House(args) => house::run(&args),
        Task::Miri(args) => miri::run(&args),
        Task::Coverage(args) => coverage::run(&args),
        Task::Mutants(args) => mutants::run(&args),
        Task::Schedules(args) => schedules::run(&args),
        Task::Soak(args) => soak::run(&args),
        Task::SoakEverywhere(args) => soak::everywhere(&args),
        Task::Compatibility(args) => compatibility::run(&args),
        Task::Faults(args) => faults::run(&args),
        Task::Partitions(args) => partitions::run(&args),
        Task::Storm(args) => storm::run(&args),
    }
}
