//! A model file goes to the GPU through a stager: from a mapping of it, and straight from the file.
//!
//! ```text
//! cargo run --release -p examples --example load_safetensors -- model.safetensors
//! ```
//!
//! The first bytes of a file in the safetensors format say where each tensor lies, and each gets device
//! memory of its own. Three ways to fill it are timed in one run, and what arrived is read back and held
//! against the file: `std::fs::read` with the driver's own copies, which need all of the file in
//! memory at once; a mapping, copied through the stager; and `Stager::upload_file`, which needs neither.
//! Exit status 1 if something else arrived, 2 if the file is no usable model.
//!
//! A process that reads a mapping of a file that somebody truncates meanwhile is killed by SIGBUS, and so
//! is one whose disk fails. With `upload_file` both are errors. Prefer it, unless the mapping is there
//! anyway.
#![deny(unsafe_code)] // one function maps the file

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use memmap2::Mmap;
use pinpool::cudarc::driver::{CudaSlice, CudaStream};
use pinpool::{LockMode, Pool, StageCause, StageError, StagedCopy, Stager};
use safetensors::{Dtype, SafeTensorError, SafeTensors, View};

/// Loads a model in the safetensors format onto the GPU.
#[derive(Debug, Parser)]
struct Args {
    /// The model; without it one is made in a temporary folder.
    file: Option<PathBuf>,
    /// Roughly so many MiB are made.
    #[arg(long, default_value_t = 48, conflicts_with = "file",
        value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    mib: u32,
}

/// Of so many the best time counts: a first copy also pays for what comes into being with it.
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args, &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let name = args.file.as_deref().unwrap_or(Path::new("the file made here"));
            let _ = writeln!(io::stderr(), "load_safetensors: {}: {failure}", name.display());
            ExitCode::from(if matches!(failure, Failure::File(_)) { 2 } else { 1 })
        }
    }
}

fn run(args: &Args, out: &mut impl Write) -> Result<(), Failure> {
    // Removed with what lies in it at the end.
    let folder;
    let path = if let Some(path) = &args.file {
        path.clone()
    } else {
        folder = tempfile::tempdir().map_err(Failure::run)?;
        let path = folder.path().join("model.safetensors");
        make_model(&path, args.mib)?;
        path
    };
    let model = Model::open(&path)?;
    writeln!(out, "{model}").map_err(Failure::run)?;

    let pool = Pool::builder().stager().lock(LockMode::Try).open();
    let pool = pool.map_err(Failure::run)?;
    let Some(context) = pool.cuda_context() else {
        let text =
            "no GPU: a stager copies to one, so this ends with the file read and found sound";
        return writeln!(out, "{text}").map_err(Failure::run);
    };
    let stager = Stager::new(&pool).map_err(Failure::run)?;
    let mut gpu = Gpu::open(context.new_stream().map_err(Failure::run)?, &model)?;

    let plain = gpu.best(&stager, &model, |gpu| gpu.read_then_copy(&path, &model))?;
    let mapped = gpu.best(&stager, &model, |gpu| gpu.load_mapped(&stager, &model))?;
    let straight = gpu.best(&stager, &model, |gpu| gpu.load_file(&stager, &model))?;
    for (way, time) in [
        ("std::fs::read, driver's copy", plain),
        ("mapped, stager", mapped),
        ("upload_file, stager", straight),
    ] {
        let speed = model.bytes as f64 / time.as_secs_f64() / 1e9;
        let factor = plain.as_secs_f64() / time.as_secs_f64();
        writeln!(out, "{way:<29} {time:10.2?} {speed:7.2} GB/s {factor:6.2} times as fast")
            .map_err(Failure::run)?;
    }
    writeln!(out, "each time all of it was read back, and is what the file has")
        .map_err(Failure::run)
}

/// A file that was found sound.
struct Model {
    file: File,
    /// Those that have bytes, as they lie in the file.
    tensors: Vec<Tensor>,
    bytes: usize,
}

struct Tensor {
    name: String,
    /// In the file.
    place: Range<usize>,
    checksum: u64,
}

impl Model {
    fn open(path: &Path) -> Result<Self, Failure> {
        // Asked before it is opened: to open a pipe is to wait for its writer.
        let kind = fs::metadata(path).map_err(Failure::file)?;
        if !kind.is_file() {
            return Err(Failure::File("not a file with bytes of its own".into()));
        }
        let file = File::open(path).map_err(Failure::file)?;
        let mut tensors = tensors_in(&map(&file)?)?;
        // Read by plain reads, into a buffer of one tensor: the figures to compare with. Everything lies in the
        // page cache then, as far as there is room, so that no way has to wait for the disk alone.
        let mut buffer = Vec::new();
        for tensor in &mut tensors {
            buffer.resize(tensor.place.len(), 0);
            file.read_exact_at(&mut buffer, tensor.offset()).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::UnexpectedEof => tensor.cut_off(),
                    _ => Failure::file(error),
                }
            })?;
            tensor.checksum = checksum(&buffer);
        }
        let bytes = tensors.iter().map(|tensor| tensor.place.len()).sum();
        Ok(Self { file, tensors, bytes })
    }
}

