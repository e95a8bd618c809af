use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};

use super::super::RedisServer;

/// One line of `CLUSTER NODES`: one node's view of another, or of itself.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) id: String,
    flags: Vec<String>,
    /// For a replica: the id of its primary.
    pub(super) follows: Option<String>,
    pub(super) epoch: u64,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl Line {
    fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [id, _, flags, follows, _, _, epoch, _, slots @ ..] = words.as_slice() else {
            return Err(anyhow::anyhow!("no line of CLUSTER NODES: {line}"));
        };
        // `[5-<-…]` is a slot in migration.
        let slots = slots.iter().filter(|slots| !slots.starts_with('['));
        Ok(Self {
            id: (*id).to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            follows: (*follows != "-").then(|| (*follows).to_owned()),
            epoch: epoch.parse()?,
            slots: slots.map(|slots| range(slots)).collect::<Result<_>>()?,
        })
    }

    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

fn range(slots: &str) -> Result<RangeInclusive<u16>> {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    let parse = |slot: &str| slot.parse().with_context(|| format!("slots {slots}"));
    Ok(parse(first)?..=parse(last)?)
}

/// The view that this node has of all nodes.
pub(super) fn of(node: &RedisServer) -> Result<Vec<Line>> {
    let text: String = node.query(&["CLUSTER", "NODES"])?;
    text.lines().map(Line::parse).collect()
}

/// Id and slots of each primary that owns some, by the epoch of its claim.
type Owners = BTreeMap<u64, (String, Vec<RangeInclusive<u16>>)>;

/// The owners of the slots, by the epoch of the claim.
///
/// # Errors
/// Fails when two claims have the same epoch: the cluster will raise one of them, and that node may take back migrated
/// slots.
pub(super) fn owners(lines: &[Line]) -> Result<Owners> {
    let mut owners = BTreeMap::new();
    for line in lines.iter().filter(|line| !line.slots.is_empty()) {
        let claim = (line.id.clone(), line.slots.clone());
        let other = owners.insert(line.epoch, claim);
        ensure!(
            other.is_none(),
            "two primaries claim in epoch {}",
            line.epoch
        );
    }
    Ok(owners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() -> Result<()> {
        let line = Line::parse(
            "07c3 127.0.0.1:30004@31004,host myself,master - 0 1426 4 connected 100-5460 7 [9->-67ed]",
        )?;
        assert!(line.is("myself") && line.follows.is_none() && line.epoch == 4);
        assert!(line.has(5460) && line.has(7) && !line.has(9));
        let line = Line::parse("a :0@0 slave,fail b 1 2 3 disconnected")?;
        assert!(line.is("fail") && line.follows.as_deref() == Some("b") && line.slots.is_empty());
        Ok(())
    }
}
