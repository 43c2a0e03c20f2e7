//! Part `file`: a file to the device, out of the page cache and from where the kernel has to get it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::{Duration, Instant};

use pinpool::StagedCopy;
use rustix::fs::{Advice, fadvise, fstatvfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::Scale;
use super::copies::gb_per_s;
use super::report::{CACHED, COLD, FileRow, READ_THEN_COPY, UPLOAD_FILE, UPLOAD_FROM};
use super::side::{Copier, Ends, arrived, plain};
use super::stagers::Crew;
use crate::BenchError;
use crate::copy::Direction;
use crate::text;
use crate::timing::{self, Progress, Range, rounded};

/// All ways, cached and cold.
pub(super) fn measure(
    copier: &mut Copier,
    file: &TestFile,
    crew: Crew,
    scale: &Scale,
    notes: &mut Vec<String>,
    progress: &mut Progress<'_>,
) -> Result<Vec<FileRow>, BenchError> {
    let mut ends = Ends::new(&copier.rig, file.bytes)?;
    file.write(&ends.pageable)?;
    let mut run = Run { copier, ends: &mut ends, file, crew };
    for way in WAYS {
        run.verify(way)?;
    }
    let mut rows = Vec::new();
    for (case, rounds) in [(CACHED, scale.file_rounds), (COLD, scale.cold_rounds)] {
        rows.extend(run.case(case, rounds, scale.patience, notes)?);
        progress.step();
    }
    Ok(rows)
}

/// A way from the file to the device.
#[derive(Debug, Clone, Copy)]
enum Way {
    Read,
    UploadFile,
    UploadFrom,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Read => READ_THEN_COPY,
            Self::UploadFile => UPLOAD_FILE,
            Self::UploadFrom => UPLOAD_FROM,
        }
    }
}

/// What the rounds share.
struct Run<'a> {
    copier: &'a mut Copier,
    ends: &'a mut Ends,
    file: &'a TestFile,
    crew: Crew,
}

impl Run<'_> {
    fn case(
        &mut self,
        case: &str,
        rounds: usize,
        patience: Duration,
        notes: &mut Vec<String>,
    ) -> Result<Vec<FileRow>, BenchError> {
        let mut records: Vec<Record> = WAYS.iter().map(|_| Record::default()).collect();
        let started = Instant::now();
        for round in 0..rounds {
            if round > 0 && started.elapsed() > patience {
                let seconds = patience.as_secs();
                notes.push(format!(
                    "file, {case}: {round} rounds of {rounds}, which took {seconds} s already"
                ));
                break;
            }
            for which in timing::order(round, WAYS.len()) {
                if case == COLD {
                    self.file.forget()?;
                }
                let cached = self.file.cached_percent()?;
                let took = self.once(WAYS[which])?;
                records[which].cached_percent = records[which].cached_percent.max(cached);
                records[which].ms.push(took.as_secs_f64() * 1e3);
            }
        }
        let most = records.iter().map(|record| record.cached_percent).fold(0.0, f64::max);
        if case == COLD && most > COLD_PERCENT_MAX {
            notes.push(format!(
                "the cold file is not cold: {most:.0}% of it stayed in the page cache although the \
                 kernel was told to forget it (a file system in memory has no other place); name \
                 a folder on a disk with --file-dir"
            ));
        }
        let bytes = self.file.bytes;
        Ok(WAYS.iter().zip(records).map(|(way, record)| record.row(*way, case, bytes)).collect())
    }

    /// One copy, from the call until the host sees its end.
    fn once(&mut self, way: Way) -> Result<Duration, BenchError> {
        let (stager, stream) = (self.copier.stagers.of(self.crew)?, &self.copier.rig.stream);
        let mut file = &self.file.file;
        file.seek(SeekFrom::Start(0)).map_err(|cause| failed("seeking in", cause))?;
        let started = Instant::now();
        match way {
            Way::Read => {
                file.read_exact_at(&mut self.ends.pageable, 0)
                    .map_err(|cause| failed("reading", cause))?;
                let Ends { pageable, device } = &mut *self.ends;
                plain(&self.copier.rig, Direction::HostToDevice, pageable, device)?;
            }
            Way::UploadFile => stager
                .upload_file(file, 0, stream, &mut self.ends.device)
                .and_then(StagedCopy::wait)
                .map_err(|cause| BenchError::failed("uploading a file", cause))?,
            Way::UploadFrom => stager
                .upload_from(file, stream, &mut self.ends.device)
                .and_then(StagedCopy::wait)
                .map_err(|cause| BenchError::failed("uploading from a reader", cause))?,
        }
        Ok(started.elapsed())
    }

    /// Copies once and looks at every byte that arrived.
    fn verify(&mut self, way: Way) -> Result<(), BenchError> {
        self.copier.wipe(self.ends)?;
        self.once(way)?;
        let wrong = self.copier.first_wrong_on_device(self.ends)?;
        arrived(way.name(), wrong)
    }
}

