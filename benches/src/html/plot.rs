//! Draws the pictures of a section: curves, bars and stretches of time.

use plotters::prelude::{ChartBuilder, Circle, LineSeries, PathElement};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor, TextStyle};

use super::canvas::{self, Area, RIGHT, Scale, drawing, fill, short, write};
use super::colours::{self, GRID, INK, MUTED, Palette};
use super::flow;
use super::prose::{escaped, prose};
use crate::BenchError;
use crate::section::{Axis, Bar, Lane, Plot, Series};
use crate::text;

/// A picture with its title and legend, its names in the colours of the section.
///
/// # Errors
/// What the drawing says.
pub(super) fn figure(plot: &Plot, palette: &Palette<'_>) -> Result<String, BenchError> {
    let title = plot.title();
    let (unit, svg, legend) = match plot {
        Plot::Lines { x, y, series, .. } => {
            let names: Vec<&str> = series.iter().map(Series::name).collect();
            ("", lines(title, [x, y], series, palette)?, names)
        }
        Plot::Bars { unit, bars: all, .. } => {
            (unit.as_str(), bars(title, all, palette)?, Vec::new())
        }
        Plot::Timeline { unit, lanes, .. } => {
            let labels = labels(lanes);
            (unit.as_str(), timeline(title, lanes, palette)?, labels)
        }
        Plot::Flow { rows, .. } => ("ms", flow::draw(title, rows, palette)?, Vec::new()),
    };
    let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
    Ok(format!(
        "<figure><figcaption>{}{}</figcaption>\n{svg}{}</figure>\n",
        prose(title),
        escaped(&unit),
        legend_of(&legend, palette),
    ))
}

fn legend_of(names: &[&str], palette: &Palette<'_>) -> String {
    let item = |name: &&str| {
        let colour = colours::hex(palette.colour(name));
        let class = if palette.is_second(name) { " class=\"ring\"" } else { "" };
        format!("<li><i{class} data-colour=\"{colour}\"></i>{}</li>", prose(name))
    };
    let items: String = names.iter().map(item).collect();
    if items.is_empty() { items } else { format!("<ul class=\"legend\">{items}</ul>") }
}

fn lines(
    title: &str,
    [x, y]: [&Axis; 2],
    series: &[Series],
    palette: &Palette<'_>,
) -> Result<String, BenchError> {
    let points = series.iter().flat_map(|series| series.points.iter().copied());
    let over_x = Scale::over(points.clone().map(|(x, _)| x), x.log, is_bytes(x));
    let over_y = Scale::over(points.map(|(_, y)| y), y.log, is_bytes(y));
    canvas::svg(title, LINES_HEIGHT, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(8)
            .margin_right(30)
            .margin_bottom(2)
            .x_label_area_size(48)
            .y_label_area_size(70)
            .build_cartesian_2d(over_x, over_y)
            .map_err(drawing)?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID.0)
            .axis_style(MUTED.0)
            .label_style(label(&MUTED.0))
            .axis_desc_style(label(&INK.0))
            .x_desc(x.title.as_str())
            .y_desc(y.title.as_str())
            .draw()
            .map_err(drawing)?;
        for series in series {
            let colour = palette.colour(&series.name);
            let drawn = |&(px, py): &(f64, f64)| {
                px.is_finite() && py.is_finite() && (!x.log || px > 0.0) && (!y.log || py > 0.0)
            };
            let points: Vec<(f64, f64)> = series.points.iter().copied().filter(drawn).collect();
            // Past the colours that there are, rings on thin lines.
            let is_second = palette.is_second(&series.name);
            let (dot, width) = if is_second { (colour.into(), 1) } else { (colour.filled(), 2) };
            let dots = points.iter().map(|&point| Circle::new(point, 3, dot));
            chart.draw_series(dots).map_err(drawing)?;
            let line = LineSeries::new(points, colour.stroke_width(width));
            chart.draw_series(line).map_err(drawing)?;
        }
        Ok(())
    })
}

