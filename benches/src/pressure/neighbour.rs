//! The neighbour: a process that maps memory, goes through it, and reads a file.
//!
//! It is this same program. It reads orders, one a line, and answers each by numbers: `file BYTES`,
//! `work BYTES`, `work-and-read BYTES`.

use std::fs;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::PressureOptions;
use super::memory::Memory;
use super::report::Round;
use crate::BenchError;
use crate::staged::TestFile;
use crate::startup::process::{Process, READY};
use crate::text;

/// What the other process runs: orders until `input` ends; its file lies in `folder`.
///
/// # Errors
/// An order that cannot be carried out, or nobody who reads `output`.
pub fn serve(folder: &Path, input: impl BufRead, output: &mut dyn Write) -> Result<(), BenchError> {
    // If memory runs out all the same, nobody else is to suffer. Where that is refused it was not likely
    // anyhow: there is room that everybody keeps free.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    let mut say = |line: &str| {
        writeln!(output, "{line}")
            .and_then(|()| output.flush())
            .map_err(|cause| BenchError::failed("answering", cause))
    };
    let mut neighbour = Neighbour { folder: folder.to_owned(), file: None };
    say(READY)?;
    for line in input.lines().map_while(Result::ok) {
        let numbers = neighbour.obey(&line)?;
        let words: Vec<String> = numbers.iter().map(|number| format!("{number:.4}")).collect();
        say(&words.join(" "))?;
    }
    Ok(())
}

/// What it has.
#[derive(Debug)]
pub(super) struct Neighbour {
    folder: PathBuf,
    file: Option<TestFile>,
}

impl Neighbour {
    fn obey(&mut self, order: &str) -> Result<Vec<f64>, BenchError> {
        let wrong = || BenchError::Input(format!("no order: {order}"));
        let (verb, bytes) = order.split_once(' ').ok_or_else(wrong)?;
        let bytes: usize = bytes.parse().map_err(|_| wrong())?;
        match verb {
            FILE => self.file(bytes),
            WORK => self.work(bytes, false),
            WORK_AND_READ => self.work(bytes, true),
            _ => Err(wrong()),
        }
    }

    /// Writes the file, and tries whether the kernel can take its pages back. Answers its length, and
    /// the percent that it could not.
    fn file(&mut self, bytes: usize) -> Result<Vec<f64>, BenchError> {
        let file = TestFile::create(&self.folder, bytes, &mut Vec::new())?;
        file.fill()?;
        file.forget()?;
        let (bytes, stuck) = (file.bytes() as f64, file.cached_percent()?);
        // A file whose pages cannot be taken back is memory like any other, and given back at once.
        self.file = (stuck <= STUCK_PERCENT_MAX).then_some(file);
        Ok(vec![bytes, stuck])
    }

    /// Milliseconds to map, to go through, and to read the file, and the percent of it that was cached.
    fn work(&mut self, bytes: usize, reads: bool) -> Result<Vec<f64>, BenchError> {
        let (memory, map) = timed(|| Memory::map(bytes))?;
        let (pages, stream) = timed(|| Ok(memory.stream()))?;
        if pages == 0 {
            return Err(BenchError::Failed("the working set was not touched".to_owned()));
        }
        let mut answer = vec![map, stream];
        if let Some(file) = self.file.as_ref().filter(|_| reads) {
            file.read_through()?;
            let cached = file.cached_percent()?;
            let ((), read) = timed(|| file.read_through())?;
            answer.extend([read, cached]);
        }
        Ok(answer)
    }
}

/// Where the neighbour is.
#[derive(Debug)]
pub(super) enum Seat {
    /// In a process of its own.
    Beside(Process),
    /// In this process.
    Here(Neighbour),
}

impl Seat {
    pub(super) fn take(
        options: &PressureOptions,
        notes: &mut Vec<String>,
    ) -> Result<Self, BenchError> {
        if let Some(program) = &options.program {
            return Ok(Self::Beside(Process::start(program)?));
        }
        notes.push("the neighbour is in this process: no program to start was named".to_owned());
        Ok(Self::Here(Neighbour { folder: options.folder(), file: None }))
    }

