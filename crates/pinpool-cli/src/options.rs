//! Options that several scenarios share; knows no scenario.

use std::path::PathBuf;

use clap::Args;

use crate::bytes;

/// What scenarios share that pin memory of many sizes.
#[derive(Debug, Args)]
pub(crate) struct PinnedArgs {
    /// Have no more than this pinned at a time (4096, 512MiB, 1GiB); half of the memory by default
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true, value_parser = bytes::count)]
    pub(crate) max_pinned: Option<u64>,
}

/// What scenarios share that can be told which sizes to measure.
#[derive(Debug, Args)]
pub(crate) struct SizesArgs {
    /// Measure this size (4096, 64MiB, 1GiB) instead of the usual ones; may be given several times
    #[arg(id = "size", long, value_name = "BYTES", allow_negative_numbers = true, value_parser = bytes::size)]
    pub(crate) bytes: Vec<usize>,
}

/// What scenarios share that compare with PyTorch.
#[derive(Debug, Args)]
pub(crate) struct PyTorchArgs {
    /// Compare with PyTorch's figures: a file that this scenario's script in scripts/pytorch wrote
    #[arg(id = "pytorch", long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Where the result of a scenario goes, besides the table for people.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write the result as JSON; `-` is standard output, and the table goes to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a page of tables and pictures, index.html, into this folder, and the JSON beside it
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

/// What scenarios of several parts share.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Run every part in a small size, whose figures mean little
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// All that a scenario takes that pins memory.
#[derive(Debug, Args)]
pub(crate) struct PinnedRunArgs {
    #[command(flatten)]
    pub(crate) pinned: PinnedArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// All that a scenario takes that pins memory of many sizes.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) sizes: SizesArgs,
    #[command(flatten)]
    pub(crate) pinned: PinnedArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// All that a scenario takes that compares with PyTorch, and pins little.
#[derive(Debug, Args)]
pub(crate) struct ComparedArgs {
    #[command(flatten)]
    pub(crate) pytorch: PyTorchArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}
