//! Moves raw video through three threads, each frame in one lease from decode to sink.
//!
//! ```text
//! ffmpeg -i clip.mp4 -f yuv4mpegpipe - | cargo run --release -p examples --example video_pipeline -- -
//! ```
//!
//! capture (decode into a lease) → process (luma statistics; on a GPU also upload and download) →
//! sink (checksum, then the lease goes home). The pool's slots are the only frame memory, so the
//! depth of the pool is the back-pressure of the whole pipeline. For a file the checksum is compared
//! with that of a plain read: exit status 1 if they differ, 2 if the input is no usable clip.
#![forbid(unsafe_code)]

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use clap::Parser;
use crossbeam::channel::{Receiver, Sender, bounded};
use hdrhistogram::Histogram;
use pinpool::cudarc::driver::{CudaSlice, CudaStream};
use pinpool::{Lease, LockMode, Pool};

/// Runs YUV4MPEG2 video through a pool of pinned frames.
#[derive(Debug, Parser)]
struct Args {
    /// A YUV4MPEG2 file, or `-` for standard input.
    input: PathBuf,
    /// Stop after this many frames.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    frames: Option<u64>,
    /// Frames that may be alive at once: the slots of the pool.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
    /// Only print the checksum of a plain read, to compare with a run over a pipe.
    #[arg(long)]
    checksum_only: bool,
}

fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(io::stderr).with_target(false).with_ansi(false).init();
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody may be reading stderr; the exit status still tells.
            let _ = writeln!(io::stderr(), "video_pipeline: {}: {failure}", args.input.display());
            ExitCode::from(if matches!(failure, Failure::Input(_)) { 2 } else { 1 })
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    let limit = args.frames.unwrap_or(u64::MAX);
    if args.checksum_only {
        let plain = plain_read(&mut open_input(&args.input)?, limit)?;
        return print(&format!("{:016x}\n", plain.hash));
    }
    let mut clip = Clip::open(open_input(&args.input)?)?;
    let bytes = clip.header.frame_bytes;
    let pool = Pool::builder()
        .lock(LockMode::Try)
        .class("frame", bytes, usize::from(args.depth))
        .open()
        .map_err(Failure::run)?;
    let gpu = Gpu::open(&pool, bytes)?;
    let gpu_use = if gpu.is_some() { "every frame goes to the GPU and back" } else { "no GPU" };

    let started = Instant::now();
    let (luma, sunk) = pipeline(&mut clip, &pool, gpu, limit, args)?;
    let report = format!(
        "input       {}: {}\n\
         pool        {} memory, {}, {gpu_use}\n\
         {}\
         luma        {luma}\n\n{}\n\
         checksum    {}\n",
        args.input.display(),
        clip.header,
        pool.backend(),
        if pool.is_pinned() { "pinned" } else { "not pinned" },
        sunk.describe(started.elapsed(), args.depth),
        pool.stats(),
        sunk.checksum,
    );
    if !args.input.is_file() {
        // A pipe can be read once: `--checksum-only FILE` gives the figure to compare with.
        return print(&report);
    }
    let plain = plain_read(&mut open_input(&args.input)?, limit)?;
    print(&format!("{report}plain read  {plain}\n"))?;
    if plain == sunk.checksum {
        return Ok(());
    }
    Err(Failure::Run(format!("the pipeline gave {}, a plain read {plain}", sunk.checksum)))
}

/// A frame on its way: the lease and the moment when it had been decoded.
struct Frame {
    pixels: Lease,
    decoded: Instant,
}

/// Runs the three threads to the end of the clip and joins them.
fn pipeline(
    clip: &mut Clip,
    pool: &Pool,
    gpu: Option<Gpu>,
    limit: u64,
    args: &Args,
) -> Result<(Luma, Sunk), Failure> {
    // Each channel can hold every lease there is: only the pool ever makes a stage wait.
    let depth = usize::from(args.depth);
    let (to_process, from_capture) = bounded(depth);
    let (to_sink, from_process) = bounded(depth);
    let header = clip.header;
    let (captured, processed, sunk) = thread::scope(|scope| {
        let captured = scope.spawn(move || capture(clip, pool, limit, &to_process));
        let processed = scope.spawn(move || process(&header, gpu, &from_capture, &to_sink));
        let sunk = scope.spawn(move || sink(pool, &from_process));
        (join(captured), join(processed), join(sunk))
    });
    captured?;
    let (luma, sunk) = (processed?, sunk?);
    if sunk.checksum.frames == 0 {
        return Err(Failure::Input("there is no frame after the header".into()));
    }
    Ok((luma, sunk))
}

