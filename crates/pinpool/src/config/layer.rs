//! What one source says: any subset of the options. Layers are merged, later ones winning.

use std::time::Duration;

use super::Threads;
use super::value::{self, BadValue, Raw};
use super::{ALIGN_DEFAULT, BackendChoice, ClassConfig, OnEmpty, OnPressure, PoolConfig};
use super::{SPILL_MAX, STAGE_CHUNK_MIN, STAGE_THREADS_MAX, Scrub, THREADS_MAX};
use crate::free_list::SLOTS_MAX;
use crate::memory::{ForkPolicy, HugePages, KeepFree, LockMode, Numa};

/// The options that one source sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layer {
    pub(crate) backend: Option<BackendChoice>,
    /// The device whose context is used, and then the others.
    pub(crate) device: Option<Vec<u32>>,
    pub(crate) max_pinned: Option<u64>,
    pub(crate) lock: Option<LockMode>,
    pub(crate) huge_pages: Option<HugePages>,
    pub(crate) numa: Option<Numa>,
    pub(crate) prefault_threads: Option<Threads>,
    pub(crate) pin_chunk: Option<u64>,
    pub(crate) pin_pause: Option<Duration>,
    pub(crate) open_timeout: Option<Duration>,
    pub(crate) min_bytes: Option<u64>,
    pub(crate) fork: Option<ForkPolicy>,
    pub(crate) track_holders: Option<bool>,
    pub(crate) leak_after: Option<Duration>,
    pub(crate) keep_free: Option<KeepFree>,
    pub(crate) on_pressure: Option<OnPressure>,
    pub(crate) debug_checks: Option<bool>,
    pub(crate) stage_threads: Option<Threads>,
    pub(crate) stage_chunk: Option<u64>,
    pub(crate) classes: Vec<ClassLayer>,
}

/// The options that one source sets for one class.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClassLayer {
    pub(crate) name: String,
    pub(crate) size: Option<u64>,
    pub(crate) count: Option<u64>,
    pub(crate) align: Option<u64>,
    pub(crate) on_empty: Option<OnEmpty>,
    pub(crate) reserve: Option<u64>,
    pub(crate) max_spill: Option<u32>,
    pub(crate) scrub: Option<Scrub>,
    pub(crate) grow_max: Option<u64>,
    pub(crate) grow_by: Option<u64>,
    pub(crate) grow_at: Option<u64>,
    pub(crate) idle_after: Option<Duration>,
    pub(crate) pageable_max: Option<u64>,
    pub(crate) device: Option<u32>,
    /// It says everything about the class: what it leaves out is at its default, not as before.
    pub(crate) whole: bool,
}

/// The keys of `[pool]`.
pub(super) const POOL_KEYS: [&str; 19] = [
    "backend",
    "device",
    "max_pinned",
    "lock",
    "huge_pages",
    "numa",
    "prefault_threads",
    "pin_chunk",
    "pin_pause",
    "open_timeout",
    "min_bytes",
    "fork",
    "track_holders",
    "leak_after",
    "keep_free",
    "on_pressure",
    "debug_checks",
    "stage_threads",
    "stage_chunk",
];
/// The keys of `[[class]]`. None ends like another after `_`, which variables would confuse.
pub(super) const CLASS_KEYS: [&str; 15] = [
    "name",
    "size",
    "frame",
    "count",
    "align",
    "on_empty",
    "reserve",
    "max_spill",
    "scrub",
    "grow_max",
    "grow_by",
    "grow_at",
    "idle_after",
    "pageable_max",
    "device",
];

