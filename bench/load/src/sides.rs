/// Neither number has a divisor in common with a hundred. Otherwise some of a hundred holds would never write.
const STEP: usize = 19;
const STEP_OF_A_TASK: usize = 37;

/// Whether a task takes the reading side of a read-write lock in this hold, its `nth` of a run (from 0), if it reads in
/// `percent` of its holds.
///
/// A formula and not chance: peers of every language compute the same, and the bench knows the side of each stamp. Exactly
/// `percent` of any hundred holds in a row of a task read; the writing ones are spread evenly, differently for each task.
#[must_use]
pub fn reads(task: usize, nth: usize, percent: usize) -> bool {
    (nth * STEP + task * STEP_OF_A_TASK) % 100 < percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentage_of_any_hundred_holds_reads() {
        for (task, percent) in [(0, 95), (3, 95), (7, 50), (1, 0), (2, 100)] {
            let count = (40..140).filter(|nth| reads(task, *nth, percent)).count();
            assert_eq!(count, percent);
        }
    }

    #[test]
    fn writers_are_spread_over_the_holds_and_over_the_tasks() {
        let writes = |task| (0..100).filter(move |nth| !reads(task, *nth, 95));
        assert_eq!(writes(0).collect::<Vec<_>>(), [5, 21, 42, 63, 84]);
        assert_ne!(writes(0).next(), writes(1).next());
    }
}
