//! The other side of the comparison: what `scripts/pytorch/startup.py` measured of PyTorch's pinned
//! memory.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::machine::Machine;
use crate::pytorch;
use crate::timing::{Range, median};

/// How long PyTorch takes to pin memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PyTorch {
    /// PyTorch's version.
    pub pytorch_version: String,
    /// The GPU's name.
    pub device: String,
    /// By mode and size.
    pub rows: Vec<PyTorchRow>,
}

/// One mode and size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PyTorchRow {
    /// [`DEFAULT`] or [`REGISTER`].
    pub mode: String,
    /// The settings of its allocator; empty for the default.
    pub settings: String,
    /// Bytes pinned.
    pub bytes: u64,
    /// Milliseconds of `torch.empty(…, pin_memory=True)`, each.
    pub empty_ms: Vec<f64>,
    /// Milliseconds of `pin_memory()` on memory in use, which it copies, each.
    pub pin_memory_ms: Vec<f64>,
    /// How the kernel lists the memory, which tells whether the settings were followed.
    pub mapping: String,
}

impl PyTorch {
    /// Reads the file that `scripts/pytorch/startup.py` wrote.
    ///
    /// # Errors
    /// [`BenchError::Input`] naming the file and what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        pytorch::read(path, "scripts/pytorch/startup.py", |read: &Self| {
            let is_figure = |row: &&PyTorchRow| median(&row.empty_ms) > 0.0;
            match read.rows.iter().find(|row| !is_figure(row)) {
                Some(row) => {
                    Err(format!("{}, {} bytes: no figure to compare with", row.mode, row.bytes))
                }
                None if read.rows.is_empty() => Err("no figures".to_owned()),
                None => Ok(()),
            }
        })
    }

    /// The time to pin so many bytes without a copy: the median, in milliseconds.
    pub(super) fn ms(&self, mode: &str, bytes: u64) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.mode == mode && row.bytes == bytes)?;
        Some(Range::of(&row.empty_ms).median)
    }

    /// Refuses figures of another GPU than this machine's.
    pub(super) fn check_device(&self, here: &Machine) -> Result<(), BenchError> {
        pytorch::check_device(&self.device, here.gpu.as_ref().map(|gpu| gpu.name.as_str()))
    }
}

/// PyTorch as it is.
pub const DEFAULT: &str = "default";
/// Told to back memory by 16 threads that register it.
pub const REGISTER: &str = "register16";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
pub(crate) mod tests {
    use super::*;
    use crate::pytorch::tests::read_back;

    pub(crate) fn figures() -> PyTorch {
        let row = |mode: &str, empty_ms: &[f64]| PyTorchRow {
            mode: mode.into(),
            settings: String::new(),
            bytes: 8 << 30,
            empty_ms: empty_ms.to_vec(),
            pin_memory_ms: vec![5000.0],
            mapping: "rw-s".into(),
        };
        PyTorch {
            pytorch_version: "2.11.0".into(),
            device: "NVIDIA H200".into(),
            rows: vec![row(DEFAULT, &[3200.0]), row(REGISTER, &[900.0, 1000.0, 1500.0])],
        }
    }

    #[test]
    fn only_figures_that_compare_are_read() {
        let read =
            |figures: &PyTorch| read_back(&serde_json::to_string(figures).unwrap(), PyTorch::read);
        assert_eq!(read(&figures()).unwrap(), figures());
        assert_eq!(figures().ms(REGISTER, 8 << 30), Some(1000.0));
        assert_eq!(figures().ms(REGISTER, 1 << 30), None);
        let mut none = figures();
        none.rows[1].empty_ms.clear();
        assert!(read(&none).unwrap_err().contains("register16, 8589934592 bytes: no figure"));
        none.rows.clear();
        assert!(read(&none).unwrap_err().contains("no figures"));
        let error = read_back("{}", PyTorch::read).unwrap_err();
        assert!(error.ends_with("; not a file of scripts/pytorch/startup.py?"), "{error}");
    }
}
