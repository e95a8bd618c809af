//! Percentiles, medians and spreads, and their formatting.

use std::time::Duration;

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

/// The median; of an even number of values, the mean of the two in the middle. `NaN` if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match (values.get(half), values.len() % 2) {
        (Some(upper), 0) => f64::midpoint(values[half - 1], *upper),
        (Some(middle), _) => *middle,
        (None, _) => f64::NAN,
    }
}

/// The smallest and the largest value.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values
        .into_iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        })
}

/// The median of one figure over all samples.
pub(crate) fn middle<T>(samples: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    median(samples.iter().map(figure))
}

/// The median of the per-round ratios. A disturbance of the machine affects both sides of a round, so it cancels out.
pub(crate) fn ratio<T>(ours: &[T], theirs: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    median(
        ours.iter()
            .zip(theirs)
            .map(|(ours, theirs)| figure(ours) / figure(theirs)),
    )
}

/// Converts nanoseconds to microseconds.
#[allow(clippy::cast_precision_loss, reason = "a time of some minutes at most")]
pub(crate) fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

/// Converts a count to a float.
#[allow(clippy::cast_precision_loss, reason = "some millions at most")]
pub(crate) fn number(count: impl TryInto<u64>) -> f64 {
    count.try_into().unwrap_or(0) as f64
}

/// Events per second.
pub(crate) fn per_second(count: usize, time: Duration) -> f64 {
    number(count) / time.as_secs_f64()
}

/// Formats a figure with about three significant digits; more would not be accurate.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".to_owned(),
        size if size.is_infinite() => "∞".to_owned(),
        size if size >= 100.0 => thousands(value),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.01 || size == 0.0 => format!("{value:.2}"),
        size if size >= 0.000_01 => format!("{value:.5}"),
        _ => "0".to_owned(),
    }
}

/// The median, with the smallest and the largest value in brackets.
pub(crate) fn with_spread<T>(samples: &[T], figure: impl Fn(&T) -> f64) -> String {
    let (low, high) = spread(samples.iter().map(&figure));
    let middle = short(middle(samples, figure));
    if samples.len() < 2 {
        return middle;
    }
    format!("{middle} ({}–{})", short(low), short(high))
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 {
        text.insert(0, '-');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_of_the_list() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&sorted, 0.0), 1);
        assert_eq!(percentile(&sorted, 0.5), 51);
        assert_eq!(percentile(&sorted, 0.99), 100);
        assert_eq!(percentile(&sorted, 1.0), 100);
        assert_eq!(percentile(&[], 0.5), 0);
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "no rounding in halves")]
    fn the_median_is_in_the_middle_and_the_spread_at_the_ends() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
        assert_eq!(spread([3.0, 1.0, 2.0]), (1.0, 3.0));
    }

    #[test]
    #[allow(clippy::float_cmp, reason = "no rounding in halves")]
    fn a_ratio_is_taken_within_each_round() {
        // The second round was disturbed, for both sides.
        assert_eq!(ratio(&[2.0, 20.0, 2.0], &[1.0, 10.0, 2.0], |x| *x), 2.0);
    }

    #[test]
    fn figures_are_as_long_as_they_are_true() {
        let shown = [0.0, 0.001_234, 0.954, 12.34, 123.4, 75_317.4, f64::NAN].map(short);
        assert_eq!(
            shown,
            ["0.00", "0.00123", "0.95", "12.3", "123", "75,317", "–"]
        );
        assert_eq!(short(f64::INFINITY), "∞");
        assert_eq!(with_spread(&[1.0, 3.0, 2.0], |x| *x), "2.00 (1.00–3.00)");
    }
}
