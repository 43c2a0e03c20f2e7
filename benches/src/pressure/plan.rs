//! How much memory each part may take, so that what all take together leaves room: a function of facts.

use std::time::Duration;

use pinpool::limits::{Facts, KeepFree};

use crate::text;

/// How much to run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    /// The most that is pinned.
    pinned_max: u64,
    /// The most that the neighbour maps.
    working_max: u64,
    /// The largest file.
    file_max: u64,
    pub(super) rounds: usize,
    /// After so long no further round begins.
    pub(super) patience: Duration,
}

impl Scale {
    pub(super) const FULL: Self = Self {
        pinned_max: u64::MAX,
        working_max: 64 << 30,
        file_max: 8 << 30,
        rounds: 3,
        patience: Duration::from_secs(120),
    };
    pub(super) const QUICK: Self = Self {
        pinned_max: 256 << 20,
        working_max: 128 << 20,
        file_max: 64 << 20,
        rounds: 2,
        patience: Duration::from_secs(20),
    };
}

/// What each part takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Bytes to pin, from nothing to the most.
    pub(super) pinned: Vec<u64>,
    /// Bytes that the neighbour maps beside each of them.
    pub(super) working_bytes: u64,
    /// Bytes of the neighbour's file.
    pub(super) file_bytes: u64,
    /// What could be taken when the run began, before any room was kept.
    pub(super) available_bytes: u64,
    /// Bytes that nobody takes.
    pub(super) kept_free_bytes: u64,
    pub(super) notes: Vec<String>,
}

impl Plan {
    /// For this machine now. The error is why nothing can be shown here.
    pub(super) fn here(scale: &Scale, max_pinned: Option<u64>) -> Result<Self, String> {
        Self::of(&Facts::read(), scale, max_pinned)
    }

    fn of(facts: &Facts, scale: &Scale, max_pinned: Option<u64>) -> Result<Self, String> {
        let Some(least) = facts.binding(KeepFree::Bytes(0), false) else {
            return Err("the system does not tell how much memory is left".to_owned());
        };
        let available = least.room();
        let kept_free = (available / KEPT_SHARE).clamp(KEPT_MIN, KEPT_MAX);
        let room = available.saturating_sub(kept_free);
        if room < ROOM_MIN {
            return Err(format!(
                "the machine is too small to show anything: {} are left ({least}), of which {} are \
                 kept free; at least {} are needed",
                text::bytes(available),
                text::bytes(kept_free),
                text::bytes(ROOM_MIN + KEPT_MIN)
            ));
        }
        let (most, mut notes) = most(facts, room, scale, max_pinned)?;
        let mut pinned: Vec<u64> = SHARES.iter().map(|share| whole(part(most, *share))).collect();
        pinned.dedup();
        let largest = pinned.last().copied().unwrap_or(0);
        if largest == 0 {
            return Err(format!("{most} bytes may be pinned, too few to show anything"));
        }
        let working_bytes = whole((room - largest).min(scale.working_max));
        let file_bytes = whole((2 * kept_free).min(scale.file_max));
        let left = available - largest - working_bytes;
        if left >= file_bytes {
            notes.push(format!(
                "memory is not short in this run: beside the most that is pinned and the working set \
                 {} are left, and the file has {}",
                text::bytes(left),
                text::bytes(file_bytes)
            ));
        }
        Ok(Self {
            pinned,
            working_bytes,
            file_bytes,
            available_bytes: available,
            kept_free_bytes: kept_free,
            notes,
        })
    }

    /// Whether `bytes` may be taken now. The error says how much is there.
    pub(super) fn admits(&self, bytes: u64) -> Result<(), String> {
        let keep = KeepFree::Bytes(self.kept_free_bytes * 3 / 4);
        let room = Facts::read().binding(keep, false).map_or(0, |least| least.room());
        if room >= bytes {
            return Ok(());
        }
        Err(format!(
            "a case was left out: others took memory meanwhile, {} may be taken and {} are needed",
            text::bytes(room),
            text::bytes(bytes)
        ))
    }
}

/// The most that may be pinned. The notes say what binds it where that is not half of the room.
fn most(
    facts: &Facts,
    room: u64,
    scale: &Scale,
    max_pinned: Option<u64>,
) -> Result<(u64, Vec<String>), String> {
    let lockable = facts.memlock.map(|(soft, locked)| soft.saturating_sub(locked));
    if let Some(lockable) = lockable.filter(|bytes| *bytes < MIB) {
        return Err(format!("RLIMIT_MEMLOCK lets this process lock {lockable} bytes only"));
    }
    let limits = [
        (room / 2, ""),
        (scale.pinned_max, "this is a quick run"),
        (max_pinned.unwrap_or(u64::MAX), "that is --max-pinned"),
        (lockable.unwrap_or(u64::MAX), "that is RLIMIT_MEMLOCK"),
    ];
    let (bytes, reason) = limits.into_iter().min_by_key(|(bytes, _)| *bytes).unwrap_or_default();
    let note = || format!("no more than {} are pinned: {reason}", text::bytes(bytes));
    Ok((bytes, (!reason.is_empty()).then(note).into_iter().collect()))
}

