//! The other side of the comparison: what `scripts/pytorch` measured of PyTorch's host allocator.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::report::{PendingRow, Spread};
use super::{BYTES, DEPTH};
use crate::BenchError;
use crate::pytorch;

/// The figures of PyTorch's caching host allocator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PyTorch {
    /// PyTorch's version.
    pub pytorch_version: String,
    /// The GPU's name.
    pub device: String,
    /// Bytes of one allocation.
    pub bytes: u64,
    /// Rounds in flight at most.
    pub rounds_per_batch: u64,
    /// Batches counted.
    pub batches: u64,
    /// One round with its copy call.
    pub round_ns: Spread,
    /// The same copy call alone.
    pub copy_call_ns: Spread,
    /// What allocate, `record_event` and free add to the copy call.
    pub allocate_record_free_ns: Spread,
    /// Rounds without copies, beside pending events.
    pub pending: Vec<PendingRow>,
}

impl PyTorch {
    /// Reads the file that `scripts/pytorch` wrote.
    ///
    /// # Errors
    /// [`BenchError::Input`] naming the file and what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        pytorch::read(path, "scripts/pytorch/in_flight.py", |read: &Self| {
            let (bytes, rounds) = (BYTES as u64, DEPTH as u64);
            if (read.bytes, read.rounds_per_batch) != (bytes, rounds) {
                return Err(format!(
                    "measured {} bytes, {} in flight; only {bytes} bytes, {rounds} in flight compare",
                    read.bytes, read.rounds_per_batch,
                ));
            }
            let median = read.allocate_record_free_ns.median;
            if median <= 0.0 || median.is_nan() {
                return Err(format!("a median of {median} ns is no figure to compare with"));
            }
            Ok(())
        })
    }

    /// Refuses figures of another GPU than `here`.
    pub(super) fn check_device(&self, here: Option<&str>) -> Result<(), BenchError> {
        pytorch::check_device(&self.device, here)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
pub(crate) mod tests {
    use std::fs;

    use super::*;
    use crate::pytorch::tests::read_back;

    pub(crate) fn figures() -> PyTorch {
        let spread = |median| Spread { median, p90: median * 1.5, p99: median * 2.0 };
        PyTorch {
            pytorch_version: "2.11.0".into(),
            device: "NVIDIA H200".into(),
            bytes: BYTES as u64,
            rounds_per_batch: DEPTH as u64,
            batches: 100,
            round_ns: spread(4000.0),
            copy_call_ns: spread(2000.0),
            allocate_record_free_ns: spread(2000.0),
            pending: vec![PendingRow {
                fence: "stream".into(),
                threads: 8,
                pending: 512,
                rounds: 80,
                p50_ns: 1000.0,
                p99_ns: 2000.0,
                max_ns: 3000.0,
            }],
        }
    }

    #[test]
    fn only_figures_that_compare_are_read() {
        let read =
            |figures: &PyTorch| read_back(&serde_json::to_string(figures).unwrap(), PyTorch::read);
        assert_eq!(read(&figures()).unwrap(), figures());
        let error = read(&PyTorch { bytes: 4096, ..figures() }).unwrap_err();
        assert!(error.contains("4096 bytes"), "{error}");
        let error = read(&PyTorch { rounds_per_batch: 64, ..figures() }).unwrap_err();
        assert!(error.contains("64 in flight"), "{error}");
        let mut nothing = figures();
        nothing.allocate_record_free_ns.median = 0.0;
        assert!(read(&nothing).unwrap_err().contains("no figure"));
        assert!(read_back("{}", PyTorch::read).unwrap_err().contains("pytorch_version"));
        let gone = |path: &Path| {
            fs::remove_file(path).unwrap();
            PyTorch::read(path)
        };
        assert!(read_back("", gone).unwrap_err().contains("No such file"));

        assert!(figures().check_device(Some("NVIDIA H200")).is_ok());
        for (other, says) in
            [(Some("NVIDIA A100"), "this is NVIDIA A100;"), (None, "this machine has no GPU;")]
        {
            let error = figures().check_device(other).unwrap_err();
            assert!(error.is_input() && error.to_string().contains(says), "{error}");
        }
    }
}
