//! Scenario `staged`: how fast ordinary memory and files go to and from the device through a stager,
//! beside the driver's own copies, registering the memory first, PyTorch, and a lease.

mod copies;
mod file;
mod pattern;
pub mod pytorch;
pub(crate) mod ratios;
pub mod report;
mod room;
mod section;
mod side;
mod small;
mod stagers;
mod text;

use std::path::PathBuf;
use std::time::Duration;

use crate::cuda_rig::CudaRig;
use crate::header::Header;
use crate::text::bytes as named;
use crate::timing::Progress;
use crate::{BenchError, pin_room};
pub(crate) use file::TestFile;
use pytorch::PyTorch;
use report::{STAGED_SCENARIO, StagedReport};
use room::Room;
pub use side::{Copier, Ends, Side};
pub use stagers::{Crew, Stagers};

/// What to measure.
#[derive(Debug, Clone, Default)]
pub struct StagedOptions {
    /// The sizes in bytes; none means the usual ones.
    pub sizes: Vec<usize>,
    /// Where the file lies; `None` is the system's folder for temporary files.
    pub file_dir: Option<PathBuf>,
    /// The figures of PyTorch on the same machine, to compare with.
    pub pytorch: Option<PathBuf>,
    /// The most memory to have pinned at a time, in bytes.
    pub max_pinned: Option<u64>,
    /// Runs every part in a small size: enough to see that it works, too little for figures.
    pub quick: bool,
}

impl StagedOptions {
    /// Reads PyTorch's figures, if any are given.
    ///
    /// # Errors
    /// [`BenchError::Input`] for a size of nothing or of more than [`SIZE_MAX`], for less than a page to
    /// pin, or where PyTorch's file cannot be read or says nothing to compare with.
    pub fn check(&self) -> Result<Option<PyTorch>, BenchError> {
        pin_room::check(self.max_pinned)?;
        pin_room::check_sizes(&self.sizes, SIZE_MAX)?;
        self.pytorch.as_deref().map(PyTorch::read).transpose()
    }
}

