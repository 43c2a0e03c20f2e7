//! The colours of pictures, on light and on dark paper.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use crate::section::{Plot, Series};

/// A colour on light paper, and what stands for it on dark.
pub(super) type Colour = (RGBColor, RGBColor);

/// Text and axes.
pub(super) const INK: Colour = (RGBColor(0x1b, 0x1f, 0x24), RGBColor(0xe4, 0xe7, 0xeb));
/// What is said by the way.
pub(super) const MUTED: Colour = (RGBColor(0x5f, 0x69, 0x75), RGBColor(0x9a, 0xa4, 0xb0));
/// Lines of a grid.
pub(super) const GRID: Colour = (RGBColor(0xd9, 0xdd, 0xe3), RGBColor(0x34, 0x3a, 0x42));
/// Behind text.
pub(super) const SOFT: Colour = (RGBColor(0xec, 0xf1, 0xf8), RGBColor(0x23, 0x2b, 0x36));
/// One after the other, told apart by people who see fewer colours too.
const SERIES: [Colour; COUNT] = [
    (RGBColor(0x1f, 0x6f, 0xc4), RGBColor(0x6a, 0xae, 0xf5)),
    (RGBColor(0xd5, 0x5e, 0x00), RGBColor(0xf5, 0x93, 0x4a)),
    (RGBColor(0x00, 0x8f, 0x6b), RGBColor(0x3f, 0xcb, 0xa2)),
    (RGBColor(0xb0, 0x4a, 0x8a), RGBColor(0xe0, 0x8b, 0xbf)),
    (RGBColor(0x8a, 0x6d, 0x00), RGBColor(0xe3, 0xc3, 0x45)),
    (RGBColor(0x4b, 0x9c, 0xc4), RGBColor(0x8f, 0xd4, 0xf2)),
    (RGBColor(0x6b, 0x4f, 0xbb), RGBColor(0xb0, 0x9c, 0xf0)),
    (RGBColor(0x70, 0x70, 0x70), RGBColor(0xb5, 0xb5, 0xb5)),
];

const COUNT: usize = 8;

/// What each name of a section looks like: the same in all of its pictures.
#[derive(Debug, Default)]
pub(super) struct Palette<'a> {
    names: Vec<&'a str>,
}

impl<'a> Palette<'a> {
    /// Of all curves, stretches of time and ways in these pictures, in the order in which they come.
    pub(super) fn of(plots: &'a [Plot]) -> Self {
        let mut palette = Self::default();
        for plot in plots {
            match plot {
                Plot::Lines { series, .. } => palette.add(series.iter().map(Series::name)),
                Plot::Timeline { lanes, .. } => {
                    let spans = lanes.iter().flat_map(|lane| &lane.spans);
                    palette.add(spans.map(|span| span.label.as_str()));
                }
                Plot::Flow { rows, .. } => palette.add(rows.iter().map(|row| lead(&row.name))),
                // Bars have their names beside them, and take a colour only where there is one.
                Plot::Bars { .. } => {}
            }
        }
        palette
    }

    fn add(&mut self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            if !self.names.contains(&name) {
                self.names.push(name);
            }
        }
    }

    /// The colour of a name.
    pub(super) fn colour(&self, name: &str) -> RGBColor {
        SERIES[self.place(name).unwrap_or(0) % COUNT].0
    }

    /// Whether another name has the colour already: it is drawn with rings on a thin line.
    pub(super) fn is_second(&self, name: &str) -> bool {
        self.place(name).is_some_and(|place| place >= COUNT)
    }

    /// The colours of bars: each has that of its name, and those without one share a colour that no
    /// name has.
    pub(super) fn bars(&self, names: &[&str]) -> Vec<RGBColor> {
        let other = SERIES.get(self.names.len()).unwrap_or(&MUTED).0;
        let of = |name: &&str| self.place(name).map_or(other, |place| SERIES[place % COUNT].0);
        names.iter().map(of).collect()
    }

    /// The whole name, or what stands before its first comma.
    fn place(&self, name: &str) -> Option<usize> {
        let of = |wanted: &str| self.names.iter().position(|known| *known == wanted);
        of(name).or_else(|| of(lead(name)))
    }
}

/// What a way or bar is of: "pageable, h2d" is of pageable memory.
fn lead(name: &str) -> &str {
    name.split(',').next().unwrap_or(name)
}

/// As an attribute of SVG has it.
pub(super) fn hex(colour: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2)
}

/// The rules of legends, and those that swap the colours of pictures where the reader's paper is
/// dark: a rule is stronger than an attribute of SVG.
pub(super) fn rules() -> String {
    let mut rules = String::new();
    for (light, _) in SERIES {
        rules.push_str(&legend_rule(light, light));
    }
    rules.push_str("@media (prefers-color-scheme: dark) {\n");
    for (light, dark) in [INK, MUTED, GRID, SOFT].into_iter().chain(SERIES) {
        let (from, to) = (hex(light), hex(dark));
        // Writing to a `String` cannot fail.
        let _ = write!(
            rules,
            "svg [stroke=\"{from}\"] {{ stroke: {to}; }}\nsvg [fill=\"{from}\"] {{ fill: {to}; }}\n{}",
            legend_rule(light, dark),
        );
    }
    rules.push_str("}\n");
    rules
}

fn legend_rule(name: RGBColor, shown: RGBColor) -> String {
    format!(".legend i[data-colour=\"{}\"] {{ color: {}; }}\n", hex(name), hex(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::{Axis, Bar, FlowRow};

    fn lines(names: &[&str]) -> Plot {
        let points = names.iter().map(|name| (*name, 1.0, 1.0));
        Plot::lines("", Axis::default(), Axis::default(), points)
    }

    #[test]
    fn a_name_has_one_colour_in_all_pictures_of_a_section() {
        let flow = FlowRow { name: "pageable, h2d, 20 ms".into(), steps: Vec::new() };
        let plots = [
            lines(&["pinned", "a lease", "pageable"]),
            lines(&["pageable", "pinned, shared"]),
            Plot::Flow { title: String::new(), rows: vec![flow] },
            Plot::Bars { title: String::new(), unit: String::new(), bars: vec![Bar::default()] },
        ];
        let palette = Palette::of(&plots);
        let at = |place: usize| SERIES[place].0;
        assert_eq!(palette.names, ["pinned", "a lease", "pageable", "pinned, shared"]);
        let colours = ["pageable", "pageable, h2d, 20 ms"].map(|name| palette.colour(name));
        assert_eq!(colours, [at(2); 2]);
        assert_eq!(palette.colour("pinned, shared"), at(3));
        assert_eq!(palette.bars(&["pinned, d2h", "malloc"]), [at(0), at(4)]);
        assert_eq!(Palette::default().bars(&["malloc", "calloc"]), [at(0); 2]);
    }

    #[test]
    fn past_the_last_colour_names_are_drawn_in_another_way() {
        let names: Vec<String> = (0..=COUNT).map(|at| at.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let plots = [lines(&names)];
        let palette = Palette::of(&plots);
        assert_eq!(palette.colour(names[COUNT]), palette.colour(names[0]));
        assert_eq!(palette.bars(&["another"]), [MUTED.0]);
        assert_eq!(
            [0, COUNT - 1, COUNT].map(|at| palette.is_second(names[at])),
            [false, false, true]
        );
    }
}
