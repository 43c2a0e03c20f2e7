//! A vector that nobody pinned goes to the GPU and back through a stager, beside the driver's own
//! copies of the same bytes.
//!
//! `cargo run --release -p examples --example upload_vec [MIB]`. Without a GPU there is nothing to
//! copy to, and it says so.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use futures_lite::future;
use pinpool::cudarc::driver::{CudaSlice, CudaStream};
use pinpool::{LockMode, Pool, StageError, StageProgress, Stager};

/// Uploads and downloads a `Vec<f32>`.
#[derive(Debug, Parser)]
struct Args {
    /// MiB of the vector.
    #[arg(default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    mib: u32,
}

/// Of so many the best time counts: a first copy also pays for what comes into being with it.
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    // Exits with status 2 for what is no number of MiB.
    let args = Args::parse();
    let stderr = io::stderr();
    // How far a copy is interests nobody in a log.
    let mut screen: Box<dyn Write> =
        if stderr.is_terminal() { Box::new(stderr) } else { Box::new(io::sink()) };
    match run(&args, &mut io::stdout().lock(), &mut screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "upload_vec: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args, out: &mut impl Write, screen: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let pool = Pool::builder().stager().lock(LockMode::Try).open()?;
    let Some(context) = pool.cuda_context() else {
        let reason = &pool.startup().reason;
        writeln!(out, "no GPU ({reason})\na stager copies to and from one, so this ends here")?;
        return Ok(());
    };
    // One for the whole program: it holds its slots and its sleeping threads as long as it lives.
    let stager = Stager::new(&pool)?;
    let (threads, piece) = (stager.threads(), stager.chunk_bytes());
    writeln!(out, "{} MiB, a crew of {threads}, pieces of {piece} bytes", args.mib)?;

    let count = usize::try_from(args.mib)? * (1 << 20) / size_of::<f32>();
    // All below 2^23, so that each is exact; and no piece looks like another.
    let numbers: Vec<f32> = (0..8_388_593_u32).cycle().take(count).map(|n| n as f32).collect();
    let stream = context.new_stream()?;
    let mut gpu = Gpu { on_device: stream.alloc_zeros(count)?, stream, back: vec![0.0; count] };

    upload(&stager, &numbers, &mut gpu, out)?;
    download(&stager, &numbers, &mut gpu, out)?;
    upload_in_a_scope(&stager, &numbers, &mut gpu, out, screen)?;
    upload_owned(&stager, numbers, gpu, out)?;

    // Waits for its threads; the slots are at home then.
    stager.close();
    writeln!(out, "\nclose: {}", pool.close(Duration::from_secs(5)))?;
    Ok(())
}

/// The vector's place on the device, and one for what comes back from there.
struct Gpu {
    stream: Arc<CudaStream>,
    on_device: CudaSlice<f32>,
    back: Vec<f32>,
}

impl Gpu {
    /// So that nothing is right because an earlier copy was.
    fn wipe(&mut self) -> Result<(), Box<dyn Error>> {
        self.stream.memset_zeros(&mut self.on_device)?;
        Ok(self.stream.synchronize()?)
    }

    /// Compares what is on the device with what was sent, by way of the driver's own copy.
    fn check(&mut self, wanted: &[f32]) -> Result<(), Box<dyn Error>> {
        self.stream.memcpy_dtoh(&self.on_device, &mut self.back)?;
        self.stream.synchronize()?;
        same(&self.back, wanted)
    }
}

/// Returns when the source has been read: it can be written or dropped, and work that is queued
/// on the stream from now on finds all of it on the device.
fn upload(
    stager: &Stager,
    numbers: &[f32],
    gpu: &mut Gpu,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let driver = best(|| {
        gpu.stream.memcpy_htod(numbers, &mut gpu.on_device)?;
        Ok(gpu.stream.synchronize()?)
    })?;
    gpu.wipe()?;
    let ours = best(|| {
        let copy = stager.upload(numbers, &gpu.stream, &mut gpu.on_device)?;
        // Only for the clock. A program queues its kernel now.
        Ok(copy.wait()?)
    })?;
    gpu.check(numbers)?;
    report("to the GPU", numbers, driver, ours, out)
}

