//! What must not happen in step: random shares of a pause.

/// At least 0 and below 1.
pub(crate) fn share() -> f64 {
    let (_, random) = uuid::Uuid::new_v4().as_u64_pair();
    #[allow(
        clippy::cast_precision_loss,
        reason = "a rough random share is all that is needed"
    )]
    let share = (random % 1024) as f64 / 1024.0;
    share
}
