//! The marks of one lock's name.

use std::collections::HashMap;

use crate::store::BootInstant;

#[derive(Debug)]
pub(crate) struct KeptMark {
    pub(crate) text: String,
    until: BootInstant,
    /// The number of the write, so that the newest can be told.
    written: u64,
}

#[derive(Debug, Default)]
pub(crate) struct SlotMarks {
    slots: HashMap<String, KeptMark>,
    writes: u64,
}

impl SlotMarks {
    pub(crate) fn drop_expired(&mut self, now: BootInstant) {
        self.slots.retain(|_, mark| mark.until > now);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn get(&self, slot: &str) -> Option<&KeptMark> {
        self.slots.get(slot)
    }

    pub(crate) fn put(&mut self, slot: &str, text: &str, until: BootInstant) {
        self.writes += 1;
        let mark = KeptMark {
            text: text.to_owned(),
            until,
            written: self.writes,
        };
        self.slots.insert(slot.to_owned(), mark);
    }

    pub(crate) fn newest(&self, limit: u32) -> Vec<(String, String)> {
        let mut marks: Vec<_> = self.slots.iter().collect();
        marks.sort_by_key(|(_, mark)| std::cmp::Reverse(mark.written));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let newest = marks.into_iter().take(limit);
        newest
            .map(|(slot, mark)| (slot.clone(), mark.text.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_that_was_written_last_comes_first() {
        let mut marks = SlotMarks::default();
        for slot in ["1", "2", "3", "4", "5", "6", "7", "8", "1"] {
            marks.put(slot, "text", BootInstant(9));
        }
        let newest = |limit| -> Vec<String> {
            let newest = marks.newest(limit).into_iter();
            newest.map(|(slot, _)| slot).collect()
        };
        assert_eq!(newest(9), ["1", "8", "7", "6", "5", "4", "3", "2"]);
        assert_eq!(newest(2), ["1", "8"]);
    }
}