/// Runs the scenario, or reports why it cannot run here. `progress` hears of parts done.
///
/// # Errors
/// As [`StagedOptions::check`]; [`BenchError::Input`] where no size fits or the folder takes no file; any
/// call that failed. A machine without a CUDA device is no error: the report says so.
pub fn run(
    options: &StagedOptions,
    command: String,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<StagedReport, BenchError> {
    let pytorch = options.check()?;
    let mut report =
        StagedReport::new(Header::here(STAGED_SCENARIO, command, options.quick, METHOD));
    let Some(rig) = CudaRig::open_if_any(&mut report.header.not_run)? else { return Ok(report) };
    if let Some(theirs) = &pytorch {
        theirs.check_device(&report.header.machine)?;
    }
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    let room = Room::find(options.max_pinned)?;
    let sizes = if options.sizes.is_empty() { scale.sizes.to_vec() } else { options.sizes.clone() };
    let sizes = room.fit(sizes, &mut report.notes)?;
    let largest = sizes.iter().copied().fold(0, usize::max);
    let compared = if sizes.contains(&scale.compared) { scale.compared } else { largest };
    if compared != scale.compared {
        let (ours, usual) = (named(compared as u64), named(scale.compared as u64));
        report.notes.push(format!("ratios, chunks and the file are of {ours} instead of {usual}"));
    }
    let folder = options.file_dir.clone().unwrap_or_else(std::env::temp_dir);
    let file = TestFile::create(&folder, compared, &mut report.notes)?;
    let crew = Crew::by_default()?;
    let mut crews = crew.with_all_threads();
    crews.extend(stagers::CHUNKS_BYTES.map(|chunk_bytes| crew.with_chunks(chunk_bytes)));
    let mut copier = Copier::new(&rig, Stagers::open(&crews, largest)?)?;
    let mut progress = Progress::new(2 * sizes.len() as u64 + OTHER_PARTS, progress);
    let (progress, notes) = (&mut progress, &mut report.notes);
    report.copies = copies::measure(&mut copier, &sizes, crew, &scale, notes, progress)?;
    report.chunks = copies::chunks(&mut copier, compared, crew, &scale, notes, progress)?;
    report.small = small::measure(&mut copier, crew, &scale, progress)?;
    report.file = file::measure(&mut copier, &file, crew, &scale, notes, progress)?;
    report.default_threads = crew.threads as u64;
    report.default_chunk_bytes = crew.chunk_bytes as u64;
    report.ratios_bytes = compared as u64;
    report.pytorch_not_measured = pytorch.is_none().then(|| NO_PYTORCH.to_owned());
    report.pytorch = pytorch;
    report.work_out();
    Ok(report)
}

/// How much of each part to run.
#[derive(Debug, Clone, Copy)]
struct Scale {
    sizes: &'static [usize],
    /// The size of ratios, chunks and the file.
    compared: usize,
    /// From this size on stagers with other numbers of threads are compared as well.
    all_threads_from: usize,
    /// Bytes to copy by each side, for one size and direction.
    traffic: usize,
    rounds_min: usize,
    rounds_max: usize,
    /// After so long no further round of a size and direction, or of a case of the file, begins.
    patience: Duration,
    small_rounds: usize,
    small_repeats: usize,
    file_rounds: usize,
    cold_rounds: usize,
}

impl Scale {
    const FULL: Self = Self {
        sizes: &[
            64 << 10,
            256 << 10,
            1 << 20,
            4 << 20,
            16 << 20,
            64 << 20,
            256 << 20,
            1 << 30,
            4 << 30,
        ],
        compared: 1 << 30,
        all_threads_from: 16 << 20,
        traffic: 8 << 30,
        rounds_min: 3,
        rounds_max: 21,
        patience: Duration::from_secs(8),
        small_rounds: 20,
        small_repeats: 500,
        file_rounds: 5,
        cold_rounds: 3,
    };
    const QUICK: Self = Self {
        sizes: &[64 << 10, 1 << 20, 16 << 20],
        compared: 16 << 20,
        traffic: 1,
        rounds_min: 2,
        rounds_max: 2,
        small_rounds: 2,
        small_repeats: 10,
        file_rounds: 2,
        cold_rounds: 1,
        ..Self::FULL
    };

    fn rounds(&self, bytes: usize) -> usize {
        (self.traffic / bytes).clamp(self.rounds_min, self.rounds_max)
    }
}

/// The largest size.
pub const SIZE_MAX: usize = 1 << 40;
/// Chunks in both directions, small copies, the file in both cases.
const OTHER_PARTS: u64 = 5;
const NO_PYTORCH: &str =
    "scripts/pytorch/staged.py measures it where PyTorch and a GPU are; --pytorch takes its file";
const METHOD: &str = "\
    each copy from the call until the host sees its end, memory touched and device memory there \
    before; all sides of a size and direction in each round, in changing order, after one copy of \
    each of which every byte is checked; GB/s (10^9 bytes) at the median time, ratios are medians \
    of those of the rounds. pageable: cudarc's memcpy_htod or memcpy_dtoh of a Vec, then \
    synchronize; register in place: cuMemHostRegister of the Vec, the same copy, \
    cuMemHostUnregister; pinned: the same copy of a lease's memory, which is the most there is; \
    staged: upload of the Vec and wait, or download, by a stager with its default threads and \
    chunks, opened before. small: rounds of many copies, the median of each round, the stager's \
    over the plain call's. file: cached files were written or read before; cold ones the kernel \
    was told to forget (posix_fadvise), which says nothing of what caches them below it; read, \
    then copy: into a Vec that is touched already, then the plain call; upload_from is given the \
    File. PyTorch: a touched tensor, to(\"cuda\") or pin_memory().to(\"cuda\", non_blocking=True) \
    and synchronize, device memory cached by its allocator, pinned memory given back in between, \
    so that each pin_memory is of new memory, by scripts/pytorch/staged.py in a process of its \
    own on the same machine";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_nothing_can_hold_are_refused() {
        let check = |sizes: &[usize]| {
            StagedOptions { sizes: sizes.to_vec(), ..StagedOptions::default() }.check()
        };
        assert_eq!(check(&[1, SIZE_MAX]).unwrap(), None);
        for wrong in [0, SIZE_MAX + 1] {
            let error = check(&[4096, wrong]).unwrap_err();
            assert!(error.is_input() && error.to_string().starts_with("--size"), "{error}");
        }
    }

    #[test]
    fn large_copies_have_less_rounds() {
        let rounds = |bytes| Scale::FULL.rounds(bytes);
        assert_eq!((rounds(4 << 30), rounds(1 << 30), rounds(64 << 20)), (3, 8, 21));
        assert_eq!(Scale::QUICK.rounds(1 << 20), 2);
    }
}