/// The rounds of one way in one case.
#[derive(Debug, Default)]
struct Record {
    ms: Vec<f64>,
    cached_percent: f64,
}

impl Record {
    fn row(self, way: Way, case: &str, bytes: usize) -> FileRow {
        let ms = Range::of(&self.ms);
        FileRow {
            side: way.name().to_owned(),
            case: case.to_owned(),
            bytes: bytes as u64,
            cached_percent: rounded(self.cached_percent),
            gb_per_s: gb_per_s(bytes, ms.median * 1e-3),
            ms,
            rounds: self.ms.into_iter().map(rounded).collect(),
        }
    }
}

/// A file without a name: nothing of it is left however this process ends.
#[derive(Debug)]
pub(crate) struct TestFile {
    file: File,
    bytes: usize,
}

impl TestFile {
    /// Of `bytes`, or of half of what is free; nothing is written yet.
    ///
    /// # Errors
    /// [`BenchError::Input`] where the folder takes no file.
    pub(crate) fn create(
        folder: &Path,
        bytes: usize,
        notes: &mut Vec<String>,
    ) -> Result<Self, BenchError> {
        let path = unused_path(folder);
        let refused = |cause: io::Error| {
            BenchError::Input(format!("--file-dir {}: {cause}", folder.display()))
        };
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = opened.map_err(refused)?;
        fs::remove_file(&path).map_err(refused)?;
        let room = fstatvfs(&file).map_err(|cause| refused(cause.into()))?;
        let half = room.f_bavail.saturating_mul(room.f_frsize) / 2;
        let half = usize::try_from(half).unwrap_or(usize::MAX);
        if half >= bytes {
            return Ok(Self { file, bytes });
        }
        let fits = half / FILE_STEP_BYTES * FILE_STEP_BYTES;
        if fits == 0 {
            let text = format!("{} B are free, too little for a file", half * 2);
            return Err(refused(io::Error::other(text)));
        }
        let (wanted, there) = (text::bytes(bytes as u64), text::bytes(fits as u64));
        notes.push(format!("the file has {there} instead of {wanted}: half of what is free"));
        Ok(Self { file, bytes: fits })
    }

    /// Writes all of it, down to the disk.
    fn write(&self, bytes: &[u8]) -> Result<(), BenchError> {
        let mut file = &self.file;
        file.write_all(bytes)
            .and_then(|()| file.sync_all())
            .map_err(|cause| failed("writing", cause))
    }

