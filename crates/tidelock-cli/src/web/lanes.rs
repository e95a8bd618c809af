//! The timeline of a lock as a table: a lane for each holder, with a bar for each hold.

use tokio::time::Instant;

use crate::top::text::brief;
use crate::web::timeline::{Hold, KEPT, Timeline};
use crate::web::view::{Row, Table, cell, key};

/// The lanes of this many holders are shown, those that held the lock last first.
const MOST_LANES: usize = 12;

/// A shorter bar could not be seen.
const SHORTEST_BAR: u64 = 3;

/// A hold on a lane, in seconds from the left end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) from: u64,
    pub(super) width: u64,
    /// `now`: it goes on.
    pub(super) state: &'static str,
}

/// Who held the lock.
pub(super) fn table(lock: &str, timeline: &Timeline) -> Table {
    let now = Instant::now();
    let mut lanes: Vec<(&str, Vec<&Hold>)> = Vec::new();
    for hold in timeline.of(lock) {
        match lanes.iter_mut().find(|(who, _)| *who == hold.who) {
            Some((_, holds)) => holds.push(hold),
            None => lanes.push((&hold.who, vec![hold])),
        }
    }
    let newest = |holds: &[&Hold]| holds.iter().map(|hold| hold.to).max();
    lanes.sort_by_key(|(_, holds)| std::cmp::Reverse(newest(holds)));
    lanes.truncate(MOST_LANES);
    Table {
        id: "timeline",
        caption: "Who held it in the last 15 minutes, as this page saw it; a look misses short holds",
        columns: vec!["holder", "15 minutes until now", "holds", "held", "last"],
        numbers: 2,
        rows: lanes.iter().map(|lane| row(lane, now)).collect(),
        empty: "it was not seen held",
    }
}

fn row((who, holds): &(&str, Vec<&Hold>), now: Instant) -> Row {
    let held = holds.iter().map(|hold| hold.to - hold.from).sum();
    let last = holds.iter().map(|hold| now - hold.to).min();
    let is_now = holds.iter().any(|hold| hold.is_now);
    let mut lane = cell("");
    lane.bars = holds.iter().filter_map(|hold| bar(hold, now)).collect();
    Row {
        key: key(who),
        state: "",
        cells: vec![
            cell(who),
            lane,
            cell(holds.len().to_string()),
            cell(brief(held)),
            cell(match last {
                Some(last) if !is_now => format!("{} ago", brief(last)),
                _ => "now".to_owned(),
            }),
        ],
    }
}

/// `None`: it is older than the lane.
fn bar(hold: &Hold, now: Instant) -> Option<Bar> {
    let end = if hold.is_now { now } else { hold.to };
    let from_left = |at: Instant| KEPT.checked_sub(now - at).map(|left| left.as_secs());
    let to = from_left(end)?;
    let from = from_left(hold.from).unwrap_or(0);
    let width = (to - from).max(SHORTEST_BAR);
    Some(Bar {
        from: from.min(KEPT.as_secs() - SHORTEST_BAR),
        width,
        state: if hold.is_now { "now" } else { "" },
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::top::sample::picture;

    #[test]
    fn a_holder_has_one_lane_with_all_its_holds() {
        let now = Instant::now() + Duration::from_secs(3600);
        let mut timeline = Timeline::default();
        for (ago, held) in [(600, 30), (300, 10), (0, 12)] {
            let mut seen = picture();
            seen.locks.truncate(1);
            seen.locks[0].held_for = Some(Duration::from_secs(held));
            timeline.add(&seen, now - Duration::from_secs(ago));
        }
        let holds: Vec<&Hold> = timeline.of("order:stock:42").collect();
        let bars: Vec<Bar> = holds.iter().filter_map(|hold| bar(hold, now)).collect();
        let expected = [(270, 30, ""), (590, 10, ""), (888, 12, "now")];
        let expected = expected.map(|(from, width, state)| Bar { from, width, state });
        assert_eq!(bars, expected);
        let row = row(&("shop", holds), now);
        let texts: Vec<&str> = row.cells.iter().map(|cell| &*cell.text).collect();
        assert_eq!(texts, ["shop", "", "3", "52s", "now"]);
    }

    #[test]
    fn a_bar_ends_at_the_ends_of_its_lane() {
        let now = Instant::now() + Duration::from_secs(3600);
        let ago = |seconds| now - Duration::from_secs(seconds);
        let mut timeline = Timeline::default();
        let mut seen = picture();
        seen.locks[0].held_for = Some(Duration::from_secs(2000));
        timeline.add(&seen, ago(100));
        seen.locks[0].held_for = Some(Duration::ZERO);
        timeline.add(&seen, now);
        let bars = timeline
            .of("order:stock:42")
            .filter_map(|hold| bar(hold, now));
        let bars: Vec<(u64, u64)> = bars.map(|bar| (bar.from, bar.width)).collect();
        assert_eq!(bars, [(0, 800), (897, 3)]);
    }
}