/// A name above each bar, so that long names fit on a phone.
fn bars(title: &str, bars: &[Bar], palette: &Palette<'_>) -> Result<String, BenchError> {
    let names: Vec<&str> = bars.iter().map(|bar| bar.name.as_str()).collect();
    let colours = palette.bars(&names);
    let ends = bars.iter().flat_map(|bar| [Some(bar.value), bar.high].into_iter().flatten());
    let scale = Scale::over(ends, false, false);
    let height = rows_height(bars.len());
    canvas::svg(title, height, |area| {
        for ((bar, colour), top) in bars.iter().zip(colours).zip(tops()) {
            write(area, &bar.name, (0, top + 9), HPos::Left, INK.0)?;
            let middle = top + 27;
            fill(area, [(0, middle - 7), (BARS_WIDTH, middle + 7)], colours::SOFT.0)?;
            let end = across(&scale, bar.value);
            fill(area, [(0, middle - 7), (end.max(1), middle + 7)], colour)?;
            if let Some((low, high)) = bar.low.zip(bar.high) {
                whisker(area, across(&scale, low), across(&scale, high), middle)?;
            }
            write(area, &text::number(bar.value), (BARS_WIDTH + 8, middle), HPos::Left, INK.0)?;
        }
        Ok(())
    })
}

fn label(colour: &RGBColor) -> TextStyle<'_> {
    TextStyle::from(canvas::font()).color(colour)
}

/// The spread of a bar.
fn whisker(area: &Area<'_>, low: i32, high: i32, middle: i32) -> Result<(), BenchError> {
    let stroke = INK.0.stroke_width(1);
    for (from, to) in [
        ((low, middle), (high, middle)),
        ((low, middle - 4), (low, middle + 4)),
        ((high, middle - 4), (high, middle + 4)),
    ] {
        area.draw(&PathElement::new(vec![from, to], stroke)).map_err(drawing)?;
    }
    Ok(())
}

fn timeline(title: &str, lanes: &[Lane], palette: &Palette<'_>) -> Result<String, BenchError> {
    let spans = lanes.iter().flat_map(|lane| &lane.spans);
    let scale = Scale::over(spans.flat_map(|span| [span.start, span.end]), false, false);
    let height = rows_height(lanes.len()) + 24;
    let bottom = i32::try_from(height).unwrap_or(i32::MAX) - 24;
    canvas::svg(title, height, |area| {
        for &tick in scale.ticks() {
            let x = place(&scale, tick, RIGHT - 24);
            let line = PathElement::new(vec![(x, 0), (x, bottom)], GRID.0.stroke_width(1));
            area.draw(&line).map_err(drawing)?;
            let anchor = if x == 0 { HPos::Left } else { HPos::Center };
            write(area, &short(tick), (x, bottom + 12), anchor, MUTED.0)?;
        }
        for (lane, top) in lanes.iter().zip(tops()) {
            write(area, &lane.name, (0, top + 9), HPos::Left, INK.0)?;
            for span in &lane.spans {
                let [start, end] = [span.start, span.end].map(|at| place(&scale, at, RIGHT - 24));
                let corners = [(start, top + 20), (end.max(start + 1), top + 36)];
                fill(area, corners, palette.colour(&span.label))?;
            }
        }
        Ok(())
    })
}

/// The labels of all stretches, each once.
fn labels(lanes: &[Lane]) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for span in lanes.iter().flat_map(|lane| &lane.spans) {
        if !labels.contains(&span.label.as_str()) {
            labels.push(&span.label);
        }
    }
    labels
}

fn is_bytes(axis: &Axis) -> bool {
    axis.title.split(|c: char| !c.is_alphanumeric()).any(|word| word == "bytes")
}

fn across(scale: &Scale, value: f64) -> i32 {
    place(scale, value, BARS_WIDTH)
}

#[allow(clippy::cast_possible_truncation, reason = "a share of the picture's pixels")]
fn place(scale: &Scale, value: f64, width: i32) -> i32 {
    (scale.share(value) * f64::from(width)).round() as i32
}

