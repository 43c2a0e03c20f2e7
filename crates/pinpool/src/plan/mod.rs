//! A configuration turned into exact counts and bytes, or refused; it touches no memory.

mod class;
mod table;

use std::time::Duration;

pub use class::{ClassPlan, GrowPlan};

use crate::config::{
    BackendChoice, DURATION_MAX, DURATION_MAX_TEXT, PIN_PAUSE_MAX, PoolConfig, STAGE_CHUNK_DEFAULT,
    STAGE_CHUNK_MIN, STAGE_THREADS_MAX, THREADS_MAX, Threads,
};
use crate::error::{ConfigError, Error, Origin};
use crate::memory::{HugePages, LockMode};
use crate::size_class::{CLASSES_MAX, ClassId};

/// What a pool will allocate and pin. Its `Display` is the table that `pinpool plan` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The configuration it follows.
    pub config: PoolConfig,
    /// The classes, one slab each at first: those that the pool's first device uses by rising slot size,
    /// then those of each other device, in the order of the devices, likewise.
    pub classes: Vec<ClassPlan>,
    /// Bytes of all slabs that are made when the pool opens.
    pub total_bytes: u64,
    /// Bytes of it that are pinned: all, or none with `lock = "off"`.
    pub pinned_bytes: u64,
    /// What was rounded, and why.
    pub notes: Vec<String>,
}

impl Plan {
    /// Works out a configuration.
    ///
    /// # Errors
    ///
    /// No class, or none for a device, bad names, duplicate names or slot sizes, sizes, counts or alignments out of
    /// range, sums past the address space, more bytes than `max_pinned`, growth without room under
    /// it, options that contradict each other or need a Cargo feature that is off.
    pub fn new(mut config: PoolConfig) -> Result<Self, Error> {
        config.track_holders |= config.leak_after.is_some();
        if config.lock == LockMode::Off && config.backend == BackendChoice::Cuda {
            return Err(effective("backend 'cuda' pins its memory, but lock is 'off'")
                .help("set backend = \"host\", or remove lock")
                .into());
        }
        if config.lock == LockMode::Off && config.huge_pages == HugePages::Require {
            let problem =
                "huge_pages is 'require', but with lock 'off' memory lies on ordinary pages";
            return Err(effective(problem).help("remove lock or huge_pages").into());
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
            .map(|class| ClassPlan::new(class, &config, &mut notes))
            .collect::<Result<Vec<_>, _>>()?;
        classes.sort_by_key(|class| {
            let device = class.device.unwrap_or(config.device);
            (config.devices().position(|own| own == device), class.slot_bytes)
        });
        refuse_duplicates(&classes)?;
        refuse_idle_devices(&config, &classes)?;
        note_vain_spills(&classes, &mut notes);
        note_no_stager(&config, &classes, &mut notes);
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
        if let Some(least) = config.min_bytes.filter(|least| *least > total_bytes) {
            let problem = format!("min_bytes is {least}, but the classes have {total_bytes} bytes");
            return Err(effective(problem).help("lower min_bytes in [pool], or remove it").into());
        }
        check_growth(&config, &classes, total_bytes)?;
        Ok(Self { config, classes, total_bytes, pinned_bytes, notes })
    }

    /// The most bytes the pool may pin at any instant.
    pub fn cap_bytes(&self) -> u64 {
        self.config.max_pinned.unwrap_or(self.pinned_bytes)
    }

    /// The classes that the handle of this device leases from, by rising slot size.
    pub(crate) fn of_device(&self, device: u32) -> Vec<(ClassId, &ClassPlan)> {
        let numbered = (0..=u8::MAX).map(ClassId).zip(&self.classes);
        let mut classes: Vec<_> = numbered.filter(|(_, class)| class.serves(device)).collect();
        classes.sort_by_key(|(_, class)| class.slot_bytes);
        classes
    }

    /// Bytes that no configured byte uses, over all slabs.
    pub fn waste_bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.waste_bytes as u64).sum()
    }
}

