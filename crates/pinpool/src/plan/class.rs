//! One class of a configuration turned into exact counts and bytes, or refused by its name.

use std::time::Duration;

use super::{durations, effective, is_possible};
use crate::config::{
    ClassConfig, GROWN_SLABS_MAX, IDLE_AFTER_DEFAULT, OnEmpty, PoolConfig, SPILL_MAX, Scrub,
};
use crate::error::{ClassName, ConfigError};
use crate::free_list::SLOTS_MAX;
use crate::memory::limits::page_size;

/// One class and its slabs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassPlan {
    /// The class's name.
    pub name: String,
    /// Bytes in one slot as configured.
    pub size: usize,
    /// Bytes that a slot holds: `size` rounded up to `align`.
    pub slot_bytes: usize,
    /// Bytes from one slot to the next: `slot_bytes`, and a canary with `debug_checks`.
    pub stride_bytes: usize,
    /// Slots of the first slab, which is made when the pool opens.
    pub count: u32,
    /// Every slot starts at a multiple of this.
    pub align: usize,
    /// Bytes of the first slab: `stride_bytes * count`, rounded up to a page.
    pub slab_bytes: usize,
    /// Bytes of the first slab that no configured byte uses: `slab_bytes - size * count`.
    pub waste_bytes: usize,
    /// Bytes pinned by one call. A chunk ends where a stride and a page end together.
    pub chunk_bytes: usize,
    /// What a lease does when every slot is out.
    pub on_empty: OnEmpty,
    /// The last free slots, for leases with priority only.
    pub reserve: u32,
    /// An empty class takes a slot at most so many times as large as its own; 1 is none.
    pub max_spill: u32,
    /// What happens to a slot between two owners.
    pub scrub: Scrub,
    /// How it grows, with [`OnEmpty::Grow`].
    pub grow: Option<GrowPlan>,
    /// The most pageable buffers at once; 0 without [`OnEmpty::Pageable`].
    pub pageable_max: u32,
    /// How long a grown slab or pageable buffer is unused before it is given back.
    pub idle_after: Duration,
    /// The only device whose handle leases from it, and near which its slabs lie; `None` for all.
    pub device: Option<u32>,
}

/// How a class grows: by whole slabs of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrowPlan {
    /// Slots of one grown slab.
    pub by: u32,
    /// The most grown slabs at once, 1 to [`GROWN_SLABS_MAX`].
    pub slabs: u32,
    /// The class grows when so many or fewer slots are free.
    pub at: u32,
    /// Bytes of one grown slab: `stride_bytes * by`, rounded up to a page.
    pub slab_bytes: usize,
    /// Bytes of a grown slab pinned by one call.
    pub chunk_bytes: usize,
}

impl GrowPlan {
    /// The most slots that growth adds.
    pub fn slots_max(&self) -> u32 {
        self.by * self.slabs
    }

    /// One slab of one slot, at most.
    #[cfg(all(test, shuttle))]
    pub(crate) fn of_one() -> Self {
        Self { by: 1, slabs: 1, at: 0, slab_bytes: 4096, chunk_bytes: 4096 }
    }

    fn new(
        class: &ClassConfig,
        count: u32,
        strides: &Strides,
        notes: &mut Vec<String>,
    ) -> Result<Self, ConfigError> {
        let max = slots(class, "grow_max", class.grow_max.unwrap_or(count as usize), 1)?;
        let quarter = count.div_ceil(4).min(max);
        let by = slots(class, "grow_by", class.grow_by.unwrap_or(quarter as usize), 1)?;
        let at = slots(class, "grow_at", class.grow_at.unwrap_or(count as usize / 8), 0)?;
        if by > max {
            let problem = format!("grow_by is {by}, but grow_max only {max}");
            return Err(wrong(class, problem, "lower grow_by, or raise grow_max (default: count)"));
        }
        if at >= count {
            let problem = format!("grow_at is {at}, so that its {count} slots are never enough");
            return Err(wrong(class, problem, format!("use 0 to {}, or raise count", count - 1)));
        }
        let slabs = max.div_ceil(by);
        if slabs > GROWN_SLABS_MAX {
            return Err(wrong(
                class,
                format!(
                    "grow_max {max} by grow_by {by} makes {slabs} slabs, at most {GROWN_SLABS_MAX}"
                ),
                format!(
                    "raise grow_by to {}, or lower grow_max to {}",
                    max.div_ceil(GROWN_SLABS_MAX),
                    by * GROWN_SLABS_MAX
                ),
            ));
        }
        let asked = class.grow_max.is_some() || class.grow_by.is_some();
        if by * slabs != max && asked {
            notes.push(format!(
                "class '{}': grow_max {max} is rounded up to {}, {slabs} slabs of grow_by {by}",
                class.name,
                by * slabs
            ));
        }
        let Some(slab_bytes) = strides.slab_bytes(by) else {
            let problem =
                format!("grow_by {by} slots of {} bytes exceed the address space", class.size);
            return Err(wrong(class, problem, "lower size or grow_by"));
        };
        Ok(Self { by, slabs, at, slab_bytes, chunk_bytes: strides.chunk_bytes(slab_bytes) })
    }
}

