//! The command line as clap reads it.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use pinpool::{BackendChoice, FrameSpec};

use crate::bytes;
use crate::cmd::bench::all;
use crate::options::{
    ComparedArgs, OutputArgs, PinnedArgs, PinnedRunArgs, PyTorchArgs, RunArgs, SizesArgs, SweepArgs,
};

/// Pinned host memory for real-time GPU pipelines: check a machine, plan a pool, measure it.
#[derive(Debug, Parser)]
#[command(name = "pinpool", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Log what the pool does (where `RUST_LOG` is set, it decides)
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tell whether this machine can run a pinned pool well, and what to do where it cannot
    ///
    /// Each line is OK, a warning, a problem with its remedy, or not applicable. A small pool is opened and
    /// closed again for a test. Exit code 1 means that a problem stops the pool in question: that of
    /// --config, or any of the default kind.
    Doctor(DoctorArgs),
    /// Print what a configuration comes to: classes, slots, pinned bytes, waste, limits
    Plan(PlanArgs),
    /// Measure the pool against what is written without it
    Bench(BenchArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check for the pool of this configuration file (TOML); `PINPOOL_*` variables override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Check for a pool on this CUDA device; that there is none of that number is then a problem
    #[arg(long, value_name = "N")]
    pub(crate) device: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The configuration file (TOML); `PINPOOL_*` variables override it
    pub(crate) file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) scenario: Scenario,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Scenario {
    /// Every scenario in turn, each in a process of its own; one that fails does not stop the others
    All(AllArgs),
    /// Two results of one scenario, ratio by ratio
    Compare(CompareArgs),
    /// A page of tables and pictures of results that were written before
    Page(PageArgs),
    /// Video frames: leases, pinning per frame, malloc per frame and a fixed ring
    Frames(FramesArgs),
    /// Copies between host and GPU: from a lease, raw pinned and pageable memory
    Copy(CopyArgs),
    /// One copy of a gigabyte, pageable against pinned, first and later, and where the time goes
    Gigabyte(PinnedRunArgs),
    /// What pinned memory costs to get and to give back, against malloc and a lease, by size
    Alloc(SweepArgs),
    /// From which size and how many copies on pinning a buffer pays on this machine
    BreakEven(SweepArgs),
    /// Leases and drops by themselves: threads, rivals, hand-over, empty and large pools
    #[command(visible_alias = HANDOFF)]
    Lease(ComparedArgs),
    /// Leases dropped while the GPU uses them: cost, time to reuse, every byte of a storm checked
    InFlight(ComparedArgs),
    /// Far more takers than slots: how long who waits, what the line costs, what giving up does
    Waiting(WaitingArgs),
    /// Opening pools: time by step, beside other ways to pinned memory, and who is held up by it
    Startup(StartupArgs),
    /// Ordinary memory and files to and from the GPU: stagers, the driver's own copies, a lease
    Staged(StagedArgs),
    /// A thread that pins memory for each frame: what that does to another's copies and launches
    Neighbours(PinnedRunArgs),
    /// Chunks to the GPU, a kernel and back, in several streams: pageable against pinned memory
    Overlap(PinnedRunArgs),
    /// What pinned memory costs the rest of the system: a neighbour that needs memory and a file
    ///
    /// Without --quick it takes most of the memory that is available, for some minutes, and keeps an eighth of
    /// it free, 4 GiB at most: let nothing else run beside it. It writes a file twice as large.
    Pressure(PressureArgs),
    /// The process that `startup` starts beside itself
    #[command(name = NEIGHBOUR, hide = true)]
    StartupNeighbour,
    /// The process that `pressure` starts beside itself
    #[command(name = PRESSURE_NEIGHBOUR, hide = true)]
    PressureNeighbour(PressureNeighbourArgs),
}

/// The names of the commands that only this program gives itself.
pub(crate) const NEIGHBOUR: &str = "startup-neighbour";
pub(crate) const PRESSURE_NEIGHBOUR: &str = "pressure-neighbour";

