//! The other side of the comparison: what `scripts/pytorch/staged.py` measured of PyTorch's copies of
//! pageable memory.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::machine::Machine;
use crate::pytorch;
use crate::timing::{Range, median};

/// How long PyTorch takes to bring a tensor of ordinary memory to the device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PyTorch {
    /// PyTorch's version.
    pub pytorch_version: String,
    /// The GPU's name.
    pub device: String,
    /// Whether what it pinned was given back between repeats; if not, there is one repeat only.
    pub pins_anew: bool,
    /// By way and size.
    pub rows: Vec<PyTorchRow>,
}

/// One way and size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PyTorchRow {
    /// [`TO`] or [`PIN_MEMORY`].
    pub way: String,
    /// Bytes copied.
    pub bytes: u64,
    /// Milliseconds from the call to the end of the copy, each.
    pub ms: Vec<f64>,
}

impl PyTorchRow {
    /// Decimal gigabytes a second, at the median.
    pub(super) fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / Range::of(&self.ms).median
    }
}

impl PyTorch {
    /// Reads the file that `scripts/pytorch/staged.py` wrote.
    ///
    /// # Errors
    /// [`BenchError::Input`] naming the file and what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        pytorch::read(path, "scripts/pytorch/staged.py", |read: &Self| {
            let is_figure = |row: &&PyTorchRow| median(&row.ms) > 0.0;
            match read.rows.iter().find(|row| !is_figure(row)) {
                Some(row) => {
                    Err(format!("{}, {} bytes: no figure to compare with", row.way, row.bytes))
                }
                None if read.rows.is_empty() => Err("no figures".to_owned()),
                None => Ok(()),
            }
        })
    }

    /// Decimal gigabytes a second of a way with so many bytes.
    pub(super) fn gb_per_s(&self, way: &str, bytes: u64) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.way == way && row.bytes == bytes)?;
        Some(row.gb_per_s())
    }

    /// Refuses figures of another GPU than this machine's.
    pub(super) fn check_device(&self, here: &Machine) -> Result<(), BenchError> {
        pytorch::check_device(&self.device, here.gpu.as_ref().map(|gpu| gpu.name.as_str()))
    }
}

/// `tensor.to("cuda")`.
pub const TO: &str = "to";
/// `tensor.pin_memory().to("cuda", non_blocking=True)`, pinned anew each time.
pub const PIN_MEMORY: &str = "pin_memory";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
pub(crate) mod tests {
    use super::*;
    use crate::pytorch::tests::read_back;

    pub(crate) fn figures() -> PyTorch {
        let row =
            |way: &str, ms: &[f64]| PyTorchRow { way: way.into(), bytes: 1 << 30, ms: ms.to_vec() };
        PyTorch {
            pytorch_version: "2.11.0".into(),
            device: "NVIDIA H200".into(),
            pins_anew: true,
            // 1.074 GB.
            rows: vec![row(TO, &[134.218]), row(PIN_MEMORY, &[500.0, 536.871, 600.0])],
        }
    }

    #[test]
    fn only_figures_that_compare_are_read() {
        let read =
            |figures: &PyTorch| read_back(&serde_json::to_string(figures).unwrap(), PyTorch::read);
        assert_eq!(read(&figures()).unwrap(), figures());
        let to = figures().gb_per_s(TO, 1 << 30).unwrap();
        let pinned = figures().gb_per_s(PIN_MEMORY, 1 << 30).unwrap();
        assert!((to - 8.0).abs() < 1e-3 && (pinned - 2.0).abs() < 1e-3, "{to} {pinned}");
        assert_eq!(figures().gb_per_s(TO, 1 << 20), None);
        let mut none = figures();
        none.rows[1].ms.clear();
        assert!(read(&none).unwrap_err().contains("pin_memory, 1073741824 bytes: no figure"));
        none.rows.clear();
        assert!(read(&none).unwrap_err().contains("no figures"));
        let error = read_back("{}", PyTorch::read).unwrap_err();
        assert!(error.ends_with("; not a file of scripts/pytorch/staged.py?"), "{error}");
    }
}