/// A spill that finds no class is no mistake, but no help either.
fn note_vain_spills(classes: &[ClassPlan], notes: &mut Vec<String>) {
    for class in classes.iter().filter(|class| class.max_spill > 1) {
        let most = class.slot_bytes.saturating_mul(class.max_spill as usize);
        let larger = class.slot_bytes + 1..=most;
        let mut fitting = classes.iter().filter(|other| larger.contains(&other.slot_bytes));
        let near = |other: &ClassPlan| other.device.is_none() || other.device == class.device;
        if !fitting.any(|other| other.scrub == class.scrub && near(other)) {
            notes.push(format!(
                "class '{}': max_spill {} has no effect: no larger class of up to {most} bytes scrubs \
                 as it does and is for all its devices",
                class.name, class.max_spill
            ));
        }
    }
}

/// Who configures a stager expects that one can be made.
fn note_no_stager(config: &PoolConfig, classes: &[ClassPlan], notes: &mut Vec<String>) {
    let auto = config.stage_threads == Threads::Auto;
    if auto && config.stage_chunk == STAGE_CHUNK_DEFAULT {
        return;
    }
    let (slots, chunk) = (config.stage_slots(), config.stage_chunk);
    for device in config.devices() {
        let served = classes.iter().filter(|class| class.serves(device));
        let fitting = served.filter(|class| class.slot_bytes as u64 >= chunk);
        let class = fitting.min_by_key(|class| class.slot_bytes);
        let found = match class {
            Some(class) if class.count as usize >= slots => continue,
            Some(class) => format!("class '{}' has {}", class.name, class.count),
            None => "no class has such".to_owned(),
        };
        notes.push(format!(
            "device {device}: a Stager needs {slots} slots of {chunk} bytes (stage_threads, stage_chunk), but \
             {found}; raise its count, or add a [[class]]"
        ));
    }
}

/// The ranges that files and variables keep by their parser, for configurations built in code.
fn check_numbers(config: &PoolConfig) -> Result<(), ConfigError> {
    let refuse = |key: &str, value: u64, help: String| {
        Err(effective(format!("{key} is {value}")).help(help))
    };
    let devices = || config.devices();
    if let Some(wrong) = devices().find(|device| i32::try_from(*device).is_err()) {
        return refuse("device", wrong.into(), format!("use 0 to {}", i32::MAX));
    }
    let twice =
        devices().enumerate().find(|(at, device)| devices().take(*at).any(|d| d == *device));
    if let Some((_, twice)) = twice {
        return Err(effective(format!("device {twice} is named twice")).help("name each once"));
    }
    if config.pin_chunk == 0 {
        return refuse("pin_chunk", 0, "use at least 1 byte".into());
    }
    if config.min_bytes == Some(0) {
        return refuse("min_bytes", 0, "use at least 1 byte".into());
    }
    let possible = [("leak_after", config.leak_after), ("open_timeout", config.open_timeout)];
    for (key, value) in possible {
        if let Some(wrong) = value.filter(|value| !is_possible(*value)) {
            return Err(effective(format!("{key} is {wrong:?}")).help(durations()));
        }
    }
    if config.pin_pause > PIN_PAUSE_MAX {
        let problem = format!("pin_pause is {:?}", config.pin_pause);
        return Err(effective(problem).help(format!("use at most {PIN_PAUSE_MAX:?}")));
    }
    if config.debug_checks && !cfg!(feature = "debug-checks") {
        let problem = "debug_checks is true, but this build of pinpool has no such checks";
        return Err(effective(problem).help(
            "build with the Cargo feature `debug-checks` of pinpool, or remove debug_checks",
        ));
    }
    let threads = [
        ("prefault_threads", config.prefault_threads, THREADS_MAX),
        ("stage_threads", config.stage_threads, STAGE_THREADS_MAX),
    ];
    for (key, value, most) in threads {
        if let Threads::Count(count) = value
            && !(1..=most).contains(&count)
        {
            return refuse(key, count as u64, format!("use 1 to {most}, or auto"));
        }
    }
    if config.stage_chunk < STAGE_CHUNK_MIN {
        let help = format!("use at least {STAGE_CHUNK_MIN} bytes");
        return refuse("stage_chunk", config.stage_chunk, help);
    }
    Ok(())
}