impl Layer {
    /// Sets one key of [`POOL_KEYS`].
    pub(super) fn set(&mut self, key: &str, raw: Raw<'_>) -> Result<(), BadValue> {
        match key {
            "backend" => self.backend = Some(value::backend(raw)?),
            "device" => match raw {
                Raw::Text(text) => self.set_devices(text.split(',').map(Raw::Text))?,
                raw => self.set_devices([raw].into_iter())?,
            },
            "max_pinned" => self.max_pinned = Some(at_least_one(value::bytes(raw)?)?),
            "lock" => self.lock = Some(value::lock(raw)?),
            "huge_pages" => self.huge_pages = Some(value::huge_pages(raw)?),
            "numa" => self.numa = Some(value::numa(raw)?),
            "prefault_threads" => self.prefault_threads = Some(value::threads(raw, THREADS_MAX)?),
            "pin_chunk" => self.pin_chunk = Some(at_least_one(value::bytes(raw)?)?),
            "pin_pause" => self.pin_pause = Some(value::pause(raw)?),
            "open_timeout" => self.open_timeout = Some(value::duration(raw)?),
            "min_bytes" => self.min_bytes = Some(at_least_one(value::bytes(raw)?)?),
            "fork" => self.fork = Some(value::fork(raw)?),
            "track_holders" => self.track_holders = Some(value::boolean(raw)?),
            "leak_after" => self.leak_after = Some(value::duration(raw)?),
            "keep_free" => self.keep_free = Some(value::keep_free(raw)?),
            "on_pressure" => self.on_pressure = Some(value::on_pressure(raw)?),
            "debug_checks" => self.debug_checks = Some(value::boolean(raw)?),
            "stage_threads" => self.stage_threads = Some(value::threads(raw, STAGE_THREADS_MAX)?),
            "stage_chunk" => match value::bytes(raw)? {
                bytes if bytes < STAGE_CHUNK_MIN => {
                    return Err(problem(&format!("must be at least {STAGE_CHUNK_MIN} bytes")));
                }
                bytes => self.stage_chunk = Some(bytes),
            },
            _ => return Err(unknown(key, &POOL_KEYS)),
        }
        Ok(())
    }