#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    /// Run these only, with commas between them; handoff is a part of lease
    #[arg(
        long,
        value_name = "SCENARIO",
        value_delimiter = ',',
        value_parser = only()
    )]
    pub(crate) only: Vec<String>,
    /// Run every scenario in a small size, whose figures mean little
    #[arg(long)]
    pub(crate) quick: bool,
    /// Run every scenario in its largest size
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) pinned: PinnedArgs,
    /// Write the results as JSON into this folder, one file for each scenario
    #[arg(long, value_name = "DIR")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page of tables and pictures, index.html, into this folder, and the results beside it
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

/// The scenarios by their names, and by those that are parts of another.
fn only() -> impl TypedValueParser<Value = String> {
    let value = |name| match name {
        LEASE => PossibleValue::new(name).alias(HANDOFF),
        _ => PossibleValue::new(name),
    };
    let named = PossibleValuesParser::new(all::names().into_iter().map(value));
    named.map(|name| if name == HANDOFF { LEASE.to_owned() } else { name })
}

/// From thread to thread, which is a part of `lease`.
const HANDOFF: &str = "handoff";
const LEASE: &str = "lease";

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The result to compare with
    #[arg(value_name = "A.json")]
    pub(crate) before: PathBuf,
    /// The result that is compared
    #[arg(value_name = "B.json")]
    pub(crate) after: PathBuf,
    /// Exit with code 1 where a ratio, or the median of its rounds, is worse by more than this
    #[arg(long, value_name = "PERCENT")]
    pub(crate) max_regression: Option<f64>,
    /// Exit with code 1 where a ratio differs by more than this, whichever way is better
    #[arg(long, value_name = "PERCENT")]
    pub(crate) within: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// Results that `bench` wrote
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The folder of the page, index.html, and of copies of the results
    #[arg(long, value_name = "DIR")]
    pub(crate) report: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct FramesArgs {
    /// The memory to use; auto is CUDA where there is a driver and a device
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    pub(crate) backend: Backend,
    /// The frame: 1080p-rgb, 4k-nv12, or WIDTHxHEIGHT:FORMAT
    #[arg(long, value_name = "FRAME", default_value = "1080p-rgb")]
    pub(crate) frame: FrameSpec,
    /// Frames to count for each source
    #[arg(long, value_name = "N", default_value_t = 300)]
    pub(crate) frames: u64,
    /// Frames that stay live, as in a capture queue
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) depth: usize,
    /// Pace the frames, and count those that miss their deadline
    #[arg(long, value_name = "FPS")]
    pub(crate) rate: Option<f64>,
    /// Count 30 frames for each source, whose figures mean little
    #[arg(long, conflicts_with = "frames")]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) pinned: PinnedArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
    /// Copy 256 MiB too
    #[arg(long, conflicts_with_all = ["size", "quick"])]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) pinned: PinnedArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WaitingArgs {
    /// How long to count each case of tasks and of threads
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) seconds: u64,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StartupArgs {
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
    /// Pin this much while others are watched, instead of 32 GiB
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = bytes::size)]
    pub(crate) neighbour_size: Option<usize>,
    #[command(flatten)]
    pub(crate) pytorch: PyTorchArgs,
    #[command(flatten)]
    pub(crate) pinned: PinnedArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StagedArgs {
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
    /// Lay the file here instead of in the system's folder for temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) file_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pytorch: PyTorchArgs,
    #[command(flatten)]
    pub(crate) pinned: PinnedArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PressureArgs {
    /// Lay the neighbour's file here instead of in the system's folder for temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) file_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pinned: PinnedArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PressureNeighbourArgs {
    /// Where its file lies
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    Auto,
    Cuda,
    Host,
}

impl From<Backend> for BackendChoice {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Auto => Self::Auto,
            Backend::Cuda => Self::Cuda,
            Backend::Host => Self::Host,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
