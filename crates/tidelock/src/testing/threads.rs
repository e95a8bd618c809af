//! Adapts the blocking API to the async promises: each acquisition has its own thread, which keeps the guard.

use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::blocking::{FencedGuard, Guard};
use crate::error::Result;
use crate::options::{AcquireOptions, CancelToken};
use crate::types::{FencingToken, LostReason};

type Command = Box<dyn FnOnce(&mut Option<Guard>) + Send>;

/// A guard on its thread. A drop of this value drops the guard there.
#[derive(Debug)]
pub struct ThreadHeld {
    commands: mpsc::Sender<Command>,
    /// The token of a fenced lock.
    pub(super) token: Option<FencingToken>,
}

/// A guard of the blocking API, and its token if it has one.
pub(super) trait WithToken: Into<Guard> {
    fn token_if_any(&self) -> Option<FencingToken>;
}

impl WithToken for Guard {
    fn token_if_any(&self) -> Option<FencingToken> {
        None
    }
}

impl WithToken for FencedGuard {
    fn token_if_any(&self) -> Option<FencingToken> {
        Some(self.token())
    }
}

/// Cancels the thread's wait when the caller leaves, as a drop of the future would.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl ThreadHeld {
    pub(super) async fn take<G: WithToken>(
        mut options: AcquireOptions,
        acquire: impl FnOnce(AcquireOptions) -> Result<Option<G>> + Send + 'static,
    ) -> Result<Option<Self>> {
        let leaving = options
            .cancel
            .is_none()
            .then(|| CancelOnDrop(CancelToken::new()));
        if let Some(CancelOnDrop(cancel)) = &leaving {
            options = options.cancel(cancel);
        }
        let (tell, told) = oneshot::channel();
        std::thread::spawn(move || {
            let (commands, inbox) = mpsc::channel::<Command>();
            let guard = match acquire(options) {
                Ok(Some(guard)) => guard,
                other => return drop(tell.send(other.map(|_| None))),
            };
            let token = guard.token_if_any();
            let mut guard = Some(guard.into());
            // A send error means that the caller has left. Then `recv` below fails at once, and the guard is dropped.
            drop(tell.send(Ok(Some(Self { commands, token }))));
            while guard.is_some() {
                match inbox.recv() {
                    Ok(command) => command(&mut guard),
                    Err(mpsc::RecvError) => break,
                }
            }
        });
        let result = told.await.expect("the thread answers");
        // Kept until here, so that a drop of this future during the wait fires the cancel.
        drop(leaving);
        result
    }

    /// Runs a closure on the guard, on the guard's thread.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Guard) -> T + Send + 'static,
    ) -> T {
        let (tell, told) = oneshot::channel();
        let command: Command =
            Box::new(move |guard| drop(tell.send(question(guard.as_ref().expect("it is held")))));
        self.commands.send(command).expect("the thread lives");
        told.await.expect("the thread answers")
    }

    pub(super) async fn lost(&self) -> LostReason {
        let (tell, told) = oneshot::channel();
        self.ask(move |guard| guard.on_lost(move |reason| _ = tell.send(reason)))
            .await;
        told.await.expect("the callback is called")
    }

    pub(super) async fn closing(&self) {
        let (tell, told) = oneshot::channel();
        self.ask(move |guard| guard.on_closing(move || _ = tell.send(())))
            .await;
        told.await.expect("the callback is called");
    }

    pub(super) async fn release(self) -> Result<()> {
        let (tell, told) = oneshot::channel();
        let command: Command = Box::new(move |guard| {
            drop(tell.send(guard.take().expect("it is held").release()));
        });
        self.commands.send(command).expect("the thread lives");
        told.await.expect("the thread answers")
    }
}

/// Runs a blocking call on a new thread, outside of the test's runtime.
pub(super) async fn apart<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || drop(tell.send(call())));
    told.await.expect("the thread answers")
}
