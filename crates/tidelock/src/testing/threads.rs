//! Adapts the blocking API to the async promises: each acquisition has its own thread, which keeps the guard.

use std::sync::mpsc;

use tokio::sync::oneshot;

use crate::blocking::Guard;
use crate::error::Result;
use crate::options::{AcquireOptions, CancelToken};
use crate::types::LostReason;

type Command = Box<dyn FnOnce(&mut Option<Guard>) + Send>;

/// A guard on its thread. A drop of this value drops the guard there.
#[derive(Debug)]
pub struct ThreadHeld(mpsc::Sender<Command>);

/// Cancels the thread's wait when the caller leaves, as a drop of the future would.
struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl ThreadHeld {
    pub(super) async fn take(
        mut options: AcquireOptions,
        acquire: impl FnOnce(AcquireOptions) -> Result<Option<Guard>> + Send + 'static,
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
            let mut guard = match acquire(options) {
                Ok(Some(guard)) => Some(guard),
                other => return drop(tell.send(other.map(|_| None))),
            };
            // A send error means that the caller has left. Then `recv` below fails at once, and the guard is dropped.
            drop(tell.send(Ok(Some(Self(commands)))));
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
        self.0.send(command).expect("the thread lives");
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
        self.0.send(command).expect("the thread lives");
        told.await.expect("the thread answers")
    }
}

/// Runs a blocking call on a new thread, outside of the test's runtime.
pub(super) async fn apart<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || drop(tell.send(call())));
    told.await.expect("the thread answers")
}