impl ClassPlan {
    /// The same with fewer slots in its first slab, if there are enough: at least one that anybody may have.
    pub(crate) fn cut_to(&self, slots: u32) -> Option<Self> {
        let count = slots.min(self.count);
        let used = self.stride_bytes.checked_mul(count as usize)?;
        (count > self.reserve).then(|| Self {
            count,
            waste_bytes: self.slab_bytes.saturating_sub(used).min(self.waste_bytes),
            ..self.clone()
        })
    }

    /// The handle of this device leases from it.
    pub(crate) fn serves(&self, device: u32) -> bool {
        self.device.is_none_or(|own| own == device)
    }

    /// Some handle leases from both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.device.is_none_or(|device| other.serves(device))
    }

    pub(super) fn new(
        class: &ClassConfig,
        config: &PoolConfig,
        notes: &mut Vec<String>,
    ) -> Result<Self, ConfigError> {
        let ClassConfig { name, size, align, .. } = class;
        check_name(name)?;
        check_device(class, config)?;
        let page = page_size();
        if !align.is_power_of_two() || !(ALIGN_MIN..=page).contains(align) {
            let help = format!("use a power of two from {ALIGN_MIN} to {page}");
            return Err(wrong(class, format!("align is {align}"), help));
        }
        if *size == 0 {
            return Err(wrong(class, "size is 0", "a slot holds at least 1 byte"));
        }
        let count = slots(class, "count", class.count, 1)?;
        check_policies(class)?;
        let strides = Strides::new(class, config, page);
        let sizes = strides.and_then(|strides| Some((strides, strides.slab_bytes(count)?)));
        let Some((strides, slab_bytes)) = sizes else {
            let problem = format!("{count} slots of {size} bytes exceed the address space");
            return Err(wrong(class, problem, "lower size or count"));
        };
        let slot_bytes = strides.slot_bytes;
        if slot_bytes != *size {
            notes.push(format!(
                "class '{name}': size {size} is rounded up to {slot_bytes} by align {align}, {} bytes \
                 per slot",
                slot_bytes - size
            ));
        }
        let grow = match class.on_empty {
            OnEmpty::Grow => Some(GrowPlan::new(class, count, &strides, notes)?),
            _ => None,
        };
        let pageable_max = match class.on_empty {
            OnEmpty::Pageable => {
                slots(class, "pageable_max", class.pageable_max.unwrap_or(class.count), 1)?
            }
            _ => 0,
        };
        check_sum(class, count, grow, pageable_max)?;
        Ok(Self {
            name: name.clone(),
            size: *size,
            slot_bytes,
            stride_bytes: strides.stride_bytes,
            count,
            align: *align,
            slab_bytes,
            waste_bytes: slab_bytes - size * count as usize,
            chunk_bytes: strides.chunk_bytes(slab_bytes),
            on_empty: class.on_empty,
            reserve: slots(class, "reserve", class.reserve, 0)?,
            max_spill: class.max_spill,
            scrub: class.scrub,
            grow,
            pageable_max,
            idle_after: class.idle_after.unwrap_or(IDLE_AFTER_DEFAULT),
            device: class.device,
        })
    }
}

