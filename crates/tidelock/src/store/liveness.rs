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

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A caller that waits until it leaves.
    #[derive(Debug, Default)]
    pub(crate) struct TestCaller(AtomicBool);

    impl TestCaller {
        pub(crate) fn leave(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    impl Caller for TestCaller {
        fn has_left(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }
    }

    /// That of a caller that has left.
    pub(crate) fn gone() -> Liveness {
        let caller = Arc::new(TestCaller::default());
        caller.leave();
        Liveness::new(caller)
    }

    #[test]
    fn a_caller_waits_until_it_leaves() {
        let waits = Liveness::new(Arc::new(TestCaller::default()));
        assert!(!waits.has_left() && !Liveness::default().has_left());
        assert!(gone().has_left());
    }
}