    /// Writes something everywhere, down to the disk, which takes little memory.
    pub(crate) fn fill(&self) -> Result<(), BenchError> {
        let mut block = vec![0u8; FILE_STEP_BYTES];
        for (at, start) in (0..self.bytes).step_by(block.len()).enumerate() {
            // No two blocks are alike: a file system may keep one for all that are.
            block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&at.to_le_bytes()));
            let rest = (self.bytes - start).min(block.len());
            let written = self.file.write_all_at(&block[..rest], start as u64);
            written.map_err(|cause| failed("writing", cause))?;
        }
        self.file.sync_all().map_err(|cause| failed("writing", cause))
    }

    /// Reads all of it, which takes little memory.
    pub(crate) fn read_through(&self) -> Result<(), BenchError> {
        let mut block = vec![0u8; FILE_STEP_BYTES];
        for start in (0..self.bytes).step_by(block.len()) {
            let rest = (self.bytes - start).min(block.len());
            let read = self.file.read_exact_at(&mut block[..rest], start as u64);
            read.map_err(|cause| failed("reading", cause))?;
        }
        Ok(())
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Tells the kernel that nobody needs what it holds of the file. Where the file lies in memory it does
    /// nothing.
    pub(crate) fn forget(&self) -> Result<(), BenchError> {
        fadvise(&self.file, 0, None, Advice::DontNeed)
            .map_err(|cause| failed("forgetting", cause.into()))
    }

    /// How much of it is in the page cache.
    pub(crate) fn cached_percent(&self) -> Result<f64, BenchError> {
        let cannot = |cause: io::Error| failed("looking for the pages of", cause);
        let page = rustix::param::page_size();
        let mut pages = vec![0u8; self.bytes.div_ceil(page)];
        // SAFETY: a mapping at an address of the kernel's choice touches no memory that exists, and no
        // byte of it is ever looked at.
        let start = unsafe {
            mmap(ptr::null_mut(), self.bytes, ProtFlags::READ, MapFlags::SHARED, &self.file, 0)
        };
        let start = start.map_err(|cause| cannot(cause.into()))?;
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let looked = unsafe { libc::mincore(start, self.bytes, pages.as_mut_ptr()) };
        let looked = if looked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: the mapping was made above, and is not used any more.
        let undone = unsafe { munmap(start, self.bytes) };
        looked.and(undone.map_err(io::Error::from)).map_err(cannot)?;
        let cached = pages.iter().filter(|page| **page & 1 == 1).count();
        Ok(cached as f64 * 100.0 / pages.len() as f64)
    }
}

fn unused_path(folder: &Path) -> PathBuf {
    folder.join(format!("pinpool-bench-staged-{}", std::process::id()))
}

fn failed(what: &str, cause: io::Error) -> BenchError {
    BenchError::failed(&format!("{what} the file"), cause)
}

const WAYS: [Way; 3] = [Way::Read, Way::UploadFile, Way::UploadFrom];
/// A file of less than asked for is so many of these.
const FILE_STEP_BYTES: usize = 1 << 20;
/// A file that the kernel forgot has some pages still that it is about to read, or that others look at.
const COLD_PERCENT_MAX: f64 = 1.0;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_cached_once_it_is_written_and_leaves_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut notes = Vec::new();
        let file = TestFile::create(folder.path(), 3 << 20, &mut notes).unwrap();
        assert_eq!((file.bytes, notes.len()), (3 << 20, 0));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        file.write(&vec![1; 3 << 20]).unwrap();
        assert!(file.cached_percent().unwrap() > 99.0);
        file.forget().unwrap();
        // In memory it stays.
        let cached = file.cached_percent().unwrap();
        assert!((0.0..=100.0).contains(&cached), "{cached}");
    }

    #[test]
    fn a_folder_that_takes_no_file_is_named_and_a_file_that_is_too_large_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = TestFile::create(&missing, 1, &mut Vec::new()).unwrap_err();
        assert!(error.is_input() && error.to_string().starts_with("--file-dir"), "{error}");
        let mut notes = Vec::new();
        let cut = TestFile::create(folder.path(), 1 << 60, &mut notes).unwrap();
        assert!(cut.bytes < 1 << 60 && cut.bytes.is_multiple_of(FILE_STEP_BYTES), "{cut:?}");
        assert!(notes[0].ends_with("half of what is free"), "{notes:?}");
    }
}
