//! Percentiles and medians.

/// The value below which this share of the sorted values lies.
pub(crate) fn percentile(sorted: &[u64], share: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a list of some thousands"
    )]
    let at = (sorted.len() as f64 * share) as usize;
    sorted
        .get(at.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(0)
}

/// The middle of a few values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Microseconds of nanoseconds.
#[allow(clippy::cast_precision_loss, reason = "a time of some seconds at most")]
pub(crate) fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}
