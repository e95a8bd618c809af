//! The numbers that the server gives to the nodes of a name.

/// The number of a node: a node that came earlier has a smaller one, unless both are late.
///
/// The server counts in 32 bits. What comes after 2147483647 depends on its version: since 3.6 it stays there, and gives the same
/// number again and again; before, it goes on with -2147483648. So nothing says in which order the late ones came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SequenceNumber {
    /// The first field: it decides the order before the digits do, as a late node came after all that are not late.
    is_late: bool,
    digits: i64,
}

impl SequenceNumber {
    /// `None`: these are no digits.
    pub(crate) fn of(digits: &str) -> Option<Self> {
        // The name of the node with a semaphore's number ends so, which puts it ahead of all that the server numbers. A server
        // before 3.6 would write -000000001.
        let is_first = digits == "-1";
        let digits = digits.parse().ok()?;
        let counted = 0..i64::from(i32::MAX);
        Some(Self {
            is_late: !is_first && !counted.contains(&digits),
            digits,
        })
    }

    /// Whether the server has used up its numbers. Such a node must not enter: one that came before it may be ordered behind it.
    pub(crate) fn is_late(self) -> bool {
        self.is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_numbers_are_behind_all_others() {
        let of = |digits: &str| SequenceNumber::of(digits).unwrap();
        let ordered = ["-1", "0000000000", "0000000007", "2147483646"].map(of);
        assert!(ordered.is_sorted() && ordered.iter().all(|it| !it.is_late()));
        for late in ["2147483647", "-2147483648", "-000000001", "2147483648"].map(of) {
            assert!(late.is_late() && late > ordered[3], "{late:?}");
        }
        assert_eq!(SequenceNumber::of("12a"), None);
    }
}