    /// Sets the key `device`, which is a number or a list.
    pub(super) fn set_devices<'r>(
        &mut self,
        devices: impl Iterator<Item = Raw<'r>>,
    ) -> Result<(), BadValue> {
        let devices = devices.map(device).collect::<Result<Vec<_>, _>>()?;
        if devices.is_empty() {
            return Err(problem("name at least one device"));
        }
        self.device = Some(devices);
        Ok(())
    }

    /// Lays `over` on top: its values win, and its classes change those of the same name.
    pub(crate) fn merge(&mut self, over: Self) {
        take(&mut self.backend, over.backend);
        take(&mut self.device, over.device);
        take(&mut self.max_pinned, over.max_pinned);
        take(&mut self.lock, over.lock);
        take(&mut self.huge_pages, over.huge_pages);
        take(&mut self.numa, over.numa);
        take(&mut self.prefault_threads, over.prefault_threads);
        take(&mut self.pin_chunk, over.pin_chunk);
        take(&mut self.pin_pause, over.pin_pause);
        take(&mut self.open_timeout, over.open_timeout);
        take(&mut self.min_bytes, over.min_bytes);
        take(&mut self.fork, over.fork);
        take(&mut self.track_holders, over.track_holders);
        take(&mut self.leak_after, over.leak_after);
        take(&mut self.keep_free, over.keep_free);
        take(&mut self.on_pressure, over.on_pressure);
        take(&mut self.debug_checks, over.debug_checks);
        take(&mut self.stage_threads, over.stage_threads);
        take(&mut self.stage_chunk, over.stage_chunk);
        for class in over.classes {
            match self.classes.iter_mut().find(|known| known.name == class.name) {
                Some(known) => known.merge(class),
                None => self.classes.push(class),
            }
        }
    }

    /// The options that both layers set.
    pub(crate) fn also_set_by(&self, over: &Self) -> Vec<String> {
        let both = self.set_keys().zip(over.set_keys()).filter(|((_, one), (_, two))| *one && *two);
        let pool = both.map(|((key, _), _)| key.to_owned());
        let classes = self.classes.iter().flat_map(|class| {
            let other = over.classes.iter().find(|other| other.name == class.name);
            let other = other.cloned().unwrap_or_default();
            let both = class.set_keys().zip(other.set_keys());
            let both = both.filter(|((_, one), (_, two))| *one && (*two || other.whole));
            both.map(|((key, _), _)| format!("{key} of class '{}'", class.name)).collect::<Vec<_>>()
        });
        pool.chain(classes).collect()
    }

    /// Each option, and whether this layer sets it.
    fn set_keys(&self) -> impl Iterator<Item = (&'static str, bool)> + use<> {
        [
            ("backend", self.backend.is_some()),
            ("device", self.device.is_some()),
            ("max_pinned", self.max_pinned.is_some()),
            ("lock", self.lock.is_some()),
            ("huge_pages", self.huge_pages.is_some()),
            ("numa", self.numa.is_some()),
            ("prefault_threads", self.prefault_threads.is_some()),
            ("pin_chunk", self.pin_chunk.is_some()),
            ("pin_pause", self.pin_pause.is_some()),
            ("open_timeout", self.open_timeout.is_some()),
            ("min_bytes", self.min_bytes.is_some()),
            ("fork", self.fork.is_some()),
            ("track_holders", self.track_holders.is_some()),
            ("leak_after", self.leak_after.is_some()),
            ("keep_free", self.keep_free.is_some()),
            ("on_pressure", self.on_pressure.is_some()),
            ("debug_checks", self.debug_checks.is_some()),
            ("stage_threads", self.stage_threads.is_some()),
            ("stage_chunk", self.stage_chunk.is_some()),
        ]
        .into_iter()
    }

    /// Fills in the defaults. A class without size or count keeps a zero, which the plan refuses
    /// by name.
    pub(crate) fn into_config(self) -> PoolConfig {
        let defaults = PoolConfig::default();
        let track_holders = self.track_holders.unwrap_or(defaults.track_holders);
        let mut devices = self.device.unwrap_or_default().into_iter();
        PoolConfig {
            backend: self.backend.unwrap_or(defaults.backend),
            device: devices.next().unwrap_or(defaults.device),
            other_devices: devices.collect(),
            max_pinned: self.max_pinned,
            lock: self.lock.unwrap_or(defaults.lock),
            huge_pages: self.huge_pages.unwrap_or(defaults.huge_pages),
            numa: self.numa.unwrap_or(defaults.numa),
            prefault_threads: self.prefault_threads.unwrap_or(defaults.prefault_threads),
            pin_chunk: self.pin_chunk.unwrap_or(defaults.pin_chunk),
            pin_pause: self.pin_pause.unwrap_or(defaults.pin_pause),
            open_timeout: self.open_timeout,
            min_bytes: self.min_bytes,
            fork: self.fork.unwrap_or(defaults.fork),
            track_holders: track_holders || self.leak_after.is_some(),
            leak_after: self.leak_after,
            keep_free: self.keep_free.unwrap_or(defaults.keep_free),
            on_pressure: self.on_pressure.unwrap_or(defaults.on_pressure),
            debug_checks: self.debug_checks.unwrap_or(defaults.debug_checks),
            stage_threads: self.stage_threads.unwrap_or(defaults.stage_threads),
            stage_chunk: self.stage_chunk.unwrap_or(defaults.stage_chunk),
            classes: self.classes.into_iter().map(ClassLayer::into_config).collect(),
        }
    }
}

impl ClassLayer {
    /// All options of a class.
    pub(crate) fn whole(class: ClassConfig) -> Self {
        let number = |number: Option<usize>| number.map(|number| number as u64);
        Self {
            name: class.name,
            size: Some(class.size as u64),
            count: Some(class.count as u64),
            align: Some(class.align as u64),
            on_empty: Some(class.on_empty),
            reserve: Some(class.reserve as u64),
            max_spill: Some(class.max_spill),
            scrub: Some(class.scrub),
            grow_max: number(class.grow_max),
            grow_by: number(class.grow_by),
            grow_at: number(class.grow_at),
            idle_after: class.idle_after,
            pageable_max: number(class.pageable_max),
            device: class.device,
            whole: true,
        }
    }

