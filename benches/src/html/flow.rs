//! Draws the way of a copy: a box for each step, an arrow between two, and how long each took.

use plotters::prelude::{PathElement, Polygon};
use plotters::style::text_anchor::HPos;
use plotters::style::{Color, RGBColor};

use super::canvas::{self, Area, CHARACTER_PX, RIGHT, drawing, fill, text_width, wrapped, write};
use super::colours::{INK, MUTED, Palette, SOFT};
use crate::BenchError;
use crate::section::{FlowRow, FlowStep};
use crate::text;

/// The ways below each other; their boxes are of one size, and a long way goes on below.
pub(super) fn draw(
    title: &str,
    rows: &[FlowRow],
    palette: &Palette<'_>,
) -> Result<String, BenchError> {
    let columns = rows.iter().map(|row| row.steps.len()).max().unwrap_or(1).clamp(1, COLUMNS_MAX);
    let width = (RIGHT - GAP * (cast(columns) - 1)) / cast(columns);
    let characters = usize::try_from((width - 12) / CHARACTER_PX).unwrap_or(1);
    let steps = rows.iter().flat_map(|row| &row.steps);
    let lines = steps.map(|step| wrapped(&step.name, characters).len()).max().unwrap_or(1);
    let boxes = Boxes { columns, width, height: cast(lines) * LINE_HEIGHT + 36, characters };
    let tops: Vec<i32> = rows
        .iter()
        .scan(0, |top, row| {
            let begin = *top;
            *top += TITLE_HEIGHT + boxes.lines_of(row) * (boxes.height + GAP);
            Some(begin)
        })
        .collect();
    let last =
        rows.last().map_or(0, |row| TITLE_HEIGHT + boxes.lines_of(row) * (boxes.height + GAP));
    let height = u32::try_from(tops.last().copied().unwrap_or(0) + last).unwrap_or(1).max(1);
    canvas::svg(title, height, |area| {
        for (row, &top) in rows.iter().zip(&tops) {
            let colour = palette.colour(&row.name);
            heading(area, row, top, colour)?;
            boxes.draw(area, row, top + TITLE_HEIGHT, colour)?;
        }
        Ok(())
    })
}

/// The name of a way, and what its steps take together where all that is timed was.
fn heading(area: &Area<'_>, row: &FlowRow, top: i32, colour: RGBColor) -> Result<(), BenchError> {
    fill(area, [(0, top + 4), (12, top + 16)], colour)?;
    write(area, &row.name, (20, top + 10), HPos::Left, INK.0)?;
    let times: Vec<f64> = row.steps.iter().filter_map(|step| step.ms).collect();
    if times.len() > 1 {
        let sum = format!("together {} ms", text::number(times.iter().sum()));
        if text_width(&row.name) + text_width(&sum) + 28 < RIGHT {
            write(area, &sum, (RIGHT, top + 10), HPos::Right, MUTED.0)?;
        }
    }
    Ok(())
}

/// How boxes lie.
struct Boxes {
    columns: usize,
    width: i32,
    height: i32,
    characters: usize,
}

impl Boxes {
    fn lines_of(&self, row: &FlowRow) -> i32 {
        cast(row.steps.len().div_ceil(self.columns).max(1))
    }

    fn draw(
        &self,
        area: &Area<'_>,
        row: &FlowRow,
        top: i32,
        colour: RGBColor,
    ) -> Result<(), BenchError> {
        for (at, step) in row.steps.iter().enumerate() {
            let (column, line) = (cast(at % self.columns), cast(at / self.columns));
            let left = column * (self.width + GAP);
            let corner = (left, top + line * (self.height + GAP));
            self.step(area, step, corner, colour)?;
            if column > 0 {
                arrow(area, left - GAP + 2, left - 2, corner.1 + self.height / 2)?;
            }
        }
        Ok(())
    }

    fn step(
        &self,
        area: &Area<'_>,
        step: &FlowStep,
        (left, top): (i32, i32),
        colour: RGBColor,
    ) -> Result<(), BenchError> {
        fill(area, [(left, top), (left + self.width, top + self.height)], SOFT.0)?;
        fill(area, [(left, top), (left + self.width, top + 3)], colour)?;
        for (line, words) in wrapped(&step.name, self.characters).iter().enumerate() {
            let y = top + 16 + cast(line) * LINE_HEIGHT;
            write(area, words, (left + 6, y), HPos::Left, INK.0)?;
        }
        let time = step.ms.map(|ms| format!("{} ms", text::number(ms)));
        let (time, colour) =
            time.map_or(("not timed alone".into(), MUTED.0), |time| (time, colour));
        let y = top + self.height - 13;
        write(area, &time, (left + 6, y), HPos::Left, colour)
    }
}

fn arrow(area: &Area<'_>, from: i32, to: i32, y: i32) -> Result<(), BenchError> {
    let shaft = PathElement::new(vec![(from, y), (to - 4, y)], MUTED.0.stroke_width(2));
    area.draw(&shaft).map_err(drawing)?;
    let head = Polygon::new(vec![(to - 6, y - 5), (to, y), (to - 6, y + 5)], MUTED.0.filled());
    area.draw(&head).map_err(drawing)
}

/// Counts of steps and lines are small.
fn cast(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX / 1024)
}

const COLUMNS_MAX: usize = 4;
const GAP: i32 = 18;
const LINE_HEIGHT: i32 = 18;
const TITLE_HEIGHT: i32 = 26;
