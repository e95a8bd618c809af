//! Targets, and whether the measured figures meet them.

use crate::figures::short;

/// An upper or a lower bound.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// One target.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) limit: Limit,
    pub(crate) unit: &'static str,
    /// `None` if this run did not measure it.
    pub(crate) measured: Option<f64>,
}

impl Goal {
    pub(crate) fn at_most(
        what: impl Into<String>,
        most: f64,
        unit: &'static str,
        measured: Option<f64>,
    ) -> Self {
        Self {
            what: what.into(),
            limit: Limit::AtMost(most),
            unit,
            measured,
        }
    }

    pub(crate) fn at_least(
        what: impl Into<String>,
        least: f64,
        unit: &'static str,
        measured: Option<f64>,
    ) -> Self {
        Self {
            limit: Limit::AtLeast(least),
            ..Self::at_most(what, 0.0, unit, measured)
        }
    }

    /// The table row: name, target, measured figure, and whether the target was met.
    pub(crate) fn row(&self) -> Vec<String> {
        let (sign, limit) = match self.limit {
            Limit::AtMost(most) => ("≤", most),
            Limit::AtLeast(least) => ("≥", least),
        };
        let show = |value: f64| format!("{}{}", short(value), self.unit);
        vec![
            self.what.clone(),
            format!("{sign} {}", show(limit)),
            self.measured.map_or_else(|| "–".to_owned(), show),
            self.verdict(),
        ]
    }

    fn verdict(&self) -> String {
        let Some(measured) = self.measured.filter(|value| !value.is_nan()) else {
            return "not measured".to_owned();
        };
        let (met, off) = match self.limit {
            Limit::AtMost(most) => (measured <= most, measured / most),
            Limit::AtLeast(least) => (measured >= least, least / measured),
        };
        if met {
            "met".to_owned()
        } else if off.is_finite() {
            format!("**missed** by {} ×", short(off))
        } else {
            "**missed**".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(goal: &Goal) -> String {
        goal.row().pop().unwrap()
    }

    #[test]
    fn a_goal_is_met_up_to_its_limit() {
        assert_eq!(verdict(&Goal::at_most("a", 2.0, " ×", Some(2.0))), "met");
        assert_eq!(verdict(&Goal::at_least("a", 0.5, "", Some(0.5))), "met");
    }

    #[test]
    fn a_goal_that_is_missed_says_by_how_much() {
        let slow = Goal::at_most("a", 2.0, " ×", Some(3.0));
        assert_eq!(
            slow.row(),
            ["a", "≤ 2.00 ×", "3.00 ×", "**missed** by 1.50 ×"]
        );
        let few = Goal::at_least("a", 1.0, "", Some(0.25));
        assert_eq!(verdict(&few), "**missed** by 4.00 ×");
        assert_eq!(
            verdict(&Goal::at_least("a", 1.0, "", Some(0.0))),
            "**missed**"
        );
    }

    #[test]
    fn a_goal_without_a_measurement_is_not_met() {
        assert_eq!(verdict(&Goal::at_most("a", 1.0, "", None)), "not measured");
        assert_eq!(
            verdict(&Goal::at_most("a", 1.0, "", Some(f64::NAN))),
            "not measured"
        );
    }
}
