//! How much memory this machine and the limits of this process let the scenario pin.

use super::strategies::{Ground, SLOT_BYTES};
use crate::BenchError;
use crate::{machine, procfs, text};

/// The most that one way may pin, and what sets it.
#[derive(Debug, Clone)]
pub(super) struct Room {
    bytes: usize,
    reason: &'static str,
}

impl Room {
    /// Half of what is available, or less where less may be locked or pinned.
    ///
    /// # Errors
    /// [`BenchError::Input`] where not even one slot fits.
    pub(super) fn find(ground: &Ground, max_pinned: Option<u64>) -> Result<Self, BenchError> {
        let half = machine::available_bytes().map_or(u64::MAX, |bytes| bytes / 2);
        let limits = [(max_pinned, OPTION), (lockable(ground)?, LOCK_LIMIT)];
        let limits = limits.into_iter().filter_map(|(bytes, reason)| Some((bytes?, reason)));
        let least = limits.min_by_key(|(bytes, _)| *bytes).filter(|(bytes, _)| *bytes < half);
        let (bytes, reason) = least.unwrap_or((half, MEMORY));
        let room = Self { bytes: usize::try_from(bytes).unwrap_or(usize::MAX), reason };
        if room.bytes < SLOT_BYTES {
            let text = format!("{reason}, {}, is less than one slot", text::bytes(bytes));
            return Err(BenchError::Input(text));
        }
        Ok(room)
    }

    /// The sizes, or as much as there is room for; sorted, each once. The notes say what was cut.
    pub(super) fn fit(&self, mut sizes: Vec<usize>, notes: &mut Vec<String>) -> Vec<usize> {
        let most = self.bytes / SLOT_BYTES * SLOT_BYTES;
        for size in &mut sizes {
            if *size > most {
                notes.push(format!(
                    "{} do not fit, {} do: {} is {}",
                    text::bytes(*size as u64),
                    text::bytes(most as u64),
                    self.reason,
                    text::bytes(self.bytes as u64),
                ));
                *size = most;
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// What this process may still lock, where a limit binds it. Drivers do not ask for it.
pub(crate) fn lockable(ground: &Ground) -> Result<Option<u64>, BenchError> {
    let limit = machine::memlock();
    if limit.cap_ipc_lock || matches!(ground, Ground::Cuda(_)) {
        return Ok(None);
    }
    let locked = procfs::locked_bytes()?;
    Ok(limit.soft_bytes.map(|bytes| bytes.saturating_sub(locked)))
}

const MEMORY: &str = "half of the available memory";
const OPTION: &str = "--max-pinned";
const LOCK_LIMIT: &str = "RLIMIT_MEMLOCK";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_and_said() {
        let room = Room { bytes: (5 << 30) + 4096, reason: MEMORY };
        let mut notes = Vec::new();
        assert_eq!(room.fit(vec![1 << 30, 1 << 20], &mut notes), [1 << 20, 1 << 30]);
        assert_eq!(notes, [""; 0]);
        assert_eq!(room.fit(vec![8 << 30, 1 << 30, 32 << 30], &mut notes), [1 << 30, 5 << 30]);
        let wanted = "8 GiB do not fit, 5 GiB do: half of the available memory is 5.4 GB";
        assert_eq!((notes.len(), notes[0].as_str()), (2, wanted));
    }
}