    /// Sets one key of [`CLASS_KEYS`].
    pub(super) fn set(&mut self, key: &str, raw: Raw<'_>) -> Result<(), BadValue> {
        let slots = |min| value::number(raw, min, u64::from(SLOTS_MAX));
        match key {
            "name" => match raw {
                Raw::Text(name) => name.clone_into(&mut self.name),
                _ => return Err(problem("a class name is text in quotes")),
            },
            "size" | "frame" if self.size.is_some() => {
                return Err(problem("give `size` or `frame`, not both"));
            }
            "size" => self.size = Some(at_least_one(value::bytes(raw)?)?),
            "frame" => self.size = Some(value::frame(raw)?),
            "count" => self.count = Some(slots(1)?),
            "align" => self.align = Some(at_least_one(value::bytes(raw)?)?),
            "on_empty" => self.on_empty = Some(value::on_empty(raw)?),
            "reserve" => self.reserve = Some(slots(0)?),
            "max_spill" => {
                let factor = value::number(raw, 1, u64::from(SPILL_MAX))?;
                self.max_spill = u32::try_from(factor).ok();
            }
            "scrub" => self.scrub = Some(value::scrub(raw)?),
            "grow_max" => self.grow_max = Some(slots(1)?),
            "grow_by" => self.grow_by = Some(slots(1)?),
            "grow_at" => self.grow_at = Some(slots(0)?),
            "idle_after" => self.idle_after = Some(value::duration(raw)?),
            "pageable_max" => self.pageable_max = Some(slots(1)?),
            "device" => self.device = Some(device(raw)?),
            _ => return Err(unknown(key, &CLASS_KEYS)),
        }
        Ok(())
    }

    fn merge(&mut self, over: Self) {
        if over.whole {
            *self = over;
            return;
        }
        take(&mut self.size, over.size);
        take(&mut self.count, over.count);
        take(&mut self.align, over.align);
        take(&mut self.on_empty, over.on_empty);
        take(&mut self.reserve, over.reserve);
        take(&mut self.max_spill, over.max_spill);
        take(&mut self.scrub, over.scrub);
        take(&mut self.grow_max, over.grow_max);
        take(&mut self.grow_by, over.grow_by);
        take(&mut self.grow_at, over.grow_at);
        take(&mut self.idle_after, over.idle_after);
        take(&mut self.pageable_max, over.pageable_max);
        take(&mut self.device, over.device);
    }

    /// Each option, and whether this layer sets it.
    fn set_keys(&self) -> impl Iterator<Item = (&'static str, bool)> + use<> {
        [
            ("size", self.size.is_some()),
            ("count", self.count.is_some()),
            ("align", self.align.is_some()),
            ("on_empty", self.on_empty.is_some()),
            ("reserve", self.reserve.is_some()),
            ("max_spill", self.max_spill.is_some()),
            ("scrub", self.scrub.is_some()),
            ("grow_max", self.grow_max.is_some()),
            ("grow_by", self.grow_by.is_some()),
            ("grow_at", self.grow_at.is_some()),
            ("idle_after", self.idle_after.is_some()),
            ("pageable_max", self.pageable_max.is_some()),
            ("device", self.device.is_some()),
        ]
        .into_iter()
    }

    fn into_config(self) -> ClassConfig {
        let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let defaults = ClassConfig::new(self.name, 0, 0);
        ClassConfig {
            size: self.size.map_or(0, whole),
            count: self.count.map_or(0, whole),
            align: self.align.map_or(ALIGN_DEFAULT, whole),
            on_empty: self.on_empty.unwrap_or(defaults.on_empty),
            reserve: self.reserve.map_or(defaults.reserve, whole),
            max_spill: self.max_spill.unwrap_or(defaults.max_spill),
            scrub: self.scrub.unwrap_or(defaults.scrub),
            grow_max: self.grow_max.map(whole),
            grow_by: self.grow_by.map(whole),
            grow_at: self.grow_at.map(whole),
            idle_after: self.idle_after,
            pageable_max: self.pageable_max.map(whole),
            device: self.device,
            ..defaults
        }
    }
}

