//! The most memory that a scenario may have pinned at a time, and what sets that.

use crate::startup::{Ground, lockable};
use crate::{BenchError, machine, text};

/// How much may be pinned at a time.
#[derive(Debug, Clone)]
pub(crate) struct PinRoom {
    bytes: u64,
    reason: &'static str,
}

impl PinRoom {
    /// `max_pinned`, or less where half of the available memory or the limit of locked memory is
    /// less.
    ///
    /// # Errors
    /// [`BenchError::Input`] where the option leaves less than a page; the kernel's reason where
    /// it does not tell what is locked.
    pub(crate) fn find(ground: &Ground, max_pinned: Option<u64>) -> Result<Self, BenchError> {
        check(max_pinned)?;
        let half = machine::available_bytes().map_or(u64::MAX, |bytes| bytes / 2);
        let limits = [
            (max_pinned.unwrap_or(u64::MAX), OPTION),
            (half, "half of the available memory"),
            (lockable(ground)?.unwrap_or(u64::MAX), "RLIMIT_MEMLOCK"),
        ];
        let least = limits.into_iter().min_by_key(|(bytes, _)| *bytes);
        let (bytes, reason) = least.unwrap_or((u64::MAX, OPTION));
        Ok(Self { bytes, reason })
    }

    /// The most that a scenario may use that locks nothing.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(crate) fn unlocked(max_pinned: Option<u64>) -> Result<Self, BenchError> {
        check(max_pinned)?;
        let half = machine::available_bytes().map_or(u64::MAX, |bytes| bytes / 2);
        let room = match max_pinned {
            Some(bytes) if bytes < half => Self { bytes, reason: OPTION },
            _ => Self { bytes: half, reason: "half of the available memory" },
        };
        Ok(room)
    }

    /// `wanted`, or as much of it as there is room for, in whole megabytes. The notes say so.
    ///
    /// # Errors
    /// [`BenchError::Input`] where not even one megabyte fits.
    pub(crate) fn cut(
        &self,
        wanted: usize,
        buffers: u64,
        notes: &mut Vec<String>,
    ) -> Result<usize, BenchError> {
        let most = usize::try_from(self.bytes / buffers).unwrap_or(usize::MAX);
        if wanted <= most {
            return Ok(wanted);
        }
        let cut = most / MEGABYTE * MEGABYTE;
        let (reason, room) = (self.reason, text::bytes(self.bytes));
        if cut == 0 {
            let text = format!("{reason}, {room}, has no room for {buffers} buffers of a megabyte");
            return Err(BenchError::Input(text));
        }
        notes.push(format!(
            "{} instead of {}: {reason} is {room}",
            text::bytes(cut as u64),
            text::bytes(wanted as u64),
        ));
        Ok(cut)
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Those of the sizes of which `buffers` fit at a time, sorted, each once. The notes say what was
    /// left out.
    pub(crate) fn fit(
        &self,
        mut sizes: Vec<usize>,
        buffers: u64,
        notes: &mut Vec<String>,
    ) -> Vec<usize> {
        sizes.sort_unstable();
        sizes.dedup();
        let fits = |size: &usize| (*size as u64).saturating_mul(buffers) <= self.bytes;
        let left_out: Vec<String> =
            sizes.iter().filter(|size| !fits(size)).map(|&size| text::bytes(size as u64)).collect();
        if !left_out.is_empty() {
            notes.push(format!(
                "{} left out: {buffers} buffers are pinned at a time, and {} is {}",
                left_out.join(", "),
                self.reason,
                text::bytes(self.bytes),
            ));
        }
        sizes.retain(fits);
        sizes
    }
}

/// Refuses an option that leaves room for nothing.
///
/// # Errors
/// [`BenchError::Input`] naming the option.
pub(crate) fn check(max_pinned: Option<u64>) -> Result<(), BenchError> {
    match max_pinned {
        Some(bytes) if bytes < PAGE_BYTES => Err(BenchError::Input(format!(
            "{OPTION} {bytes}: at least {PAGE_BYTES} bytes, which are a page"
        ))),
        _ => Ok(()),
    }
}

/// What so many bytes pin at least: whole pages.
pub(crate) fn in_pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES)
}

/// Refuses sizes of nothing, and those above `most` bytes.
///
/// # Errors
/// [`BenchError::Input`] naming the option.
pub(crate) fn check_sizes(sizes: &[usize], most: usize) -> Result<(), BenchError> {
    let wrong = sizes.iter().find(|size| !(1..=most).contains(*size));
    wrong.map_or(Ok(()), |wrong| {
        let limit = text::bytes(most as u64);
        Err(BenchError::Input(format!("--size {wrong}: from 1 byte to {limit} expected")))
    })
}

/// Leaves each note once, in the order in which they came.
pub(crate) fn each_once(notes: &mut Vec<String>) {
    let mut seen = Vec::new();
    notes.retain(|note| {
        let is_new = !seen.contains(note);
        if is_new {
            seen.push(note.clone());
        }
        is_new
    });
}

const OPTION: &str = "--max-pinned";
const PAGE_BYTES: u64 = 4096;
const MEGABYTE: usize = 1_000_000;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_binds_and_what_does_not_fit_is_said() {
        let room = PinRoom::find(&Ground::Host, Some(8192)).unwrap();
        assert!(room.bytes() <= 8192);
        let room = PinRoom { bytes: 8192, reason: OPTION };
        let mut notes = Vec::new();
        assert_eq!(room.fit(vec![4096, 1024, 4096], 2, &mut notes), [1024, 4096]);
        assert_eq!(notes, [""; 0]);
        assert_eq!(room.fit(vec![4096, 8192, 1 << 20], 2, &mut notes), [4096]);
        let wanted =
            "8 KiB, 1 MiB left out: 2 buffers are pinned at a time, and --max-pinned is 8 KiB";
        assert_eq!(notes, [wanted]);
    }

    #[test]
    fn a_size_is_cut_to_what_there_is_room_for() {
        let room = PinRoom { bytes: 5_500_000, reason: OPTION };
        let mut notes = Vec::new();
        assert_eq!(room.cut(2_000_000, 2, &mut notes).unwrap(), 2_000_000);
        assert_eq!(notes, [""; 0]);
        assert_eq!(room.cut(1_000_000_000, 2, &mut notes).unwrap(), 2_000_000);
        assert_eq!(notes, ["2.0 MB instead of 1.0 GB: --max-pinned is 5.5 MB"]);
        let error = room.cut(1_000_000_000, 6, &mut notes).unwrap_err();
        assert!(error.is_input() && error.to_string().contains("--max-pinned"), "{error}");
    }

    #[test]
    fn notes_are_left_once() {
        let mut notes = ["a", "b", "a", "c", "b"].map(str::to_owned).to_vec();
        each_once(&mut notes);
        assert_eq!(notes, ["a", "b", "c"]);
    }

    #[test]
    fn less_than_a_page_is_refused() {
        let error = PinRoom::find(&Ground::Host, Some(4095)).unwrap_err();
        assert!(error.is_input() && error.to_string().contains("--max-pinned 4095"), "{error}");
        assert!(check(None).is_ok() && check(Some(4096)).is_ok());
    }
}
