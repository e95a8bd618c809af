//! Waits until this process is asked to end.

use std::future::Future;

use crate::exit::{Outcome, SIGINT};

/// Ends with the number of the signal when this process is asked to end, by Ctrl-C or by SIGTERM.
///
/// The kernel ignores a signal with the default action for the first process of a container. A container whose first process did
/// not wait for SIGTERM would be killed, when its grace period ends.
#[cfg(unix)]
pub(crate) fn interrupted() -> Outcome<impl Future<Output = i32>> {
    use tokio::signal::unix::{SignalKind, signal};

    use crate::exit::Failure;

    let of = |kind: SignalKind| signal(kind).map_err(Failure::internal);
    let mut interrupt = of(SignalKind::interrupt())?;
    let mut terminate = of(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => SIGINT,
            _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
        }
    })
}

#[cfg(not(unix))]
#[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
pub(crate) fn interrupted() -> Outcome<impl Future<Output = i32>> {
    Ok(async {
        match tokio::signal::ctrl_c().await {
            Ok(()) => SIGINT,
            Err(_) => std::future::pending().await,
        }
    })
}