/// A share of `most`, which for the last is all of it.
fn part(most: u64, share: u64) -> u64 {
    most / SHARES_MAX * share + most % SHARES_MAX * share / SHARES_MAX
}

/// Whole mebibytes.
fn whole(bytes: u64) -> u64 {
    bytes / MIB * MIB
}

/// What a slot has.
pub(super) const MIB: u64 = 1 << 20;
/// Percent of the room; the last is the most.
const SHARES: [u64; 4] = [0, 12, 25, SHARES_MAX];
const SHARES_MAX: u64 = 50;
/// So much stays free whatever happens: a part of what is available, within limits.
const KEPT_SHARE: u64 = 8;
const KEPT_MIN: u64 = 512 << 20;
const KEPT_MAX: u64 = 4 << 30;
/// Where less can be taken, nothing would show.
const ROOM_MIN: u64 = 1 << 30;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use pinpool::limits::MemInfo;

    use super::*;

    fn facts(available: u64, memlock: Option<(u64, u64)>) -> Facts {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path().join("proc");
        std::fs::create_dir(&proc).unwrap();
        let kib = available >> 10;
        let text = format!("MemTotal: {} kB\nMemAvailable: {kib} kB\n", kib * 2);
        std::fs::write(proc.join("meminfo"), text).unwrap();
        let mut facts = Facts::default();
        facts.ram = MemInfo::read_at(folder.path());
        facts.memlock = memlock;
        facts
    }

    #[test]
    fn all_parts_together_leave_the_room_that_is_kept_free() {
        for gib in [2, 3, 24, 120, 900] {
            let available = gib << 30;
            let plan = Plan::of(&facts(available, None), &Scale::FULL, None).unwrap();
            let largest = *plan.pinned.last().unwrap();
            assert!(largest <= available / 2, "{plan:?}");
            assert!(largest + plan.working_bytes + plan.kept_free_bytes <= available, "{plan:?}");
            assert!(plan.kept_free_bytes >= KEPT_MIN, "{plan:?}");
            assert_eq!((plan.pinned[0], plan.pinned.len()), (0, 4), "{plan:?}");
            // Whether memory gets short is said.
            let left = available - largest - plan.working_bytes;
            assert_eq!(plan.notes.is_empty(), left < plan.file_bytes, "{plan:?}");
            assert_eq!(plan.notes.is_empty(), gib <= 120, "{plan:?}");
        }
    }

    #[test]
    fn limits_bind_and_are_named() {
        let plan = |max_pinned, memlock| {
            Plan::of(&facts(24 << 30, memlock), &Scale::FULL, max_pinned).unwrap()
        };
        let limited = plan(Some(100 << 20), None);
        assert_eq!(limited.pinned, [0, 24 << 20, 50 << 20, 100 << 20]);
        assert_eq!(limited.notes[0], "no more than 100 MiB are pinned: that is --max-pinned");
        let limited = plan(None, Some((10 << 20, 2 << 20)));
        assert_eq!(limited.pinned, [0, 1 << 20, 4 << 20, 8 << 20]);
        assert!(limited.notes[0].ends_with("RLIMIT_MEMLOCK"), "{limited:?}");
        // One mebibyte has no shares.
        assert_eq!(plan(Some(1 << 20), None).pinned, [0, 1 << 20]);
    }

    #[test]
    fn a_machine_that_is_too_small_says_so() {
        let refused = |available, memlock| {
            Plan::of(&facts(available, memlock), &Scale::QUICK, None).unwrap_err()
        };
        let text = refused(1 << 30, None);
        assert!(text.starts_with("the machine is too small to show anything: 1 GiB are"), "{text}");
        assert!(refused(8 << 30, Some((65_536, 0))).contains("lock 65536 bytes only"));
        let nothing = Plan::of(&Facts::default(), &Scale::QUICK, None).unwrap_err();
        assert!(nothing.contains("does not tell"), "{nothing}");
    }

    #[test]
    fn nothing_begins_where_others_took_the_memory() {
        let mut plan = Plan::of(&facts(8 << 30, None), &Scale::QUICK, None).unwrap();
        plan.kept_free_bytes = 0;
        assert!(plan.admits(1 << 20).is_ok());
        let reason = plan.admits(1 << 60).unwrap_err();
        assert!(reason.starts_with("a case was left out") && reason.contains("needed"), "{reason}");
    }
}
