//! How many attempts a slot can have.

/// What a later call does in a slot whose attempt failed or crashed.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> tidelock::Result<()> {
/// use tidelock::once::{Once, Retry, Slot};
///
/// let client = tidelock::Client::connect("memory:").await?;
/// let mail = client.once("mail").slot(Slot::id("2026-11-20")).if_crashed(Retry::Never);
/// let first = mail.run(|_| async { Err::<(), _>("no route to host") }).await?;
/// assert!(matches!(first, Once::Failed("no route to host")));
/// let second = mail.run(|_| async { Ok::<_, &str>(()) }).await?;
/// assert!(matches!(second, Once::Done(mark) if mark.error.is_some())); // not run again
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// Nothing: the slot had its one attempt. The job runs at most once per slot.
    Never,
    /// It runs the job again, at most this many times in the same slot.
    InSlot(u32),
}

impl Retry {
    /// How many attempts a slot can have.
    pub(super) fn attempts(self) -> u32 {
        match self {
            Self::Never => 1,
            Self::InSlot(more) => more.saturating_add(1),
        }
    }
}