fn take<T>(under: &mut Option<T>, over: Option<T>) {
    if over.is_some() {
        *under = over;
    }
}

/// A device by its number.
fn device(raw: Raw<'_>) -> Result<u32, BadValue> {
    let number = value::number(raw, 0, i32::MAX as u64)?;
    Ok(u32::try_from(number).unwrap_or(u32::MAX))
}

fn at_least_one(bytes: u64) -> Result<u64, BadValue> {
    if bytes == 0 { Err(problem("must be at least 1 byte")) } else { Ok(bytes) }
}

fn problem(text: &str) -> BadValue {
    BadValue { problem: text.into(), wrong: String::new(), valid: &[] }
}

fn unknown(key: &str, valid: &'static [&'static str]) -> BadValue {
    BadValue { problem: format!("unknown key '{key}'"), wrong: key.into(), valid }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// `PINPOOL_CLASS_<NAME>_<KEY>` is read from its end.
    #[test]
    fn no_key_of_a_class_ends_like_another() {
        for key in CLASS_KEYS {
            let like = CLASS_KEYS.iter().find(|other| key.ends_with(&format!("_{other}")));
            assert_eq!(like, None, "{key}");
        }
    }

    /// The warning that a variable has no effect rests on this, key by key.
    #[test]
    fn options_that_both_layers_set_are_named() {
        let mut under = Layer::default();
        let mut class = ClassLayer { name: "a".into(), ..ClassLayer::default() };
        for key in POOL_KEYS {
            assert!(under.set(key, sample(key)).is_ok(), "{key}");
        }
        for key in CLASS_KEYS.iter().filter(|key| !["name", "frame"].contains(key)) {
            assert!(class.set(key, sample(key)).is_ok(), "{key}");
        }
        under.classes.push(class.clone());
        let of_class = |key: &str| format!("{key} of class 'a'");
        let class_keys = CLASS_KEYS.into_iter().filter(|key| !["name", "frame"].contains(key));
        let all: Vec<_> = POOL_KEYS.into_iter().map(str::to_owned).collect();
        let all: Vec<_> = all.into_iter().chain(class_keys.clone().map(of_class)).collect();
        assert_eq!(under.also_set_by(&under), all);
        assert!(under.also_set_by(&Layer::default()).is_empty());
        // A class that was set whole overrides even what it leaves at its default.
        let whole = ClassLayer::whole(ClassConfig::new("a", 1, 1));
        let whole = Layer { classes: vec![whole], ..Layer::default() };
        assert_eq!(under.also_set_by(&whole), class_keys.map(of_class).collect::<Vec<_>>());
        // One key in each layer, and each is taken from the upper one.
        for key in POOL_KEYS {
            let mut over = Layer::default();
            assert!(over.set(key, sample(key)).is_ok(), "{key}");
            assert_eq!(under.also_set_by(&over), [key]);
            let mut merged = Layer::default();
            merged.merge(over);
            assert_eq!(merged.also_set_by(&under), [key]);
        }
    }

    fn sample(key: &str) -> Raw<'static> {
        Raw::Text(match key {
            "backend" => "host",
            "fork" => "deny",
            "lock" | "huge_pages" => "off",
            "on_empty" => "grow",
            "on_pressure" => "ignore",
            "scrub" => "zero",
            "track_holders" | "debug_checks" => "true",
            "leak_after" | "idle_after" | "pin_pause" | "open_timeout" => "5s",
            "stage_chunk" => "4096",
            _ => "1",
        })
    }
}
