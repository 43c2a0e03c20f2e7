//! A configuration turned into exact counts and bytes, or refused; it touches no memory.

use std::fmt;

use bytesize::ByteSize;

use crate::config::{BackendChoice, ClassConfig, PoolConfig, THREADS_MAX, Threads};
use crate::error::{ClassName, ConfigError, Error, Origin};
use crate::free_list::SLOTS_MAX;
use crate::memory::LockMode;
use crate::memory::limits::{Memlock, page_size};
use crate::size_class::CLASSES_MAX;

/// What a pool will allocate and pin. Its `Display` is the table that `pinpool plan` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The configuration it follows.
    pub config: PoolConfig,
    /// The classes by rising slot size, one slab each.
    pub classes: Vec<ClassPlan>,
    /// Bytes of all slabs.
    pub total_bytes: u64,
    /// Bytes of it that are pinned: all, or none with `lock = "off"`.
    pub pinned_bytes: u64,
    /// What was rounded, and why.
    pub notes: Vec<String>,
}

/// One class and its slab.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassPlan {
    /// The class's name.
    pub name: String,
    /// Bytes in one slot as configured.
    pub size: usize,
    /// Bytes from one slot to the next: `size` rounded up to `align`.
    pub slot_bytes: usize,
    /// Slots.
    pub count: u32,
    /// Every slot starts at a multiple of this.
    pub align: usize,
    /// Bytes of the slab: `slot_bytes * count`, rounded up to a page.
    pub slab_bytes: usize,
    /// Bytes of the slab that no configured byte uses: `slab_bytes - size * count`.
    pub waste_bytes: usize,
    /// Bytes pinned by one call. A chunk ends where a slot and a page end together.
    pub chunk_bytes: usize,
}

impl Plan {
    /// Works out a configuration.
    ///
    /// # Errors
    ///
    /// No class, bad names, duplicate names or slot sizes, sizes, counts or alignments out of
    /// range, sums past the address space, more bytes than `max_pinned`, options that contradict
    /// each other.
    pub fn new(config: PoolConfig) -> Result<Self, Error> {
        if config.lock == LockMode::Off && config.backend == BackendChoice::Cuda {
            return Err(effective("backend 'cuda' pins its memory, but lock is 'off'")
                .help("set backend = \"host\", or remove lock")
                .into());
        }
        check_numbers(&config)?;
        if config.classes.is_empty() {
            return Err(effective("no class is configured")
                .help("add a [[class]] with name, size and count")
                .into());
        }
        if config.classes.len() > CLASSES_MAX {
            let problem = format!("{} classes, at most {CLASSES_MAX}", config.classes.len());
            return Err(effective(problem).help("merge classes of similar size").into());
        }
        let mut notes = Vec::new();
        let mut classes = config
            .classes
            .iter()
            .map(|class| ClassPlan::new(class, config.pin_chunk, &mut notes))
            .collect::<Result<Vec<_>, _>>()?;
        classes.sort_by_key(|class| class.slot_bytes);
        refuse_duplicates(&classes)?;
        let total_bytes = classes
            .iter()
            .try_fold(0u64, |sum, class| sum.checked_add(class.slab_bytes as u64))
            .filter(|total| isize::try_from(*total).is_ok())
            .ok_or_else(|| {
                effective("the classes together exceed the address space")
                    .help("lower size or count")
            })?;
        let pinned_bytes = if config.lock == LockMode::Off { 0 } else { total_bytes };
        if let Some(cap) = config.max_pinned.filter(|cap| *cap < pinned_bytes) {
            let problem = format!("the classes pin {pinned_bytes} bytes, but max_pinned is {cap}");
            return Err(effective(problem)
                .help("raise max_pinned in [pool], or lower count or size of a [[class]]")
                .into());
        }
        Ok(Self { config, classes, total_bytes, pinned_bytes, notes })
    }

    /// The most bytes the pool may pin at any instant.
    pub fn cap_bytes(&self) -> u64 {
        self.config.max_pinned.unwrap_or(self.pinned_bytes)
    }

    /// Bytes that no configured byte uses, over all slabs.
    pub fn waste_bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.waste_bytes as u64).sum()
    }
}