    /// Has the file written; its length, or `None` where it would be memory like any other.
    pub(super) fn file(
        &mut self,
        bytes: u64,
        notes: &mut Vec<String>,
    ) -> Result<Option<u64>, BenchError> {
        let [there, stuck] = self.order(FILE, bytes)?;
        if stuck > STUCK_PERCENT_MAX {
            notes.push(format!(
                "no file is read: {stuck:.0}% of it stayed in memory although the kernel was told to \
                 forget it, as on a file system in memory; name a folder on a disk with --file-dir"
            ));
            return Ok(None);
        }
        if there < bytes as f64 {
            notes.push(format!(
                "the file has {} instead of {}: half of what is free on its disk",
                text::bytes(length(there)),
                text::bytes(bytes)
            ));
        }
        Ok(Some(length(there)))
    }

    /// Has the work done, with the file or without.
    pub(super) fn work(&mut self, bytes: u64, reads: bool) -> Result<Round, BenchError> {
        if reads {
            let [map_ms, stream_ms, read_ms, cached_percent] = self.order(WORK_AND_READ, bytes)?;
            return Ok(Round { map_ms, stream_ms, read: Some((read_ms, cached_percent)) });
        }
        let [map_ms, stream_ms] = self.order(WORK, bytes)?;
        Ok(Round { map_ms, stream_ms, read: None })
    }

    fn order<const N: usize>(&mut self, verb: &str, bytes: u64) -> Result<[f64; N], BenchError> {
        let order = format!("{verb} {bytes}");
        let numbers = match self {
            Self::Beside(process) => process.ask(&order, PATIENCE)?,
            Self::Here(neighbour) => neighbour.obey(&order)?,
        };
        let wrong = |numbers: Vec<f64>| {
            BenchError::Failed(format!("the neighbour answers {numbers:?} to {order}"))
        };
        numbers.try_into().map_err(wrong)
    }
}

fn timed<T>(act: impl FnOnce() -> Result<T, BenchError>) -> Result<(T, f64), BenchError> {
    let started = Instant::now();
    let done = act()?;
    Ok((done, started.elapsed().as_secs_f64() * 1e3))
}

/// A number of bytes as answers have it.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "answers are lengths of files, which a float holds up to 8 PiB"
)]
fn length(number: f64) -> u64 {
    number as u64
}

const FILE: &str = "file";
const WORK: &str = "work";
const WORK_AND_READ: &str = "work-and-read";
/// Some pages the kernel is about to use.
const STUCK_PERCENT_MAX: f64 = 5.0;
/// A slow disk takes a while for gigabytes.
const PATIENCE: Duration = Duration::from_secs(600);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn orders_are_carried_out_and_wrong_ones_refused() {
        let folder = tempfile::tempdir().unwrap();
        let run = |orders: &str| {
            let mut output = Vec::new();
            let served = serve(folder.path(), orders.as_bytes(), &mut output);
            (String::from_utf8(output).unwrap(), served.map_err(|error| error.to_string()))
        };
        // Without a file there is none to read.
        let (said, served) =
            run("work-and-read 1048576\nwork 4096\nfile 2097152\nwork-and-read 4096\n");
        assert_eq!(served, Ok(()));
        let lines: Vec<Vec<&str>> = said.lines().map(|line| line.split(' ').collect()).collect();
        assert_eq!(lines[0], [READY]);
        assert_eq!([lines[1].len(), lines[2].len(), lines[3].len()], [2, 2, 2], "{said}");
        assert_eq!(lines[3][0], "2097152.0000");
        let stuck: f64 = lines[3][1].parse().unwrap();
        assert_eq!(lines[4].len(), if stuck <= STUCK_PERCENT_MAX { 4 } else { 2 }, "{said}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
        for wrong in ["dance 1", "work", "work many", ""] {
            let (_, served) = run(&format!("{wrong}\n"));
            assert_eq!(served, Err(format!("no order: {wrong}")));
        }
    }
}
