//! Draws figures as bar charts, in SVG that is legible on light and on dark backgrounds.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// One chart.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) file: &'static str,
    pub(crate) title: String,
    pub(crate) bars: Bars,
}

/// Groups of bars, each bar with its peer and its figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Bars(Vec<(String, Vec<(String, f64)>)>);

impl Bars {
    /// Takes (peer, group, figure) triples. Groups appear in the order in which they are first named.
    pub(crate) fn grouped(figures: &[(&str, String, f64)]) -> Self {
        let mut groups: Vec<(String, Vec<(String, f64)>)> = Vec::new();
        for (who, group, figure) in figures {
            let bar = ((*who).replace('`', ""), *figure);
            match groups.iter_mut().find(|(name, _)| name == group) {
                Some((_, bars)) => bars.push(bar),
                None => groups.push((group.clone(), vec![bar])),
            }
        }
        Self(groups)
    }
}

const WIDTH: i32 = 760;
/// The height of a bar, and the distance from one bar to the next.
const BAR: i32 = 13;
const STEP: i32 = 18;
/// The space above each group, for its name.
const HEAD: i32 = 30;
/// The x coordinate at which bars begin; peer names are to the left.
const LEFT: i32 = 190;
/// The free space on the right, for the figure of the longest bar.
const RIGHT: i32 = 80;

/// A grey that contrasts with both white and black.
const INK: RGBColor = RGBColor(0x80, 0x80, 0x80);
const OURS: RGBColor = RGBColor(0x1f, 0x8a, 0x9e);
const OTHERS: RGBColor = RGBColor(0x9a, 0xa5, 0xb1);
const YARDSTICK: RGBColor = RGBColor(0xc8, 0x8a, 0x3d);

impl Chart {
    /// Renders the chart. Bar lengths are logarithmic because the figures differ by a factor of a thousand.
    pub(crate) fn svg(&self) -> Result<String> {
        let rows: usize = self.bars.0.iter().map(|(_, bars)| bars.len()).sum();
        let rows = i32::try_from(rows)?;
        let groups = i32::try_from(self.bars.0.len())?;
        let height = 30 + groups * (HEAD + 8) + rows * STEP;
        let mut text = String::new();
        {
            let size = (u32::try_from(WIDTH)?, u32::try_from(height)?);
            let paper = SVGBackend::with_string(&mut text, size).into_drawing_area();
            self.draw(&paper)
                .map_err(|error| anyhow!("drawing {}: {error}", self.file))?;
            paper
                .present()
                .map_err(|error| anyhow!("drawing {}: {error}", self.file))?;
        }
        Ok(text)
    }

    fn draw<B: DrawingBackend>(
        &self,
        paper: &DrawingArea<B, plotters::coord::Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let words = |size: i32, at: HPos| {
            ("sans-serif", size, &INK)
                .into_text_style(paper)
                .pos(Pos::new(at, VPos::Center))
        };
        paper.draw_text(
            &format!("{} (logarithmic)", self.title),
            &words(18, HPos::Left),
            (8, 14),
        )?;
        let scale = Scale::of(self.bars.0.iter().flat_map(|(_, bars)| bars).map(|b| b.1));
        let mut y = 30;
        for (group, bars) in &self.bars.0 {
            y += HEAD;
            paper.draw_text(group, &words(16, HPos::Left), (8, y - 14))?;
            for (who, figure) in bars {
                let end = LEFT + scale.length(*figure);
                paper.draw_text(who, &words(15, HPos::Right), (LEFT - 8, y + BAR / 2))?;
                let bar = Rectangle::new([(LEFT, y), (end, y + BAR)], colour(who).filled());
                paper.draw(&bar)?;
                let figure = crate::figures::short(*figure);
                paper.draw_text(&figure, &words(14, HPos::Left), (end + 6, y + BAR / 2))?;
                y += STEP;
            }
            y += 8;
        }
        Ok(())
    }
}

fn colour(who: &str) -> RGBColor {
    match who {
        "tidelock" | "tidelock without hand-off" => OURS,
        "bare scripts" | "tokio::sync::Mutex" => YARDSTICK,
        _ => OTHERS,
    }
}

/// Maps figures to bar lengths.
struct Scale {
    /// The logarithm that maps to length zero: 0.3 below the smallest figure's.
    zero: f64,
    each_tenfold: f64,
}

impl Scale {
    fn of(figures: impl Iterator<Item = f64>) -> Self {
        let logs = figures.filter(|figure| *figure > 0.0).map(f64::log10);
        let (low, high) = crate::figures::spread(logs);
        let zero = if low.is_finite() { low - 0.3 } else { 0.0 };
        let width = f64::from(WIDTH - LEFT - RIGHT);
        Self {
            zero,
            each_tenfold: width / (high - zero).max(0.1),
        }
    }

    fn length(&self, figure: f64) -> i32 {
        if figure.is_nan() || figure <= 0.0 {
            return 1;
        }
        #[allow(clippy::cast_possible_truncation, reason = "a width in a picture")]
        let length = ((figure.log10() - self.zero) * self.each_tenfold) as i32;
        length.clamp(1, WIDTH - LEFT - RIGHT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart {
            file: "a",
            title: "So many".into(),
            bars: Bars::grouped(&[
                ("tidelock", "1 task".into(), 10.0),
                ("`redsync`", "1 task".into(), 1000.0),
                ("tidelock", "64 tasks".into(), f64::NAN),
            ]),
        }
    }

    #[test]
    fn figures_are_grouped_in_their_order() {
        let Bars(groups) = chart().bars;
        let names = groups.iter().map(|(name, bars)| (&**name, bars.len()));
        assert_eq!(names.collect::<Vec<_>>(), [("1 task", 2), ("64 tasks", 1)]);
    }

    #[test]
    fn a_longer_bar_is_a_larger_figure() {
        let scale = Scale::of([10.0, 1000.0].into_iter());
        assert!(scale.length(1000.0) > 2 * scale.length(10.0));
        assert_eq!(scale.length(1000.0), WIDTH - LEFT - RIGHT);
        assert_eq!(scale.length(f64::NAN), 1);
    }

    #[test]
    fn a_chart_has_its_words_and_no_paper_of_its_own() {
        let svg = chart().svg().unwrap();
        for word in ["So many", "tidelock", "redsync", "1,000", "#1F8A9E"] {
            assert!(svg.contains(word), "{word} is not in\n{svg}");
        }
        assert!(
            !svg.contains("#FFFFFF"),
            "it would be a white hole in the dark"
        );
    }
}
