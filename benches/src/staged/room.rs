//! How much memory this machine and its device have for the largest copy.

use pinpool::cudarc::driver::result;

use crate::BenchError;
use crate::{machine, text};

/// What is there when the scenario begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    host: u64,
    device: u64,
    max_pinned: Option<u64>,
}

impl Room {
    /// Of this machine, and of the device whose context is current.
    pub(super) fn find(max_pinned: Option<u64>) -> Result<Self, BenchError> {
        let (device, _) =
            result::mem_get_info().map_err(|cause| BenchError::failed("cuMemGetInfo", cause))?;
        let host = machine::available_bytes().unwrap_or(u64::MAX);
        Ok(Self { host, device: device as u64, max_pinned })
    }

    /// Those of the sizes that fit, sorted, each once. The notes say what was left out.
    ///
    /// # Errors
    /// [`BenchError::Input`] where none fits.
    pub(super) fn fit(
        &self,
        mut sizes: Vec<usize>,
        notes: &mut Vec<String>,
    ) -> Result<Vec<usize>, BenchError> {
        sizes.sort_unstable();
        sizes.dedup();
        let mut why = String::new();
        sizes.retain(|&size| match self.too_small_for(size as u64) {
            None => true,
            Some(reason) => {
                why = format!("{} left out: {reason}", text::bytes(size as u64));
                notes.push(why.clone());
                false
            }
        });
        if sizes.is_empty() { Err(BenchError::Input(why)) } else { Ok(sizes) }
    }

    /// Why there is too little of something.
    fn too_small_for(&self, bytes: u64) -> Option<String> {
        let needed = bytes.saturating_mul(HOST_BUFFERS);
        if needed > self.host {
            let (needed, there) = (text::bytes(needed), text::bytes(self.host));
            return Some(format!(
                "its source, a lease and what must stay free take {needed}, {there} are available"
            ));
        }
        if bytes > self.device / 10 * 9 {
            return Some(format!("the device has {} free", text::bytes(self.device)));
        }
        let pinned = bytes.saturating_mul(PINNED_BUFFERS);
        let most = self.max_pinned.filter(|most| pinned > *most)?;
        let (pinned, most) = (text::bytes(pinned), text::bytes(most));
        Some(format!("a lease and registered memory take {pinned}, --max-pinned is {most}"))
    }
}

/// A lease, and memory that is registered in place.
const PINNED_BUFFERS: u64 = 2;
/// The pageable memory, the lease, and as much again for all others.
const HOST_BUFFERS: u64 = 3;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out_and_said() {
        let room = Room { host: 10 << 30, device: 2 << 30, max_pinned: None };
        let mut notes = Vec::new();
        let fit = room.fit(vec![1 << 20, 1 << 30, 1 << 20], &mut notes).unwrap();
        assert_eq!((fit, notes.len()), (vec![1 << 20, 1 << 30], 0));
        let fit = room.fit(vec![2 << 30, 4 << 30, 1 << 30], &mut notes).unwrap();
        assert_eq!(fit, [1 << 30]);
        assert_eq!(notes[0], "2 GiB left out: the device has 2 GiB free");
        assert!(notes[1].starts_with("4 GiB left out: its source"), "{notes:?}");
        assert!(notes[1].ends_with("take 12 GiB, 10 GiB are available"), "{notes:?}");
        let error = room.fit(vec![4 << 30], &mut notes).unwrap_err();
        assert!(error.is_input() && error.to_string().contains("12 GiB"), "{error}");
        let room = Room { max_pinned: Some(1 << 30), ..room };
        assert_eq!(room.fit(vec![512 << 20, 1 << 30], &mut notes).unwrap(), [512 << 20]);
        let last = notes.last().unwrap();
        assert!(last.ends_with("take 2 GiB, --max-pinned is 1 GiB"), "{last}");
    }
}