/// What the header says, which is checked against the file's length.
fn tensors_in(map: &Mmap) -> Result<Vec<Tensor>, Failure> {
    const LENGTH_BYTES: usize = 8;
    let (header, metadata) = SafeTensors::read_metadata(map).map_err(|error| refusal(&error))?;
    let begin = LENGTH_BYTES + header;
    let mut tensors: Vec<_> = metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| {
            let (from, to) = info.data_offsets;
            Tensor { name, place: begin + from..begin + to, checksum: 0 }
        })
        .filter(|tensor| !tensor.place.is_empty())
        .collect();
    tensors.sort_by_key(|tensor| tensor.place.start);
    if tensors.is_empty() {
        return Err(Failure::File("there is no tensor with any bytes in it".into()));
    }
    Ok(tensors)
}

fn refusal(error: &SafeTensorError) -> Failure {
    Failure::File(match error {
        SafeTensorError::HeaderTooSmall => {
            "fewer than the 8 bytes that every model begins with".into()
        }
        SafeTensorError::HeaderTooLarge | SafeTensorError::InvalidHeaderLength => {
            "its first 8 bytes are no length of a header in it: not a model, or cut off".into()
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            "longer or shorter than its header says: cut off, or not written to the end".into()
        }
        other => format!("the header is damaged: {other}"),
    })
}

/// The file as memory.
#[allow(unsafe_code)]
fn map(file: &File) -> Result<Mmap, Failure> {
    // SAFETY: the mapping is private to this function's callers, who only read it. That nobody else writes
    // or truncates the file while they do is what the user of this program is asked for; it cannot be
    // checked, and is one more reason for `upload_file`.
    unsafe { Mmap::map(file) }.map_err(Failure::file)
}

impl Tensor {
    fn offset(&self) -> u64 {
        self.place.start as u64
    }

    /// Its part of the file's bytes, unless the file has become shorter.
    fn of<'a>(&self, file: &'a [u8]) -> Result<&'a [u8], Failure> {
        file.get(self.place.clone()).ok_or_else(|| self.cut_off())
    }

    /// The header was right about the file's length.
    fn cut_off(&self) -> Failure {
        Failure::File(format!("truncated while it was read: '{}' is not all there", self.name))
    }
}

/// Device memory for each tensor.
struct Gpu {
    stream: Arc<CudaStream>,
    places: Vec<CudaSlice<u8>>,
}

impl Gpu {
    fn open(stream: Arc<CudaStream>, model: &Model) -> Result<Self, Failure> {
        let places = model.tensors.iter().map(|tensor| stream.alloc_zeros(tensor.place.len()));
        let places = places.collect::<Result<_, _>>().map_err(Failure::run)?;
        Ok(Self { stream, places })
    }

    /// The usual way: all of the file in memory, and from there by the driver.
    fn read_then_copy(&mut self, path: &Path, model: &Model) -> Result<(), Failure> {
        let whole = fs::read(path).map_err(Failure::file)?;
        for (tensor, place) in model.tensors.iter().zip(&mut self.places) {
            self.stream.memcpy_htod(tensor.of(&whole)?, place).map_err(Failure::run)?;
        }
        self.stream.synchronize().map_err(Failure::run)
    }

    /// Each tensor from the mapping. All are begun before the first is waited for, so that the crew always has
    /// something to copy, however small they are.
    fn load_mapped(&mut self, stager: &Stager, model: &Model) -> Result<(), Failure> {
        // Made anew each time: one that was read before costs less.
        let map = map(&model.file)?;
        stager.scope(|scope| {
            let mut copies = Vec::new();
            for (tensor, place) in model.tensors.iter().zip(&mut self.places) {
                copies.push(scope.upload(tensor.of(&map)?, &self.stream, place)?);
            }
            wait_for(copies)
        })
    }

    /// Each tensor from its place in the file, which the crew reads right into pinned memory.
    fn load_file(&mut self, stager: &Stager, model: &Model) -> Result<(), Failure> {
        let mut copies = Vec::new();
        for (tensor, place) in model.tensors.iter().zip(&mut self.places) {
            let (file, offset) = (&model.file, tensor.offset());
            copies.push(stager.upload_file(file, offset, &self.stream, place)?);
        }
        wait_for(copies)
    }