/// The upper ends of rows of a name and a bar.
fn tops() -> impl Iterator<Item = i32> {
    (0..).map(|row: i32| row.saturating_mul(ROW_HEIGHT))
}

fn rows_height(rows: usize) -> u32 {
    let row = u32::try_from(ROW_HEIGHT).unwrap_or(0);
    u32::try_from(rows).unwrap_or(u32::MAX).saturating_mul(row).max(row)
}

const LINES_HEIGHT: u32 = 320;
const ROW_HEIGHT: i32 = 44;
/// The rest of the width is for numbers.
const BARS_WIDTH: i32 = RIGHT - 80;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use crate::section::{FlowRow, FlowStep, Span};

    fn drawn(plot: &Plot) -> String {
        figure(plot, &Palette::of(std::slice::from_ref(plot))).unwrap()
    }

    fn lines(log: bool, points: &[(f64, f64)]) -> Plot {
        let axis = |title: &str| Axis { title: title.into(), log };
        let points = points.iter().map(|&(x, y)| ("<a> & \"b\"", x, y));
        Plot::lines("<title> & more", axis("bytes <of>"), axis("GB/s"), points)
    }

    fn flow(steps: usize) -> Plot {
        let step = |at| FlowStep { name: format!("step <{at}> of many words"), ms: Some(1.5) };
        let steps = (0..steps).map(step).chain([FlowStep { name: "last".into(), ms: None }]);
        let row = FlowRow { name: "pageable & slow".into(), steps: steps.collect() };
        Plot::Flow { title: "flow".into(), rows: vec![row.clone(), row] }
    }

    #[test]
    fn names_are_shown_as_they_are_and_nothing_names_a_network() {
        for plot in [lines(true, &[(1.0, 2.0), (1e9, 3.0)]), flow(3)] {
            let figure = drawn(&plot);
            for raw in ["<a>", "<title>", "<of>", "<1>", "& ", "http"] {
                assert!(!figure.contains(raw), "{raw}: {figure}");
            }
            assert!(figure.contains("&lt;"), "{figure}");
            assert_eq!(figure.matches("<svg").count(), 1);
        }
    }

    #[test]
    fn every_kind_is_drawn_whatever_its_figures() {
        let mut bar = Bar::new("bar", -1.0);
        (bar.low, bar.high) = (Some(-2.0), Some(f64::INFINITY));
        let span = Span { start: 2.0, end: 1.0, label: "backwards".into() };
        let lane = Lane { name: "stream".into(), spans: vec![span] };
        let odd = [(0.0, -1.0), (f64::NAN, 1.0), (5.0, f64::INFINITY)];
        let (title, unit) = (String::new(), String::new());
        for plot in [
            lines(true, &odd),
            lines(false, &odd),
            lines(false, &[]),
            lines(true, &[(7.0, 7.0)]),
            Plot::Bars { title: title.clone(), unit: unit.clone(), bars: vec![bar] },
            Plot::Bars { title: title.clone(), unit: unit.clone(), bars: Vec::new() },
            Plot::Timeline { title: title.clone(), unit: unit.clone(), lanes: vec![lane] },
            Plot::Timeline { title: title.clone(), unit, lanes: Vec::new() },
            Plot::Flow { title, rows: Vec::new() },
            flow(0),
            flow(9),
        ] {
            let figure = drawn(&plot);
            assert!(figure.contains("<svg") && !figure.contains("NaN"), "{plot:?}: {figure}");
        }
    }

    #[test]
    fn a_time_stands_in_each_step_and_their_sum_beside_the_way() {
        let figure = drawn(&flow(4));
        assert_eq!(figure.matches("1.50 ms").count(), 8, "{figure}");
        assert_eq!(figure.matches("together 6.00 ms").count(), 2, "{figure}");
        assert_eq!(figure.matches("not timed alone").count(), 2, "{figure}");
    }
}