/// How slots lie in a slab of a class, whatever the slab's length.
#[derive(Debug, Clone, Copy)]
struct Strides {
    slot_bytes: usize,
    stride_bytes: usize,
    page: usize,
    pin_chunk: u64,
}

impl Strides {
    /// `None` past the address space.
    fn new(class: &ClassConfig, config: &PoolConfig, page: usize) -> Option<Self> {
        let slot_bytes = class.size.checked_next_multiple_of(class.align)?;
        let gap = if config.debug_checks { natural_align(slot_bytes, page) } else { 0 };
        let stride_bytes = slot_bytes.checked_add(gap)?;
        Some(Self { slot_bytes, stride_bytes, page, pin_chunk: config.pin_chunk })
    }

    fn slab_bytes(&self, slots: u32) -> Option<usize> {
        let bytes = self.stride_bytes.checked_mul(slots as usize)?;
        let bytes = bytes.checked_next_multiple_of(self.page)?;
        isize::try_from(bytes).is_ok().then_some(bytes)
    }

    fn chunk_bytes(&self, slab_bytes: usize) -> usize {
        chunk_bytes(self.stride_bytes, slab_bytes, self.page, self.pin_chunk)
    }
}

/// What every slot of such a size is aligned to, up to a page. Slots whose stride exceeds their size
/// by as much keep it.
fn natural_align(slot_bytes: usize, page: usize) -> usize {
    page.min(1 << slot_bytes.trailing_zeros().min(usize::BITS - 1))
}

/// The bytes to pin with one call: about `pin_chunk`, at least one stride, and such that a chunk
/// ends where a stride and a page end together, so that no slot straddles two registrations (I4) and no
/// page belongs to two.
fn chunk_bytes(stride_bytes: usize, slab_bytes: usize, page: usize, pin_chunk: u64) -> usize {
    // Strides and pages end together every lcm(stride, page) bytes; page is a power of two.
    let common = natural_align(stride_bytes, page);
    let step_slots = page / common;
    let Some(step_bytes) = stride_bytes.checked_mul(step_slots) else { return slab_bytes };
    let wanted = usize::try_from(pin_chunk).unwrap_or(usize::MAX);
    (wanted / step_bytes).max(1).saturating_mul(step_bytes).min(slab_bytes)
}

/// A number of slots within `min..=SLOTS_MAX`, however it was configured.
fn slots(class: &ClassConfig, key: &str, number: usize, min: u32) -> Result<u32, ConfigError> {
    let valid = u32::try_from(number).ok().filter(|number| (min..=SLOTS_MAX).contains(number));
    valid.ok_or_else(|| {
        wrong(class, format!("{key} is {number}"), format!("use {min} to {SLOTS_MAX} slots"))
    })
}

/// The policies' own ranges, and keys that the chosen policy would ignore.
fn check_policies(class: &ClassConfig) -> Result<(), ConfigError> {
    let ClassConfig { count, on_empty, reserve, max_spill, .. } = class;
    if reserve >= count {
        let problem = format!("reserve is {reserve}, which leaves none of its {count} slots");
        return Err(wrong(class, problem, format!("use 0 to {}, or raise count", count - 1)));
    }
    if !(1..=SPILL_MAX).contains(max_spill) {
        let help = format!("use 1 to {SPILL_MAX}; 1 takes no larger slot");
        return Err(wrong(class, format!("max_spill is {max_spill}"), help));
    }
    if let Some(idle) = class.idle_after.filter(|idle| !is_possible(*idle)) {
        return Err(wrong(class, format!("idle_after is {idle:?}"), durations()));
    }
    let grow = &[OnEmpty::Grow][..];
    let keys = [
        ("grow_max", class.grow_max.is_some(), grow),
        ("grow_by", class.grow_by.is_some(), grow),
        ("grow_at", class.grow_at.is_some(), grow),
        ("idle_after", class.idle_after.is_some(), &[OnEmpty::Grow, OnEmpty::Pageable]),
        ("pageable_max", class.pageable_max.is_some(), &[OnEmpty::Pageable]),
    ];
    match keys.into_iter().find(|(_, set, belongs)| *set && !belongs.contains(on_empty)) {
        None => Ok(()),
        Some((key, _, belongs)) => {
            let policies: Vec<_> = belongs.iter().map(|policy| format!("\"{policy}\"")).collect();
            let help = format!("set on_empty = {}, or remove {key}", policies.join(" or "));
            Err(wrong(class, format!("{key} is set, but on_empty is '{on_empty}'"), help))
        }
    }
}