impl ClassPlan {
    fn new(
        class: &ClassConfig,
        pin_chunk: u64,
        notes: &mut Vec<String>,
    ) -> Result<Self, ConfigError> {
        let ClassConfig { name, size, count, align } = class;
        let refuse = |problem: String, help: String| {
            Err(effective(format!("class '{name}': {problem}")).help(help))
        };
        check_name(name)?;
        let page = page_size();
        if !align.is_power_of_two() || !(ALIGN_MIN..=page).contains(align) {
            return refuse(
                format!("align is {align}"),
                format!("use a power of two from {ALIGN_MIN} to {page}"),
            );
        }
        if *size == 0 {
            return refuse("size is 0".into(), "a slot holds at least 1 byte".into());
        }
        let Some(count) =
            u32::try_from(*count).ok().filter(|count| (1..=SLOTS_MAX).contains(count))
        else {
            return refuse(format!("count is {count}"), format!("use 1 to {SLOTS_MAX} slots"));
        };
        let too_large = || format!("{count} slots of {size} bytes exceed the address space");
        let sizes = size.checked_next_multiple_of(*align).and_then(|slot_bytes| {
            let slab_bytes =
                slot_bytes.checked_mul(count as usize)?.checked_next_multiple_of(page)?;
            isize::try_from(slab_bytes).ok()?;
            Some((slot_bytes, slab_bytes))
        });
        let Some((slot_bytes, slab_bytes)) = sizes else {
            return refuse(too_large(), "lower size or count".into());
        };
        if slot_bytes != *size {
            notes.push(format!(
                "class '{name}': size {size} is rounded up to {slot_bytes} (align {align}), {} bytes \
                 per slot",
                slot_bytes - size
            ));
        }
        Ok(Self {
            name: name.clone(),
            size: *size,
            slot_bytes,
            count,
            align: *align,
            slab_bytes,
            waste_bytes: slab_bytes - size * count as usize,
            chunk_bytes: chunk_bytes(slot_bytes, slab_bytes, page, pin_chunk),
        })
    }
}

/// The bytes to pin with one call: about `pin_chunk`, at least one slot, and such that a chunk ends
/// where a slot and a page end together, so that no slot straddles two registrations (I4) and no
/// page belongs to two.
fn chunk_bytes(slot_bytes: usize, slab_bytes: usize, page: usize, pin_chunk: u64) -> usize {
    // Slots and pages end together every lcm(slot, page) bytes; page is a power of two.
    let common = page.min(1 << slot_bytes.trailing_zeros().min(63));
    let step_slots = page / common;
    let Some(step_bytes) = slot_bytes.checked_mul(step_slots) else { return slab_bytes };
    let wanted = usize::try_from(pin_chunk).unwrap_or(usize::MAX);
    (wanted / step_bytes).max(1).saturating_mul(step_bytes).min(slab_bytes)
}

/// The ranges that files and variables keep by their parser, for configurations built in code.
fn check_numbers(config: &PoolConfig) -> Result<(), ConfigError> {
    let refuse = |key: &str, value: u64, help: String| {
        Err(effective(format!("{key} is {value}")).help(help))
    };
    if i32::try_from(config.device).is_err() {
        return refuse("device", config.device.into(), format!("use 0 to {}", i32::MAX));
    }
    if config.pin_chunk == 0 {
        return refuse("pin_chunk", 0, "use at least 1 byte".into());
    }
    match config.prefault_threads {
        Threads::Count(count) if !(1..=THREADS_MAX).contains(&count) => {
            refuse("prefault_threads", count as u64, format!("use 1 to {THREADS_MAX}, or auto"))
        }
        _ => Ok(()),
    }
}

fn refuse_duplicates(classes: &[ClassPlan]) -> Result<(), ConfigError> {
    let mut names: Vec<_> = classes.iter().map(|class| class.name.as_str()).collect();
    names.sort_unstable();
    if let Some([name, _]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(effective(format!("class '{name}' was given twice"))
            .help("give each class its own name"));
    }
    match classes.windows(2).find(|pair| pair[0].slot_bytes == pair[1].slot_bytes) {
        None => Ok(()),
        Some(pair) => Err(effective(format!(
            "classes '{}' (size {}) and '{}' (size {}) both have slots of {} bytes",
            pair[0].name, pair[0].size, pair[1].name, pair[1].size, pair[0].slot_bytes
        ))
        .help("merge them into one class with the sum of their counts")),
    }
}

