//! The numbers that the server gives to the nodes of a name, and their order.

/// The server counts in 32 bits.
pub(crate) fn wrapped(digits: &str) -> Option<i32> {
    let number: i64 = digits.parse().ok()?;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the server counts in 32 bits"
    )]
    let wrapped = number as i32;
    Some(wrapped)
}

/// Orders by number.
///
/// The server counts the nodes of a lock in 32 bits, and after 2147483647 comes -2147483648. So numbers are compared by how far
/// they are from each other: otherwise the first that comes after the turn would stand before the holder, and enter.
///
/// If they are far apart, the order is not that of their arrival, but still the same for everybody, in whatever order the server
/// lists the nodes.
pub(crate) fn by_distance<T: Ord>(numbered: Vec<(i32, T)>) -> Vec<T> {
    let numbers = numbered.iter().map(|(number, _)| *number);
    let first = numbers.clone().next().filter(|_| !are_far_apart(numbers));
    let from = first.unwrap_or_default();
    let distance = |(number, node): (i32, T)| (number.wrapping_sub(from), node);
    let mut queue: Vec<(i32, T)> = numbered.into_iter().map(distance).collect();
    queue.sort_unstable();
    queue.into_iter().map(|(_, node)| node).collect()
}

/// The largest distance between two numbers whose order is certain, with room for nodes that are being created.
const MOST_APART: i64 = 1 << 30;

/// Whether the order of these numbers is not certain. A node can stay for so long that 2147483648 others come and go meanwhile.
/// From then on the newest would be ordered before it, and would get what it has.
pub(crate) fn are_far_apart(mut numbers: impl Iterator<Item = i32> + Clone) -> bool {
    let from = numbers.clone().next().unwrap_or_default();
    let distance = |number: i32| i64::from(number.wrapping_sub(from));
    let least = numbers.clone().map(distance).min().unwrap_or_default();
    numbers.any(|number| distance(number) - least > MOST_APART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_whose_order_is_not_certain_are_far_apart() {
        let all = |numbers: &[i32]| are_far_apart(numbers.iter().copied());
        for near in [
            &[][..],
            &[7],
            &[0, 1 << 30],
            &[1 << 30, 0],
            &[i32::MAX, i32::MIN, i32::MIN + 5],
        ] {
            assert!(!all(near), "{near:?}");
        }
        for far in [
            &[0, (1 << 30) + 1][..],
            &[(1 << 30) + 1, 0],
            &[i32::MAX - (1 << 30), 9, i32::MIN + 1],
        ] {
            assert!(all(far), "{far:?}");
        }
    }
}
