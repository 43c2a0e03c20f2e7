//! On which kind of pages a region lies, as the kernel says when asked, or lists of each mapping.

use std::fs::File;
use std::io::{BufRead, BufReader};

use super::huge::{granule, transparent_bytes};
use super::limits::page_size;
use super::scan::{self, Scanned};
use super::{PageTier, Region};

/// The kind of pages that a backed region lies on, which was mapped for `tier`, and how many bytes of it lie
/// on huge ones: at least.
pub(super) fn pages(region: Region, tier: PageTier) -> (PageTier, u64) {
    let huge = match tier {
        PageTier::Huge => granule(tier),
        _ => transparent_bytes().unwrap_or(usize::MAX),
    };
    match scanned(region, huge) {
        Some(Scanned::Huge) if tier == PageTier::Huge => (tier, region.bytes as u64),
        // Such mappings have pages of that kind or none.
        Some(Scanned::Huge) => (PageTier::Transparent, whole_pages_of(region, huge) as u64),
        Some(Scanned::UpTo(bytes)) => (PageTier::Base, bytes as u64),
        None => listed(region, huge),
    }
}

/// What the kernel says of the whole huge pages of a region, if it can be asked.
fn scanned(region: Region, huge: usize) -> Option<Scanned> {
    let start = region.start.addr().get();
    let bytes = whole_pages_of(region, huge);
    if bytes == 0 {
        return Some(Scanned::UpTo(0));
    }
    let offset = start.next_multiple_of(huge) - start;
    // SAFETY: whole pages of the region lie within it.
    scan::ordinary(unsafe { region.part(offset, bytes) })
}

fn whole_pages_of(region: Region, huge: usize) -> usize {
    let start = region.start.addr().get();
    whole_pages(start, start + region.bytes, huge)
}

/// What the kernel lists: it walks all mappings of the process for that, page by page.
fn listed(region: Region, huge: usize) -> (PageTier, u64) {
    let Ok(file) = File::open("/proc/self/smaps") else { return (PageTier::Base, 0) };
    let start = region.start.addr().get();
    judge(BufReader::new(file), start, start + region.bytes, huge)
}

/// One mapping of the list: how much of it lies in the region, and how much outside.
struct Mapping {
    inside: usize,
    outside: usize,
}

/// Reads the list as far as `end`, the region's.
fn judge(list: impl BufRead, start: usize, end: usize, huge: usize) -> (PageTier, u64) {
    let mut mapping = None;
    let (mut reserved, mut transparent) = (0, 0);
    for line in list.lines().map_while(Result::ok) {
        // Names of fields begin with a capital, addresses do not.
        if line.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_lowercase()) {
            let Some((from, to)) = range(&line) else { continue };
            if from >= end {
                break;
            }
            let inside = to.min(end).saturating_sub(from.max(start));
            mapping = (inside > 0).then(|| Mapping { inside, outside: to - from - inside });
            continue;
        }
        let Some(Mapping { inside, outside }) = mapping else { continue };
        let bytes = |name| {
            let kibibytes = line.strip_prefix(name)?.split_whitespace().next()?;
            // The kernel counts a mapping as a whole, and may have joined the region with others: at
            // least what exceeds those lies here.
            let bytes = kibibytes.parse::<usize>().ok()?.saturating_mul(1024);
            Some(bytes.saturating_sub(outside).min(inside))
        };
        transparent += bytes("AnonHugePages:").unwrap_or(0);
        reserved += bytes("Private_Hugetlb:").unwrap_or(0);
    }
    let whole = whole_pages(start, end, huge);
    let tier = if reserved > 0 && reserved >= end - start {
        PageTier::Huge
    } else if whole > 0 && transparent >= whole {
        PageTier::Transparent
    } else {
        PageTier::Base
    };
    (tier, (reserved + transparent) as u64)
}

/// Bytes of the whole huge pages that a region has room for.
fn whole_pages(start: usize, end: usize, huge: usize) -> usize {
    let huge = huge.max(page_size());
    let Some(first) = start.checked_next_multiple_of(huge) else { return 0 };
    (end / huge * huge).saturating_sub(first)
}

/// The two addresses that a mapping's first line begins with.
fn range(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split_once(' ')?.0.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some((number(from)?, number(to)?))
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;

    const HUGE: usize = 2 << 20;
    const START: usize = 0x7f00_0020_0000;

    fn list_of(from: usize, to: usize, fields: &[(&str, usize)]) -> String {
        let first = format!("{from:x}-{to:x} rw-p 00000000 00:00 0 \nSize: 1 kB\nRss: 1 kB\n");
        let fields = fields.iter().map(|(name, bytes)| format!("{name}:   {} kB\n", bytes / 1024));
        first + &fields.collect::<String>() + "VmFlags: rd wr mr mw me ac dc hg \n"
    }

    fn judged(text: &str, bytes: usize) -> (PageTier, u64) {
        judge(text.as_bytes(), START, START + bytes, HUGE)
    }

    #[test]
    fn every_whole_huge_page_counts() {
        let bytes = 3 * HUGE + 4096;
        let list = |huge| list_of(START, START + bytes, &[("AnonHugePages", huge)]);
        assert_eq!(judged(&list(3 * HUGE), bytes), (PageTier::Transparent, 3 * HUGE as u64));
        assert_eq!(judged(&list(2 * HUGE), bytes), (PageTier::Base, 2 * HUGE as u64));
        assert_eq!(judged(&list(0), bytes), (PageTier::Base, 0));
        let small = list_of(START, START + 4096, &[("AnonHugePages", 0)]);
        assert_eq!(judged(&small, 4096), (PageTier::Base, 0));
        assert_eq!(judged("", bytes), (PageTier::Base, 0), "nothing is known");
    }

    #[test]
    fn reserved_pages_are_told_from_transparent_ones() {
        let bytes = 2 * HUGE;
        let list = |huge| list_of(START, START + bytes, &[("Private_Hugetlb", huge)]);
        assert_eq!(judged(&list(bytes), bytes), (PageTier::Huge, bytes as u64));
        assert_eq!(judged(&list(HUGE), bytes), (PageTier::Base, HUGE as u64));
    }

    #[test]
    fn neighbours_do_not_count() {
        let bytes = 2 * HUGE;
        let beside = [("AnonHugePages", 8 * HUGE)];
        let before = list_of(START - 8 * HUGE, START, &beside);
        let after = list_of(START + bytes, START + 10 * HUGE, &beside);
        let own = |huge| list_of(START, START + bytes, &[("AnonHugePages", huge)]);
        let list = |huge| format!("{before}{}{after}", own(huge));
        assert_eq!(judged(&list(bytes), bytes), (PageTier::Transparent, bytes as u64));
        assert_eq!(judged(&list(0), bytes), (PageTier::Base, 0));
    }

    #[test]
    fn a_region_joined_with_others_is_not_flattered() {
        let bytes = 2 * HUGE;
        let joined = |huge| list_of(START - HUGE, START + 3 * HUGE, &[("AnonHugePages", huge)]);
        assert_eq!(judged(&joined(4 * HUGE), bytes), (PageTier::Transparent, bytes as u64));
        assert_eq!(judged(&joined(3 * HUGE), bytes), (PageTier::Base, HUGE as u64));
        let split = list_of(START, START + HUGE, &[("AnonHugePages", HUGE)])
            + &list_of(START + HUGE, START + bytes, &[("AnonHugePages", HUGE)]);
        assert_eq!(judged(&split, bytes), (PageTier::Transparent, bytes as u64));
    }
}
