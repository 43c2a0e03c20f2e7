//! The colours of pictures, on light and on dark paper.

use std::fmt::Write as _;

use plotters::style::RGBColor;

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

/// Colours of curves and names.
pub(super) const COUNT: usize = 8;

/// The colour of the curve or name at `index`.
pub(super) fn series(index: usize) -> RGBColor {
    SERIES[index % SERIES.len()].0
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
