//! What all pictures are drawn on: an SVG of fixed width that the page scales, text in it, and
//! scales with readable ticks; knows nothing of what is drawn.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::{DrawingArea, IntoDrawingArea, IntoFont, Rectangle, SVGBackend, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, RGBColor, TextStyle};

use crate::BenchError;
use crate::text;

/// Where a picture is drawn.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws a picture of this height.
///
/// # Errors
/// What the drawing says.
pub(super) fn svg(
    title: &str,
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> Result<(), BenchError>,
) -> Result<String, BenchError> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&area)?;
        area.present().map_err(drawing)?;
    }
    // Inside of a page no name space is needed, and the size is the page's to say.
    let (_, body) = svg.split_once('>').unwrap_or_default();
    let title = super::prose::escaped(title);
    Ok(format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">{}",
        body.trim_start()
    ))
}

/// A failure to draw.
pub(super) fn drawing(cause: impl std::fmt::Display) -> BenchError {
    BenchError::failed("drawing a picture", cause)
}

/// Writes a line of text; `anchor` is the side of the text that lies at `x`, its middle at `y`.
pub(super) fn write(
    area: &Area<'_>,
    words: &str,
    (x, y): (i32, i32),
    anchor: HPos,
    colour: RGBColor,
) -> Result<(), BenchError> {
    let pos = Pos::new(anchor, VPos::Center);
    let style = TextStyle::from(font()).pos(pos).color(&colour);
    area.draw(&Text::new(words.to_owned(), (x, y), style)).map_err(drawing)
}

/// Fills a rectangle.
pub(super) fn fill(
    area: &Area<'_>,
    corners: [(i32, i32); 2],
    colour: RGBColor,
) -> Result<(), BenchError> {
    area.draw(&Rectangle::new(corners, colour.filled())).map_err(drawing)
}

/// The font of all text.
pub(super) fn font() -> FontDesc<'static> {
    ("sans-serif", FONT_PX).into_font()
}

/// About how wide a text is; the page's font is not known.
pub(super) fn text_width(words: &str) -> i32 {
    i32::try_from(words.chars().count()).unwrap_or(i32::MAX / 16).saturating_mul(CHARACTER_PX)
}

/// Lines of at most so many characters, cut between words.
pub(super) fn wrapped(words: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// An axis with its ticks.
#[derive(Debug, Clone)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    bytes: bool,
    ticks: Vec<f64>,
}

impl Scale {
    /// Over all of `values`; one of equal steps begins at zero unless there are lower values.
    pub(super) fn over(values: impl Iterator<Item = f64> + Clone, log: bool, bytes: bool) -> Self {
        let finite = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        // No value at all.
        let (low, high) = if low > high { (1.0, 2.0) } else { (low, high) };
        if log { Self::log(low, high, bytes) } else { Self::linear(low.min(0.0), high, bytes) }
    }

    fn linear(low: f64, high: f64, bytes: bool) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let rough = (high - low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        let count = ((high - low) / step).round();
        let ticks = (0..16).map(f64::from).filter(|at| *at <= count).map(|at| low + at * step);
        Self { low, high, log: false, bytes, ticks: ticks.collect() }
    }

    fn log(low: f64, high: f64, bytes: bool) -> Self {
        // Decades are too coarse for what grows by little.
        let base: f64 = if bytes || high / low <= SMALL_GROWTH { 2.0 } else { 10.0 };
        let first = (low.log(base) + TOLERANCE).floor();
        let last = (high.log(base) - TOLERANCE).ceil().max(first + 1.0);
        let stride = ((last - first) / TICKS_MAX).ceil().max(1.0);
        let exponents = (0..64).map(|at| first + f64::from(at) * stride);
        let ticks = exponents.take_while(|at| *at <= last + TOLERANCE).map(|at| base.powf(at));
        let (low, high) = (base.powf(first), base.powf(last));
        Self { low, high, log: true, bytes, ticks: ticks.collect() }
    }

    /// Where a value lies, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let at = |value: f64| if self.log { value.max(self.low).ln() } else { value };
        let (low, high) = (at(self.low), at(self.high));
        ((at(value) - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// The marked values.
    pub(super) fn ticks(&self) -> &[f64] {
        &self.ticks
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[allow(clippy::cast_possible_truncation, reason = "a share of the picture's pixels")]
    fn map(&self, value: &f64, (begin, end): (i32, i32)) -> i32 {
        begin + (f64::from(end - begin) * self.share(*value)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are whole")]
    fn format_ext(&self, value: &f64) -> String {
        if self.bytes { text::bytes(value.round() as u64) } else { short(*value) }
    }
}

/// A number with no more digits than it needs.
pub(super) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e9 => format!("{}G", plain(value / 1e9)),
        _ if size >= 1e6 => format!("{}M", plain(value / 1e6)),
        _ if size >= 1e4 => format!("{}k", plain(value / 1e3)),
        _ => plain(value),
    }
}

fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    // What is too small for three digits must not read as nothing.
    if text.trim_start_matches('-') == "0" && value != 0.0 {
        format!("{value:.0e}")
    } else {
        text.to_owned()
    }
}

/// The width that all pictures are drawn with.
pub(super) const WIDTH: u32 = 520;
/// The same, for what is reckoned with places.
pub(super) const RIGHT: i32 = 520;
const FONT_PX: i32 = 15;
/// About the width of a character in any font.
pub(super) const CHARACTER_PX: i32 = 8;
/// Of a logarithm, which seldom is a whole number where it should be.
const TOLERANCE: f64 = 1e-9;
/// Up to this, ticks are powers of two.
const SMALL_GROWTH: f64 = 64.0;
const TICKS_MAX: f64 = 7.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_around_all_values() {
        let ticks = |values: &[f64], log, bytes| {
            let scale = Scale::over(values.iter().copied(), log, bytes);
            scale.ticks().iter().map(|tick| scale.format_ext(tick)).collect::<Vec<_>>()
        };
        assert_eq!(ticks(&[3.0, 47.0], false, false), ["0", "10", "20", "30", "40", "50"]);
        assert_eq!(ticks(&[3.0, 4700.0], true, false), ["1", "10", "100", "1000", "10k"]);
        assert_eq!(ticks(&[1.0, 16.0], true, false), ["1", "2", "4", "8", "16"]);
        assert_eq!(ticks(&[4096.0, 16384.0], true, true), ["4 KiB", "8 KiB", "16 KiB"]);
        assert_eq!(ticks(&[0.0], false, false).first().map(String::as_str), Some("0"));
        assert!(!ticks(&[], true, false).is_empty());
        assert!(!ticks(&[f64::NAN, 0.0], true, false).is_empty());
        assert_eq!((short(0.000_04), short(250_000.0)), ("4e-5".into(), "250k".into()));
    }

    #[test]
    fn text_is_cut_between_words() {
        assert_eq!(wrapped("driver copies into a buffer", 13), ["driver copies", "into a buffer"]);
        assert_eq!(wrapped("incomprehensibilities", 5), ["incomprehensibilities"]);
    }
}
