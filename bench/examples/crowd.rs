//! One name and many clients: what a queue that hands over gives, and what it costs. For docs/decisions/0024 and
//! docs/scale.md.
//!
//! `cargo run --profile bench -p bench --example crowd [-- LARGEST]`: leaves out crowds with more clients than that.

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let largest = std::env::args().nth(1);
    let largest = largest.map_or(Ok(usize::MAX), |largest| largest.parse())?;
    bench::crowd::run(largest).await
}
