//! `tidelock web`: what `tidelock top` shows, as a page for a browser.

#[cfg(feature = "web")]
mod connections;
#[cfg(feature = "web")]
mod doctor;
#[cfg(feature = "web")]
mod guard;
#[cfg(feature = "web")]
mod hosts;
#[cfg(feature = "web")]
mod lanes;
#[cfg(feature = "web")]
mod leaders;
#[cfg(feature = "web")]
mod metrics;
#[cfg(feature = "web")]
mod page;
#[cfg(feature = "web")]
mod sampler;
#[cfg(feature = "web")]
mod server;
#[cfg(feature = "web")]
mod timeline;
#[cfg(feature = "web")]
mod view;
#[cfg(feature = "web")]
mod writes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::args::{StoreArgs, duration};
use crate::exit::{Failure, Outcome};

#[derive(Debug, Args)]
#[cfg_attr(
    not(feature = "web"),
    allow(
        dead_code,
        reason = "the help is the same in every build, and says what a build without the page lacks"
    )
)]
pub(crate) struct WebArgs {
    /// Address and port of the page; with port 0, the system chooses one. Any other address than that of this machine's
    /// loopback lets others read the page
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7780")]
    listen: SocketAddr,
    /// Also answer requests for this host name, besides localhost and addresses; may be repeated
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Time between two looks at the store while somebody sees the page. If the store is slow, it is longer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    every: Duration,
    /// Also list locks that no process tells of and nobody waits for, such as those of Java services. On Redis this looks at
    /// every key of the server, a few with each look
    #[arg(long)]
    scan: bool,
    /// Let the page of a lock unlock it, for who knows the token that this command prints on stderr
    #[arg(long)]
    write: bool,
    /// Take the token from the first line of this file, at least 16 characters, and print none
    #[arg(long, value_name = "FILE", requires = "write")]
    write_token_file: Option<PathBuf>,
}

/// A build without the page says how to get it.
#[cfg(not(feature = "web"))]
pub(crate) fn web(_: &StoreArgs, _: WebArgs) -> impl Future<Output = Outcome> {
    std::future::ready(Err(Failure::usage(
        "this build has no page for a browser; for one, in a checkout of tidelock: cargo install --path crates/tidelock-cli --features web",
    )))
}

/// Serves the page until this process is told to end.
#[cfg(feature = "web")]
pub(crate) async fn web(args: &StoreArgs, what: WebArgs) -> Outcome {
    use crate::{covers, exit, inspect, interrupt, store, top};

    let token = token_of(&what)?;
    if what.scan {
        store::refuse_to_list(args)?;
    }
    let client = store::connect_to_look(args).await?;
    covers::tell_if_asked(args)?;
    // From here on a signal ends it in order.
    let interrupted = interrupt::interrupted()?;
    let ended = async move { _ = interrupted.await };
    let cannot = |error| Failure::usage(format!("cannot listen at {}: {error}", what.listen));
    let listener = tokio::net::TcpListener::bind(what.listen)
        .await
        .map_err(cannot)?;
    let at = listener.local_addr().map_err(cannot)?;
    if !at.ip().to_canonical().is_loopback() {
        exit::say("whoever reaches this address can read the page: there is no password");
    }
    inspect::print_line(&format!("http://{at}/"))?;
    if let (Some(token), None) = (&token, &what.write_token_file) {
        exit::say(format!(
            "to unlock, the page needs this token: {}",
            token.shown()
        ));
    }
    let prefix = store::prefix(args);
    let shared = server::Shared::new(
        &client,
        covers::Shown::of(args)?,
        hosts::Hosts::new(what.hosts),
        what.every.max(top::SHORTEST),
        writes::Writes::new(
            crate::unlock::WriteGate::new(&client, prefix.clone(), what.write),
            token,
        ),
    );
    let mut looks = top::pace::Looks::new(&client, &prefix, what.every);
    if what.scan {
        looks = looks.scanning(what.every);
    }
    server::serve(listener, shared, looks, ended).await;
    // Nothing is held. Nobody need wait for a store that hangs.
    let _ = tokio::time::timeout(top::GOODBYE, client.close(Duration::ZERO)).await;
    Ok(std::process::ExitCode::SUCCESS)
}

/// `None`: the page may only read.
#[cfg(feature = "web")]
fn token_of(what: &WebArgs) -> Outcome<Option<writes::WriteToken>> {
    Ok(match &what.write_token_file {
        _ if !what.write => None,
        Some(file) => Some(writes::WriteToken::read(file)?),
        None => Some(writes::WriteToken::random()),
    })
}
