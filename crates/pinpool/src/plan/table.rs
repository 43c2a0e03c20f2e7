//! The table that `pinpool plan` prints.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use humantime::format_duration;

use super::{ClassPlan, Plan};
use crate::config::{OnEmpty, PoolConfig, Scrub};
use crate::memory::limits::{Facts, Memlock, page_size};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        let devices: Vec<_> = config.devices().map(|device| device.to_string()).collect();
        writeln!(
            f,
            "backend {}, device {}, lock {}, prefault_threads {}, pin_chunk {} bytes",
            config.backend,
            devices.join(" "),
            config.lock,
            config.prefault_threads,
            config.pin_chunk
        )?;
        writeln!(
            f,
            "huge_pages {}, numa {}, fork {}, track_holders {}, leak_after {}, debug_checks {}",
            config.huge_pages,
            config.numa,
            config.fork,
            config.track_holders,
            config.leak_after.map_or("not set".into(), |held| format_duration(held).to_string()),
            config.debug_checks
        )?;
        writeln!(f, "keep_free {}, on_pressure {}", config.keep_free, config.on_pressure)?;
        opening(config, f)?;
        let width = self.classes.iter().map(|class| class.name.len()).max().unwrap_or(0).max(5);
        write!(
            f,
            "{:width$} {:>14} {:>14} {:>9} {:>16} {:>12} {:>7}",
            "class", "size", "slot bytes", "slots", "slab bytes", "waste", "align"
        )?;
        let told = self.classes.iter().any(|class| class.device.is_some());
        writeln!(f, "{}", if told { format!(" {:>7}", "device") } else { String::new() })?;
        for class in &self.classes {
            write!(
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
            let device = class.device.map_or("all".into(), |device| device.to_string());
            writeln!(f, "{}", if told { format!(" {device:>7}") } else { String::new() })?;
        }
        for class in &self.classes {
            policies(class, f)?;
        }
        writeln!(
            f,
            "total {} bytes ({}), pinned {} bytes, waste {} bytes",
            self.total_bytes,
            ByteSize(self.total_bytes),
            self.pinned_bytes,
            self.waste_bytes()
        )?;
        limits(self, f)?;
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}

/// How the pool comes to its memory.
fn opening(config: &PoolConfig, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let timeout =
        config.open_timeout.map_or("not set".into(), |time| format_duration(time).to_string());
    let least = config.min_bytes.map_or("not set".into(), |bytes| format!("{bytes} bytes"));
    let pause = match config.pin_pause {
        Duration::ZERO => "off".into(),
        pause => format_duration(pause).to_string(),
    };
    writeln!(f, "open_timeout {timeout}, min_bytes {least}, pin_pause {pause}")
}

/// A line for each policy of a class that is not the default.
fn policies(class: &ClassPlan, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = &class.name;
    let idle = format_duration(class.idle_after);
    if let Some(grow) = class.grow {
        writeln!(
            f,
            "class '{name}': grows by {} slots ({} bytes) when {} or fewer are free, to at most {} \
             slots, idle slabs go after {idle}",
            grow.by,
            grow.slab_bytes,
            grow.at,
            class.count + grow.slots_max()
        )?;
    }
    match class.on_empty {
        OnEmpty::Wait | OnEmpty::Grow => {}
        OnEmpty::Fail => writeln!(f, "class '{name}': fails when empty")?,
        OnEmpty::Pageable => writeln!(
            f,
            "class '{name}': gives up to {} pageable buffers when empty, idle ones go after {idle}",
            class.pageable_max
        )?,
    }
    if class.reserve > 0 {
        writeln!(
            f,
            "class '{name}': the last slots, {} of them, go to leases with priority",
            class.reserve
        )?;
    }
    if class.max_spill > 1 {
        let largest = class.slot_bytes.saturating_mul(class.max_spill as usize);
        writeln!(f, "class '{name}': takes slots of up to {largest} bytes when empty")?;
    }
    match class.scrub {
        Scrub::None => {}
        Scrub::Zero => writeln!(f, "class '{name}': slots are zeroed between two owners")?,
        Scrub::Poison => writeln!(f, "class '{name}': slots are poisoned between two owners")?,
    }
    match class.stride_bytes - class.slot_bytes {
        0 => Ok(()),
        gap => writeln!(f, "class '{name}': {gap} bytes of canary after each slot"),
    }
}

fn limits(plan: &Plan, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match plan.config.max_pinned {
        Some(cap) => write!(f, "limits: max_pinned {cap} bytes")?,
        None => write!(f, "limits: max_pinned not set, the classes are the limit")?,
    }
    let memlock = Memlock::read();
    write!(f, "; {memlock}")?;
    let exceeded = memlock.soft.is_some_and(|soft| soft < plan.pinned_bytes);
    writeln!(
        f,
        "{}",
        match (Memlock::is_exempt(), exceeded) {
            (true, _) => ", not binding: this process has CAP_IPC_LOCK",
            (false, true) => {
                ", too little to lock this on the host backend (`pinpool doctor` says what raises it)"
            }
            (false, false) => "",
        }
    )?;
    let binding = Facts::read().binding(plan.config.keep_free, false);
    match binding.filter(|headroom| headroom.room() < plan.total_bytes) {
        None => Ok(()),
        Some(headroom) => {
            let smaller = plan.config.min_bytes.is_some_and(|least| least <= headroom.room());
            let how = if smaller { "whole, but min_bytes does" } else { "on this machine now" };
            writeln!(f, "does not fit {how}: {headroom}; {}", headroom.remedy())
        }
    }
}