/// Returns when all of it is there.
fn download(
    stager: &Stager,
    numbers: &[f32],
    gpu: &mut Gpu,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let driver = best(|| {
        gpu.stream.memcpy_dtoh(&gpu.on_device, &mut gpu.back)?;
        Ok(gpu.stream.synchronize()?)
    })?;
    gpu.back.fill(-1.0);
    let ours = best(|| Ok(stager.download(&gpu.on_device, &gpu.stream, &mut gpu.back)?))?;
    same(&gpu.back, numbers)?;
    report("from the GPU", numbers, driver, ours, out)
}

/// What is lent to the copy can be read meanwhile. The scope does not end before the copy does.
fn upload_in_a_scope(
    stager: &Stager,
    numbers: &[f32],
    gpu: &mut Gpu,
    out: &mut impl Write,
    screen: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    gpu.wipe()?;
    let Gpu { stream, on_device, .. } = gpu;
    let (mean, then) = stager.scope(|scope| -> Result<_, Box<dyn Error>> {
        let copy = scope.upload(numbers, stream, on_device)?;
        let mut sum = 0.0;
        for part in numbers.chunks(1 << 20) {
            sum += part.iter().copied().map(f64::from).sum::<f64>();
            show(copy.progress(), screen)?;
        }
        let then = copy.progress();
        while !copy.is_over() {
            show(copy.progress(), screen)?;
            thread::sleep(Duration::from_millis(1));
        }
        show(copy.progress(), screen)?;
        copy.wait()?;
        Ok((sum / numbers.len() as f64, then))
    })?;
    writeln!(screen)?;
    gpu.check(numbers)?;
    let StageProgress { done, total, .. } = then;
    writeln!(out, "mean {mean:.1}, known when {done} of {total} bytes were on the GPU")?;
    Ok(())
}

/// The copy keeps the vector and the device memory, and gives both back; here to a task.
fn upload_owned(
    stager: &Stager,
    numbers: Vec<f32>,
    mut gpu: Gpu,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    gpu.wipe()?;
    let Gpu { stream, on_device, back } = gpu;
    let (numbers, on_device) = future::block_on(async {
        // A failed one has source and target in `OwnedError::parts`.
        stager.upload_owned(numbers, &stream, on_device)?.await
    })
    .map_err(StageError::from)?;
    Gpu { stream, on_device, back }.check(&numbers)?;
    writeln!(out, "an awaited copy gave {} numbers back", numbers.len())?;
    Ok(())
}

/// The best time of a few.
fn best(mut copy: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<Duration, Box<dyn Error>> {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        copy()?;
        best = best.min(began.elapsed());
    }
    Ok(best)
}

#[allow(clippy::float_cmp, reason = "copies are equal")]
fn same(found: &[f32], wanted: &[f32]) -> Result<(), Box<dyn Error>> {
    match found.iter().zip(wanted).position(|(found, wanted)| found != wanted) {
        None if found.len() == wanted.len() => Ok(()),
        None => Err(format!("{} numbers of {}", found.len(), wanted.len()).into()),
        Some(at) => Err(format!("number {at} is {}, and not {}", found[at], wanted[at]).into()),
    }
}

fn report(
    way: &str,
    numbers: &[f32],
    driver: Duration,
    ours: Duration,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let speed = |time: Duration| size_of_val(numbers) as f64 / time.as_secs_f64() / 1e9;
    let (driver, ours) = (speed(driver), speed(ours));
    writeln!(
        out,
        "{way:<13} driver {driver:6.2} GB/s, stager {ours:6.2} GB/s: {:.2} times as fast",
        ours / driver
    )?;
    Ok(())
}

fn show(progress: StageProgress, screen: &mut impl Write) -> io::Result<()> {
    let percent = progress.done * 100 / progress.total.max(1);
    write!(screen, "\r{percent:3} %")?;
    screen.flush()
}