    /// The best time of a way. Each time the device's memory is wiped before, and read back after.
    fn best(
        &mut self,
        stager: &Stager,
        model: &Model,
        load: impl Fn(&mut Self) -> Result<(), Failure>,
    ) -> Result<Duration, Failure> {
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            for place in &mut self.places {
                self.stream.memset_zeros(place).map_err(Failure::run)?;
            }
            self.stream.synchronize().map_err(Failure::run)?;
            let began = Instant::now();
            load(self)?;
            best = best.min(began.elapsed());
            self.check(stager, model)?;
        }
        Ok(best)
    }

    fn check(&self, stager: &Stager, model: &Model) -> Result<(), Failure> {
        let mut back = Vec::new();
        for (tensor, place) in model.tensors.iter().zip(&self.places) {
            back.resize(tensor.place.len(), 0);
            stager.download(place, &self.stream, &mut back)?;
            if checksum(&back) != tensor.checksum {
                return Err(Failure::Run(format!("'{}' did not arrive as it is", tensor.name)));
            }
        }
        Ok(())
    }
}

fn wait_for(copies: Vec<StagedCopy>) -> Result<(), Failure> {
    copies.into_iter().try_for_each(|copy| Ok(copy.wait()?))
}

/// FNV-1a, 64 bit, over the little-endian 64-bit words and the last odd bytes.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let values = words.iter().map(|&word| u64::from_le_bytes(word));
    let values = values.chain(tail.iter().map(|&byte| u64::from(byte)));
    values.fold(0xcbf2_9ce4_8422_2325, |hash, value| (hash ^ value).wrapping_mul(0x0100_0000_01b3))
}

impl Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sums = self.tensors.iter().flat_map(|tensor| tensor.checksum.to_le_bytes());
        let sum = checksum(&sums.collect::<Vec<_>>());
        let largest = self.tensors.iter().map(|tensor| tensor.place.len()).max().unwrap_or(0);
        let (count, bytes) = (self.tensors.len(), self.bytes);
        write!(f, "tensors: {count}, {bytes} bytes, the largest {largest}; checksum {sum:016x}")
    }
}

/// A tensor that comes into being when it is written: no model is in memory as a whole.
struct Made {
    dtype: Dtype,
    shape: Vec<usize>,
    seed: u64,
}

impl View for Made {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Noise, so that no two places look alike.
    fn data(&self) -> Cow<'_, [u8]> {
        let mut state = self.seed;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        });
        let mut bytes = Vec::with_capacity(self.data_len() + 7);
        words.take(self.data_len().div_ceil(8)).for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.truncate(self.data_len());
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

/// Writes what has the tensors of a small language model: a few large ones and many small ones.
fn make_model(path: &Path, mib: u32) -> Result<(), Failure> {
    let bytes = u64::from(mib) << 20;
    // A layer has 16 * width * width numbers of two bytes, and so has the vocabulary.
    let layer_bytes = |width: usize| 32 * (width as u64).pow(2);
    let fits = |width: &usize| bytes / layer_bytes(*width) >= 8;
    let width = [4096, 2048, 1024, 512].into_iter().find(fits).unwrap_or(256);
    let layers = (bytes / layer_bytes(width)).saturating_sub(1).max(1);

    let mut tensors = vec![
        ("model.embed_tokens.weight".to_owned(), Dtype::BF16, vec![16 * width, width]),
        ("logit_scale".to_owned(), Dtype::F32, vec![]),
        // The format allows it: no bytes at all.
        ("adapter.weight".to_owned(), Dtype::F32, vec![0, width]),
    ];
    for layer in 0..layers {
        let square =
            ["q", "k", "v", "o"].map(|part| (format!("self_attn.{part}_proj"), width, width));
        let wide = ["gate", "up"].map(|part| (format!("mlp.{part}_proj"), 4 * width, width));
        let down = [("mlp.down_proj".to_owned(), width, 4 * width)];
        for (part, rows, columns) in square.into_iter().chain(wide).chain(down) {
            let name = format!("model.layers.{layer}.{part}.weight");
            tensors.push((name, Dtype::BF16, vec![rows, columns]));
        }
        let norm = format!("model.layers.{layer}.input_layernorm.weight");
        tensors.push((norm, Dtype::F32, vec![width]));
    }
    let made = tensors.into_iter().zip(1_u64..).map(|((name, dtype, shape), number)| {
        (name, Made { dtype, shape, seed: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) })
    });
    safetensors::serialize_to_file(made, None, path).map_err(Failure::run)
}

/// Why the program ends early: the file is at fault, or the run is.
#[derive(Debug)]
enum Failure {
    File(String),
    Run(String),
}

impl Failure {
    fn file(error: impl Display) -> Self {
        Self::File(error.to_string())
    }

    fn run(error: impl Display) -> Self {
        Self::Run(error.to_string())
    }
}

impl From<StageError> for Failure {
    fn from(error: StageError) -> Self {
        match error.cause {
            StageCause::Truncated | StageCause::Read(_) => Self::file(error),
            _ => Self::run(error),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(text) | Self::Run(text) => f.write_str(text),
        }
    }
}