fn join<T>(stage: ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    stage.join().unwrap_or_else(|_| Err(Failure::Run("a stage panicked".into())))
}

/// Decodes into leases until the input ends; stops without an error when the next stage is gone,
/// for that stage then has the cause.
fn capture(
    clip: &mut Clip,
    pool: &Pool,
    limit: u64,
    to_process: &Sender<Frame>,
) -> Result<(), Failure> {
    let frame_bytes = clip.header.frame_bytes;
    for index in 0..limit {
        let Some(planes) = clip.next_frame(index)? else { break };
        let decoded = Instant::now();
        let mut pixels = pool.lease(frame_bytes).map_err(Failure::run)?;
        // The decoder reads each frame into a buffer of its own, with no way to lend it another:
        // so one copy, plane by plane, from there into the lease, and none after it.
        let mut rest = pixels.as_mut_slice();
        for plane in [planes.get_y_plane(), planes.get_u_plane(), planes.get_v_plane()] {
            rest.write_all(plane).map_err(Failure::run)?;
        }
        if !rest.is_empty() {
            return Err(Failure::Run(format!("frame {index} is {} bytes short", rest.len())));
        }
        if to_process.send(Frame { pixels, decoded }).is_err() {
            break;
        }
    }
    Ok(())
}

/// Looks at every luma sample and takes the frame through the GPU if there is one.
fn process(
    header: &Header,
    mut gpu: Option<Gpu>,
    from_capture: &Receiver<Frame>,
    to_sink: &Sender<Frame>,
) -> Result<Luma, Failure> {
    let mut luma = Luma::default();
    for mut frame in from_capture {
        luma.add(header, frame.pixels.as_slice());
        if let Some(gpu) = &mut gpu {
            frame.pixels = gpu.round_trip(frame.pixels)?;
        }
        if to_sink.send(frame).is_err() {
            break;
        }
    }
    Ok(luma)
}

/// Consumes the frames in order; dropping the lease sends the slot back to `capture`.
fn sink(pool: &Pool, from_process: &Receiver<Frame>) -> Result<Sunk, Failure> {
    let latency_ns = Histogram::new(3).map_err(Failure::run)?;
    let mut sunk = Sunk { checksum: Checksum::default(), latency_ns, in_use_sum: 0 };
    for frame in from_process {
        sunk.checksum.add_frame(frame.pixels.as_slice());
        let stats = pool.stats();
        sunk.in_use_sum +=
            stats.classes.iter().map(|c| u64::from(c.leased + c.in_flight)).sum::<u64>();
        let nanos = u64::try_from(frame.decoded.elapsed().as_nanos()).unwrap_or(u64::MAX);
        sunk.latency_ns.record(nanos).map_err(Failure::run)?;
    }
    Ok(sunk)
}

/// What the sink saw.
struct Sunk {
    checksum: Checksum,
    latency_ns: Histogram<u64>,
    /// Slots in use, summed over the frames.
    in_use_sum: u64,
}

impl Sunk {
    fn describe(&self, elapsed: Duration, depth: u16) -> String {
        let frames = self.checksum.frames as f64;
        let seconds = elapsed.as_secs_f64();
        let us = |quantile| self.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        format!(
            "speed       {frames} frames in {seconds:.3} s = {:.1} fps\n\
             latency     decode to sink: p50 {:.0} us, p90 {:.0} us, p99 {:.0} us, max {:.0} us\n\
             occupancy   {:.1} of {depth} slots in use when a frame reaches the sink\n",
            frames / seconds,
            us(0.5),
            us(0.9),
            us(0.99),
            self.latency_ns.max() as f64 / 1e3,
            self.in_use_sum as f64 / frames,
        )
    }
}

/// A stream and one frame of device memory.
struct Gpu {
    stream: Arc<CudaStream>,
    frame: CudaSlice<u8>,
}

impl Gpu {
    /// `None` where the pool runs without a GPU.
    fn open(pool: &Pool, frame_bytes: usize) -> Result<Option<Self>, Failure> {
        let Some(context) = pool.cuda_context() else { return Ok(None) };
        let stream = context.new_stream().map_err(Failure::run)?;
        let frame = stream.alloc_zeros(frame_bytes).map_err(Failure::run)?;
        Ok(Some(Self { stream, frame }))
    }

    /// Uploads a frame and downloads it into the same lease, wiped in between so that the sink's
    /// checksum can only be right if the pixels really came back from the device.
    fn round_trip(&mut self, pixels: Lease) -> Result<Lease, Failure> {
        let up = pixels.upload(&self.stream, &mut self.frame).map_err(Failure::run)?;
        let mut pixels = up.wait().map_err(Failure::run)?;
        pixels.as_mut_slice().fill(0);
        let down = pixels.download(&self.frame, &self.stream).map_err(Failure::run)?;
        down.wait().map_err(Failure::run)
    }
}

