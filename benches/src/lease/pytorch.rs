//! The other side of the comparison: what `scripts/pytorch/lease.py` measured of PyTorch's host
//! allocator.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::machine::Machine;
use crate::pytorch;

/// The figures of PyTorch's caching host allocator: allocate and free, everything cached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PyTorch {
    /// PyTorch's version.
    pub pytorch_version: String,
    /// The GPU's name.
    pub device: String,
    /// Bytes of one allocation.
    pub bytes: u64,
    /// Rounds that the medians are of.
    pub rounds: u64,
    /// By number of threads.
    pub rows: Vec<PyTorchRow>,
}

/// PyTorch's figures with one number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PyTorchRow {
    /// Threads.
    pub threads: u64,
    /// Millions of allocations and frees a second, of all threads together.
    pub mops: f64,
    /// What one of them takes its thread, in nanoseconds.
    pub ns: f64,
}

impl PyTorch {
    /// Reads the file that `scripts/pytorch/lease.py` wrote.
    ///
    /// # Errors
    /// [`BenchError::Input`] naming the file and what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        pytorch::read(path, "scripts/pytorch/lease.py", |read: &Self| {
            let figures = |row: &PyTorchRow| row.mops > 0.0 && row.ns > 0.0;
            if let Some(row) = read.rows.iter().find(|row| !figures(row)) {
                return Err(format!("{} threads: no figure to compare with", row.threads));
            }
            read.row(1).map(drop).ok_or_else(|| "no figures of one thread".to_owned())
        })
    }

    /// The figures with so many threads.
    pub fn row(&self, threads: u64) -> Option<PyTorchRow> {
        self.rows.iter().copied().find(|row| row.threads == threads)
    }

    /// Refuses figures of another GPU than this machine's.
    pub(super) fn check_device(&self, here: &Machine) -> Result<(), BenchError> {
        pytorch::check_device(&self.device, here.gpu.as_ref().map(|gpu| gpu.name.as_str()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
pub(crate) mod tests {
    use super::*;
    use crate::pytorch::tests::read_back;

    pub(crate) fn figures() -> PyTorch {
        let row = |threads, mops, ns| PyTorchRow { threads, mops, ns };
        PyTorch {
            pytorch_version: "2.11.0".into(),
            device: "NVIDIA H200".into(),
            bytes: 65536,
            rounds: 7,
            rows: vec![row(1, 5.0, 200.0), row(16, 0.5, 32_000.0)],
        }
    }

    #[test]
    fn only_figures_that_compare_are_read() {
        let read =
            |figures: &PyTorch| read_back(&serde_json::to_string(figures).unwrap(), PyTorch::read);
        assert_eq!(read(&figures()).unwrap(), figures());
        let mut none = figures();
        none.rows.remove(0);
        assert!(read(&none).unwrap_err().contains("no figures of one thread"));
        let mut zero = figures();
        zero.rows[1].mops = 0.0;
        assert!(read(&zero).unwrap_err().contains("16 threads: no figure"));
        let error = read_back("{}", PyTorch::read).unwrap_err();
        assert!(error.contains("pytorch_version"), "{error}");
        assert!(error.ends_with("; not a file of scripts/pytorch/lease.py?"), "{error}");
    }
}