/// Growth that could never happen is a slip: the first grown slab of every class must fit at once.
fn check_growth(
    config: &PoolConfig,
    classes: &[ClassPlan],
    total_bytes: u64,
) -> Result<(), ConfigError> {
    let grows: Vec<_> = classes.iter().filter_map(|class| Some((class, class.grow?))).collect();
    let all = grows.iter().try_fold(total_bytes, |sum, (_, grow)| {
        sum.checked_add((grow.slab_bytes as u64).checked_mul(grow.slabs.into())?)
    });
    if all.is_none_or(|all| isize::try_from(all).is_err()) {
        return Err(effective("the classes and their growth together exceed the address space")
            .help("lower size, count or grow_max"));
    }
    if grows.is_empty() || config.lock == LockMode::Off {
        return Ok(());
    }
    let first: u64 = grows.iter().map(|(_, grow)| grow.slab_bytes as u64).sum();
    let needed = total_bytes + first;
    let names: Vec<_> = grows.iter().map(|(class, _)| format!("'{}'", class.name)).collect();
    let names = names.join(", ");
    let cap = match config.max_pinned {
        Some(cap) if cap >= needed => return Ok(()),
        Some(cap) => format!("max_pinned is {cap}"),
        None => "max_pinned is not set".into(),
    };
    Err(effective(format!(
        "on_empty = \"grow\" of class {names}: the classes pin {total_bytes} bytes and one grown slab \
         each {first}, but {cap}"
    ))
    .help(format!(
        "set max_pinned in [pool] to {needed} or more, or set another on_empty, or lower grow_by"
    )))
}

fn is_possible(duration: Duration) -> bool {
    !duration.is_zero() && duration <= DURATION_MAX
}

fn durations() -> String {
    format!("use more than 0 and at most {DURATION_MAX_TEXT}")
}

fn refuse_duplicates(classes: &[ClassPlan]) -> Result<(), ConfigError> {
    let mut names: Vec<_> = classes.iter().map(|class| class.name.as_str()).collect();
    names.sort_unstable();
    if let Some([name, _]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(effective(format!("class '{name}' was given twice"))
            .help("give each class its own name"));
    }
    let alike = |(one, other): &(&ClassPlan, &ClassPlan)| {
        one.slot_bytes == other.slot_bytes && one.meets(other)
    };
    let pairs = classes.iter().enumerate();
    let mut pairs = pairs.flat_map(|(at, one)| classes[at + 1..].iter().map(move |two| (one, two)));
    let Some((one, two)) = pairs.find(alike) else { return Ok(()) };
    let whose = |class: &ClassPlan| match class.device {
        Some(device) => format!("size {}, device {device}", class.size),
        None => format!("size {}", class.size),
    };
    let problem = format!(
        "classes '{}' ({}) and '{}' ({}) both have slots of {} bytes",
        one.name,
        whose(one),
        two.name,
        whose(two),
        one.slot_bytes
    );
    let merge = "merge them into one class with the sum of their counts";
    Err(effective(problem).help(if one.device == two.device {
        merge.to_owned()
    } else {
        format!(
            "a class without `device` serves all devices, and may have the size of no other: name a \
             device in both, or {merge}"
        )
    }))
}

/// A device whose handle could lease nothing is a slip.
fn refuse_idle_devices(config: &PoolConfig, classes: &[ClassPlan]) -> Result<(), ConfigError> {
    let serves = |device: &u32| classes.iter().any(|class| class.serves(*device));
    let Some(idle) = config.devices().find(|device| !serves(device)) else { return Ok(()) };
    let problem = format!("device {idle} of [pool] has no class: each [[class]] names another one");
    Err(effective(problem).help(format!(
        "add a [[class]] with device = {idle} or without `device`, or remove {idle} from device in [pool]"
    )))
}

fn effective(problem: impl Into<String>) -> ConfigError {
    ConfigError::new(Origin::Effective, problem)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::ClassConfig;
    use crate::memory::limits::page_size;

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
    fn the_order_of_classes_does_not_matter() {
        let a = ClassConfig::new("a", 4096, 2);
        let b = ClassConfig::new("b", 64, 3);
        let sorted = |classes| plan(classes).map(|plan| plan.classes).ok();
        assert_eq!(sorted(vec![a.clone(), b.clone()]), sorted(vec![b, a]));
    }
}