/// A histogram of luma samples, scaled to 8 bits.
struct Luma([u64; 256]);

impl Default for Luma {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Luma {
    fn add(&mut self, header: &Header, frame: &[u8]) {
        let luma = &frame[..header.luma_bytes.min(frame.len())];
        if header.bits == 8 {
            for &sample in luma {
                self.0[usize::from(sample)] += 1;
            }
        } else {
            for &sample in luma.as_chunks::<2>().0 {
                let level = u16::from_le_bytes(sample) >> (header.bits - 8);
                self.0[usize::from(level.min(255))] += 1;
            }
        }
    }
}

impl Display for Luma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = self.0.iter().sum::<u64>();
        let levels = self.0.iter().zip(0_u64..).map(|(count, level)| count * level).sum::<u64>();
        let mean = levels as f64 / samples as f64;
        let darkest = self.0.iter().position(|&count| count > 0).unwrap_or(0);
        let brightest = self.0.iter().rposition(|&count| count > 0).unwrap_or(0);
        write!(f, "mean {mean:.1} of 255, darkest {darkest}, brightest {brightest}")
    }
}

/// FNV-1a, 64 bit, over the little-endian 64-bit words of each frame and its last odd bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Checksum {
    hash: u64,
    frames: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, frames: 0 }
    }
}

impl Checksum {
    fn add_frame(&mut self, frame: &[u8]) {
        const PRIME: u64 = 0x0100_0000_01b3;
        let (words, tail) = frame.as_chunks::<8>();
        let values = words.iter().map(|&word| u64::from_le_bytes(word));
        for value in values.chain(tail.iter().map(|&byte| u64::from(byte))) {
            self.hash = (self.hash ^ value).wrapping_mul(PRIME);
        }
        self.frames += 1;
    }
}

impl Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} over {} frames", self.hash, self.frames)
    }
}

/// The plain reader: headers by hand, payload into one ordinary buffer, no pool and no decoder.
fn plain_read(input: &mut Input, limit: u64) -> Result<Checksum, Failure> {
    let (header, _) = Header::read(input)?;
    let mut payload = vec![0; header.frame_bytes];
    let mut checksum = Checksum::default();
    while checksum.frames < limit {
        let line = read_line(input)?;
        if line.is_empty() {
            break;
        }
        if !line.starts_with(b"FRAME") {
            return Err(Failure::Input(format!("no FRAME before frame {}", checksum.frames)));
        }
        input.read_exact(&mut payload).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => truncated(checksum.frames),
            _ => Failure::input(error),
        })?;
        checksum.add_frame(&payload);
    }
    Ok(checksum)
}

/// The decoder, and how much it has read: it cannot tell a clean end from a cut frame itself.
struct Clip {
    header: Header,
    decoder: y4m::Decoder<Counted>,
    bytes_read: Arc<AtomicU64>,
}

impl Clip {
    fn open(mut input: Input) -> Result<Self, Failure> {
        // Read ahead of the decoder, which multiplies width by height unchecked.
        let (header, line) = Header::read(&mut input)?;
        let bytes_read = Arc::new(AtomicU64::new(0));
        let input = Cursor::new(line).chain(input);
        let counted = Counted { input, bytes_read: Arc::clone(&bytes_read) };
        let decoder = y4m::decode(counted)
            .map_err(|error| Failure::Input(format!("header not understood: {error}")))?;
        Ok(Self { header, decoder, bytes_read })
    }

    fn next_frame(&mut self, index: u64) -> Result<Option<y4m::Frame<'_>>, Failure> {
        let before = self.bytes_read.load(Ordering::Relaxed);
        match self.decoder.read_frame() {
            Ok(frame) => Ok(Some(frame)),
            Err(y4m::Error::EOF) if self.bytes_read.load(Ordering::Relaxed) == before => Ok(None),
            Err(y4m::Error::EOF) => Err(truncated(index)),
            Err(error) => Err(Failure::Input(format!("frame {index}: {error}"))),
        }
    }
}

type Input = BufReader<Box<dyn Read + Send>>;

