use std::fmt::Write as _;

use super::Host;

/// Which hosts send to which without effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partition {
    /// Ports at the switch: nothing that comes in at the first leaves at the second.
    pairs: Vec<(String, String)>,
}

impl Partition {
    /// Nothing passes between the two groups, in either direction.
    pub fn between(some: &[Host], others: &[Host]) -> Self {
        Self::one_way(some, others).and(Self::one_way(others, some))
    }

    /// What the first send does not reach the second; the other direction passes.
    pub fn one_way(from: &[Host], to: &[Host]) -> Self {
        let pairs = from.iter().flat_map(|from| {
            let others = to.iter().filter(move |to| *to != from);
            others.map(move |to| (from.port().to_owned(), to.port().to_owned()))
        });
        Self {
            pairs: pairs.collect(),
        }
    }

    /// Each of these hosts is cut off from all the others among them.
    pub fn each_alone(hosts: &[Host]) -> Self {
        Self::one_way(hosts, hosts)
    }

    /// Both at once.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.pairs.extend(other.pairs);
        self
    }

    /// The whole table of the switch. nft applies it in one step.
    pub(super) fn rules(&self) -> String {
        let mut text = String::from(
            "table bridge partition\ndelete table bridge partition\ntable bridge partition {\n\
             chain forward {\ntype filter hook forward priority 0; policy accept;\n",
        );
        for (from, to) in &self.pairs {
            // Writing to a string does not fail.
            let _ = writeln!(text, "iifname \"{from}\" oifname \"{to}\" drop");
        }
        text.push_str("}\n}\n");
        text
    }
}
