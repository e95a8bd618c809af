//! Whether the caller of an attempt still waits for its result.

use std::fmt;
use std::sync::Arc;

/// The caller of an attempt.
pub(crate) trait Caller: fmt::Debug + Send + Sync {
    /// Whether it waits no more.
    fn has_left(&self) -> bool;
}

/// Tells whether a caller still waits for the result of an attempt. By default one does.
#[derive(Debug, Clone, Default)]
pub struct Liveness(Option<Arc<dyn Caller>>);

impl Liveness {
    pub(crate) fn new(caller: Arc<dyn Caller>) -> Self {
        Self(Some(caller))
    }

    /// Whether the caller has left. Then a store need not send an attempt that still waits to be sent. Otherwise, if
    /// many callers leave at once, the store would serve their attempts first while the remaining callers wait.
    pub fn has_left(&self) -> bool {
        self.0.as_ref().is_some_and(|caller| caller.has_left())
    }
}
