//! What one source says: any subset of the options. Layers are merged, later ones winning.

use super::value::{self, BadValue, Raw};
use super::{ALIGN_DEFAULT, BackendChoice, ClassConfig, PoolConfig, Threads};
use crate::free_list::SLOTS_MAX;
use crate::memory::LockMode;

/// The options that one source sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layer {
    pub(crate) backend: Option<BackendChoice>,
    pub(crate) device: Option<u32>,
    pub(crate) max_pinned: Option<u64>,
    pub(crate) lock: Option<LockMode>,
    pub(crate) prefault_threads: Option<Threads>,
    pub(crate) pin_chunk: Option<u64>,
    pub(crate) classes: Vec<ClassLayer>,
}

/// The options that one source sets for one class.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClassLayer {
    pub(crate) name: String,
    pub(crate) size: Option<u64>,
    pub(crate) count: Option<u64>,
    pub(crate) align: Option<u64>,
}

/// The keys of `[pool]`.
pub(super) const POOL_KEYS: [&str; 6] =
    ["backend", "device", "max_pinned", "lock", "prefault_threads", "pin_chunk"];
/// The keys of `[[class]]`.
pub(super) const CLASS_KEYS: [&str; 5] = ["name", "size", "frame", "count", "align"];

impl Layer {
    /// Sets one key of [`POOL_KEYS`].
    pub(super) fn set(&mut self, key: &str, raw: Raw<'_>) -> Result<(), BadValue> {
        match key {
            "backend" => self.backend = Some(value::backend(raw)?),
            "device" => {
                let device = value::number(raw, 0, i32::MAX as u64)?;
                self.device = u32::try_from(device).ok();
            }
            "max_pinned" => self.max_pinned = Some(at_least_one(value::bytes(raw)?)?),
            "lock" => self.lock = Some(value::lock(raw)?),
            "prefault_threads" => self.prefault_threads = Some(value::threads(raw)?),
            "pin_chunk" => self.pin_chunk = Some(at_least_one(value::bytes(raw)?)?),
            _ => return Err(unknown(key, &POOL_KEYS)),
        }
        Ok(())
    }

    /// Lays `over` on top: its values win, and its classes change those of the same name.
    pub(crate) fn merge(&mut self, over: Self) {
        fn take<T>(under: &mut Option<T>, over: Option<T>) {
            if over.is_some() {
                *under = over;
            }
        }
        take(&mut self.backend, over.backend);
        take(&mut self.device, over.device);
        take(&mut self.max_pinned, over.max_pinned);
        take(&mut self.lock, over.lock);
        take(&mut self.prefault_threads, over.prefault_threads);
        take(&mut self.pin_chunk, over.pin_chunk);
        for class in over.classes {
            match self.classes.iter_mut().find(|known| known.name == class.name) {
                Some(known) => {
                    take(&mut known.size, class.size);
                    take(&mut known.count, class.count);
                    take(&mut known.align, class.align);
                }
                None => self.classes.push(class),
            }
        }
    }

    /// The options that both layers set.
    pub(crate) fn also_set_by(&self, over: &Self) -> Vec<String> {
        let pool = [
            ("backend", self.backend.is_some() && over.backend.is_some()),
            ("device", self.device.is_some() && over.device.is_some()),
            ("max_pinned", self.max_pinned.is_some() && over.max_pinned.is_some()),
            ("lock", self.lock.is_some() && over.lock.is_some()),
            (
                "prefault_threads",
                self.prefault_threads.is_some() && over.prefault_threads.is_some(),
            ),
            ("pin_chunk", self.pin_chunk.is_some() && over.pin_chunk.is_some()),
        ];
        let pool = pool.into_iter().filter(|(_, both)| *both).map(|(key, _)| key.to_owned());
        let classes = self.classes.iter().flat_map(|class| {
            let other = over.classes.iter().find(|other| other.name == class.name);
            let other = other.cloned().unwrap_or_default();
            let both = [
                ("size", class.size.is_some() && other.size.is_some()),
                ("count", class.count.is_some() && other.count.is_some()),
                ("align", class.align.is_some() && other.align.is_some()),
            ];
            let both = both.into_iter().filter(|(_, both)| *both);
            both.map(|(key, _)| format!("{key} of class '{}'", class.name)).collect::<Vec<_>>()
        });
        pool.chain(classes).collect()
    }

    /// Fills in the defaults. A class without size or count keeps a zero, which the plan refuses
    /// by name.
    pub(crate) fn into_config(self) -> PoolConfig {
        let defaults = PoolConfig::default();
        PoolConfig {
            backend: self.backend.unwrap_or(defaults.backend),
            device: self.device.unwrap_or(defaults.device),
            max_pinned: self.max_pinned,
            lock: self.lock.unwrap_or(defaults.lock),
            prefault_threads: self.prefault_threads.unwrap_or(defaults.prefault_threads),
            pin_chunk: self.pin_chunk.unwrap_or(defaults.pin_chunk),
            classes: self.classes.into_iter().map(ClassLayer::into_config).collect(),
        }
    }
}

impl ClassLayer {
    /// Sets one key of [`CLASS_KEYS`].
    pub(super) fn set(&mut self, key: &str, raw: Raw<'_>) -> Result<(), BadValue> {
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
            "count" => self.count = Some(value::number(raw, 1, u64::from(SLOTS_MAX))?),
            "align" => self.align = Some(at_least_one(value::bytes(raw)?)?),
            _ => return Err(unknown(key, &CLASS_KEYS)),
        }
        Ok(())
    }

    fn into_config(self) -> ClassConfig {
        let whole = |number: Option<u64>| {
            number.map_or(0, |number| usize::try_from(number).unwrap_or(usize::MAX))
        };
        ClassConfig {
            name: self.name,
            size: whole(self.size),
            count: whole(self.count),
            align: self.align.map_or(ALIGN_DEFAULT, |align| whole(Some(align))),
        }
    }
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