fn check_name(name: &str) -> Result<(), ConfigError> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > ClassName::LEN_MAX || !name.chars().all(valid) {
        return Err(effective(format!("'{name}' is no class name"))
            .help(format!("use 1 to {} letters, digits, '-', '_' or '.'", ClassName::LEN_MAX)));
    }
    Ok(())
}

fn effective(problem: impl Into<String>) -> ConfigError {
    ConfigError::new(Origin::Effective, problem)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        writeln!(
            f,
            "backend {}, device {}, lock {}, prefault_threads {}, pin_chunk {} bytes",
            config.backend, config.device, config.lock, config.prefault_threads, config.pin_chunk
        )?;
        let width = self.classes.iter().map(|class| class.name.len()).max().unwrap_or(0).max(5);
        writeln!(
            f,
            "{:width$} {:>14} {:>14} {:>9} {:>16} {:>12} {:>7}",
            "class", "size", "slot bytes", "slots", "slab bytes", "waste", "align"
        )?;
        for class in &self.classes {
            writeln!(
                f,
                "{:width$} {:>14} {:>14} {:>9} {:>16} {:>12} {:>7}",
                class.name,
                class.size,
                class.slot_bytes,
                class.count,
                class.slab_bytes,
                class.waste_bytes,
                1u64 << class.slot_bytes.trailing_zeros().min(page_size().trailing_zeros()),
            )?;
        }
        writeln!(
            f,
            "total {} bytes ({}), pinned {} bytes, waste {} bytes",
            self.total_bytes,
            ByteSize(self.total_bytes),
            self.pinned_bytes,
            self.waste_bytes()
        )?;
        match config.max_pinned {
            Some(cap) => write!(f, "limits: max_pinned {cap} bytes")?,
            None => write!(f, "limits: max_pinned not set, the classes are the limit")?,
        }
        let memlock = Memlock::read();
        write!(f, "; {memlock}")?;
        let exceeded = memlock.soft.is_some_and(|soft| soft < self.pinned_bytes);
        writeln!(
            f,
            "{}",
            match (Memlock::is_exempt(), exceeded) {
                (true, _) => ", not binding: this process has CAP_IPC_LOCK",
                (false, true) => ", too little to lock this on the host backend",
                (false, false) => "",
            }
        )?;
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

/// Slots share no cache line below this.
const ALIGN_MIN: usize = 64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn plan(classes: Vec<ClassConfig>) -> Result<Plan, Error> {
        Plan::new(PoolConfig { classes, ..PoolConfig::default() })
    }

    #[test]
    fn a_slab_exceeds_its_slots_by_less_than_a_page() {
        for (size, count) in [(135_790_592, 4), (6_220_800, 32), (3_110_400, 7), (64, 1), (4096, 9)]
        {
            let plan =
                plan(vec![ClassConfig::new("c", size, count)]).unwrap_or_else(|e| panic!("{e}"));
            let class = &plan.classes[0];
            assert_eq!(class.slot_bytes, size);
            assert!(class.slab_bytes - size * count < page_size(), "{size} x {count}");
            assert_eq!(class.waste_bytes, class.slab_bytes - size * count);
        }
    }

    #[test]
    fn chunks_end_where_a_slot_and_a_page_end() {
        let page = page_size();
        for slot_bytes in [64, 192, 4096, 43_392, 3_110_400, 6_220_800, 46_489_792] {
            for pin_chunk in [1, 4096, 1 << 20, 256 << 20, u64::MAX] {
                let slab_bytes = (slot_bytes * 200_usize).next_multiple_of(page);
                let chunk = chunk_bytes(slot_bytes, slab_bytes, page, pin_chunk);
                assert!(chunk > 0 && chunk <= slab_bytes);
                if chunk < slab_bytes {
                    assert_eq!(chunk % page, 0, "{slot_bytes} in {pin_chunk}");
                    assert_eq!(chunk % slot_bytes, 0, "{slot_bytes} in {pin_chunk}");
                }
            }
        }
    }

    #[test]
    fn the_order_of_classes_does_not_matter() {
        let a = ClassConfig::new("a", 4096, 2);
        let b = ClassConfig::new("b", 64, 3);
        let sorted = |classes| plan(classes).map(|plan| plan.classes).ok();
        assert_eq!(sorted(vec![a.clone(), b.clone()]), sorted(vec![b, a]));
    }
}