/// Slots of all kinds are numbered together.
fn check_sum(
    class: &ClassConfig,
    count: u32,
    grow: Option<GrowPlan>,
    pageable_max: u32,
) -> Result<(), ConfigError> {
    let (key, more) = match grow {
        Some(grow) => ("grow_max", grow.slots_max()),
        None => ("pageable_max", pageable_max),
    };
    if count + more <= SLOTS_MAX {
        return Ok(());
    }
    let problem = format!("count {count} and {key} {more} are together more than {SLOTS_MAX}");
    Err(wrong(class, problem, format!("lower count or {key}")))
}

fn check_name(name: &str) -> Result<(), ConfigError> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > ClassName::LEN_MAX || !name.chars().all(valid) {
        return Err(effective(format!("'{name}' is no class name"))
            .help(format!("use 1 to {} letters, digits, '-', '_' or '.'", ClassName::LEN_MAX)));
    }
    Ok(())
}

fn check_device(class: &ClassConfig, config: &PoolConfig) -> Result<(), ConfigError> {
    let Some(device) = class.device.filter(|device| !config.devices().any(|own| own == *device))
    else {
        return Ok(());
    };
    let named: Vec<_> = config.devices().map(|own| own.to_string()).collect();
    let named = named.join(", ");
    let problem = format!("device is {device}, but the pool's devices are: {named}");
    let help = format!("use one of them, add {device} to device in [pool], or remove the key");
    Err(wrong(class, problem, help))
}

fn wrong(class: &ClassConfig, problem: impl AsRef<str>, help: impl Into<String>) -> ConfigError {
    effective(format!("class '{}': {}", class.name, problem.as_ref())).help(help)
}

/// Slots share no cache line below this.
const ALIGN_MIN: usize = 64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn chunks_end_where_a_stride_and_a_page_end() {
        let page = page_size();
        for stride_bytes in [64, 192, 4096, 43_392, 3_110_400, 6_220_800, 46_489_792] {
            for pin_chunk in [1, 4096, 1 << 20, 256 << 20, u64::MAX] {
                let slab_bytes = (stride_bytes * 200_usize).next_multiple_of(page);
                let chunk = chunk_bytes(stride_bytes, slab_bytes, page, pin_chunk);
                assert!(chunk > 0 && chunk <= slab_bytes);
                if chunk < slab_bytes {
                    assert_eq!(chunk % page, 0, "{stride_bytes} in {pin_chunk}");
                    assert_eq!(chunk % stride_bytes, 0, "{stride_bytes} in {pin_chunk}");
                }
            }
        }
    }

    #[test]
    fn slots_with_a_canary_between_them_keep_their_alignment() {
        let config = PoolConfig { debug_checks: true, ..PoolConfig::default() };
        for page in [4096, 65_536] {
            for (size, align, gap) in
                [(100, 64, 128), (64, 64, 64), (192, 64, 64), (4096, 64, 4096), (100, 4096, 4096)]
            {
                let class = ClassConfig::new("c", size, 1).align(align);
                let strides = Strides::new(&class, &config, page).map(|strides| {
                    assert_eq!(strides.stride_bytes % natural_align(strides.slot_bytes, page), 0);
                    strides.stride_bytes - strides.slot_bytes
                });
                assert_eq!(strides, Some(gap), "{size} by {align}");
            }
            let off = Strides::new(&ClassConfig::new("c", 100, 1), &PoolConfig::default(), page);
            assert_eq!(off.map(|off| (off.slot_bytes, off.stride_bytes)), Some((128, 128)));
            let last = ClassConfig::new("c", usize::MAX - 63, 1);
            assert!(Strides::new(&last, &config, page).is_none(), "the gap overflows");
        }
    }
}