/// A reader that counts.
struct Counted {
    input: io::Chain<Cursor<Vec<u8>>, Input>,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// What the clip's first line says.
#[derive(Clone, Copy)]
struct Header {
    width: usize,
    height: usize,
    bits: u32,
    luma_bytes: usize,
    frame_bytes: usize,
}

impl Header {
    /// Parses the first line and returns it too.
    fn read(input: &mut Input) -> Result<(Self, Vec<u8>), Failure> {
        let line = read_line(input)?;
        if line.is_empty() {
            return Err(Failure::Input("the input is empty".into()));
        }
        let text = String::from_utf8_lossy(&line);
        let Some(parameters) = text.strip_prefix("YUV4MPEG2 ") else {
            return Err(Failure::Input(
                "not a YUV4MPEG2 clip: it does not begin with that word".into(),
            ));
        };
        let (mut width, mut height, mut colour) = ("", "", "420");
        for parameter in parameters.split_ascii_whitespace() {
            match parameter.split_at_checked(1) {
                Some(("W", value)) => width = value,
                Some(("H", value)) => height = value,
                Some(("C", value)) => colour = value,
                _ => {}
            }
        }
        let size = |name, value: &str| match value.parse::<usize>() {
            Ok(pixels) if pixels > 0 => Ok(pixels),
            _ => Err(Failure::Input(format!("{name} must be a positive number, not '{value}'"))),
        };
        let header = Self::layout(size("width", width)?, size("height", height)?, colour)?;
        Ok((header, line))
    }

    fn layout(width: usize, height: usize, colour: &str) -> Result<Self, Failure> {
        // Samples of chroma per luma sample: (across, down) divisors, or none for grey.
        let (chroma, bits) = match colour {
            "420" | "420jpeg" | "420mpeg2" | "420paldv" => (Some((2, 2)), 8),
            "420p10" => (Some((2, 2)), 10),
            "420p12" => (Some((2, 2)), 12),
            "422" => (Some((2, 1)), 8),
            "422p10" => (Some((2, 1)), 10),
            "422p12" => (Some((2, 1)), 12),
            "444" => (Some((1, 1)), 8),
            "444p10" => (Some((1, 1)), 10),
            "444p12" => (Some((1, 1)), 12),
            "mono" => (None, 8),
            "mono12" => (None, 12),
            _ => {
                let known = "420, 422 or 444 with 8, 10 or 12 bits, mono, mono12";
                return Err(Failure::Input(format!("colour space '{colour}' is not {known}")));
            }
        };
        let sample_bytes = if bits == 8 { 1 } else { 2 };
        let sizes = || {
            let luma: usize = width.checked_mul(height)?.checked_mul(sample_bytes)?;
            let plane = match chroma {
                Some((across, down)) => {
                    width.div_ceil(across) * height.div_ceil(down) * sample_bytes
                }
                None => 0,
            };
            // The decoder's own limit.
            Some((luma, luma.checked_add(plane.checked_mul(2)?)?)).filter(|s| s.1 <= 1 << 30)
        };
        let Some((luma_bytes, frame_bytes)) = sizes() else {
            return Err(Failure::Input(format!("{width}x{height} is more than 1 GiB a frame")));
        };
        Ok(Self { width, height, bits, luma_bytes, frame_bytes })
    }
}

impl Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { width, height, bits, frame_bytes, .. } = self;
        write!(f, "{width}x{height}, {bits} bit, {frame_bytes} bytes a frame")
    }
}

/// One header line with its end; empty at the end of the input.
fn read_line(input: &mut Input) -> Result<Vec<u8>, Failure> {
    let mut line = Vec::new();
    // The decoder refuses longer lines too.
    input.take(1024).read_until(b'\n', &mut line).map_err(Failure::input)?;
    if line.is_empty() || line.ends_with(b"\n") {
        return Ok(line);
    }
    Err(Failure::Input("a header line does not end: no YUV4MPEG2 clip, or cut off".into()))
}

fn open_input(path: &Path) -> Result<Input, Failure> {
    let input: Box<dyn Read + Send> = if path == Path::new("-") {
        if io::stdin().is_terminal() {
            return Err(Failure::Input("standard input is a terminal: pipe a clip into it".into()));
        }
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(Failure::input)?)
    };
    Ok(BufReader::with_capacity(1 << 16, input))
}

fn truncated(frame: u64) -> Failure {
    Failure::Input(format!("the clip is cut off inside frame {frame} (counted from 0)"))
}

/// Writes the whole report; a reader that has gone away is no error.
fn print(report: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(report.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::run(error)),
        _ => Ok(()),
    }
}

/// Why the program ends early: the clip is at fault, or the run is.
#[derive(Debug)]
enum Failure {
    Input(String),
    Run(String),
}

impl Failure {
    fn input(error: impl Display) -> Self {
        Self::Input(error.to_string())
    }

    fn run(error: impl Display) -> Self {
        Self::Run(error.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(text) | Self::Run(text) => f.write_str(text),
        }
    }
}
