//! Chooses the memory that a configuration asks for, where it lies, and says why.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use crate::config::{BackendChoice, PoolConfig};
use crate::error::{ConfigError, Error, Origin};
use crate::memory::mapping::MapOptions;
use crate::memory::numa::{self, NodeSet};
use crate::memory::{BackendKind, HugePages, LockMode, Mlock, PageLock};

/// The memory to stand on.
pub(crate) struct Chosen {
    pub(crate) memory: Arc<dyn PageLock>,
    pub(crate) reason: String,
    /// What was asked for and cannot be had here.
    pub(crate) notes: Vec<String>,
}

impl Chosen {
    /// Memory that the caller brought.
    pub(crate) fn given(memory: Arc<dyn PageLock>) -> Self {
        Self { memory, reason: "given by the caller".into(), notes: Vec::new() }
    }
}

pub(crate) fn choose(config: &PoolConfig) -> Result<Chosen, Error> {
    match config.backend {
        BackendChoice::Host => host(config, "configured".into()),
        BackendChoice::Auto if config.lock == LockMode::Off => {
            host(config, "lock is off, so nothing is registered with a GPU".into())
        }
        BackendChoice::Cuda => {
            let found = cuda::open(config).map_err(unavailable)?;
            cuda::chosen(found, config, "configured".into())
        }
        BackendChoice::Auto => match cuda::open(config) {
            Ok(found) => {
                cuda::chosen(found, config, format!("CUDA device {} found", config.device))
            }
            Err(reason) => host(config, format!("no CUDA: {reason}")),
        },
    }
}

fn host(config: &PoolConfig, reason: String) -> Result<Chosen, Error> {
    // No device is known: those of classes are near nothing.
    let mut places = Places::wanted(config, &[], Path::new("/sys"))?;
    let notes = places.settle(numa::try_place);
    let memory = Arc::new(Mlock::new(config.lock).mapped(options(config, places.all)));
    Ok(Chosen { memory, reason, notes })
}

/// How slabs are mapped that lie on these nodes.
fn options(config: &PoolConfig, nodes: NodeSet) -> MapOptions {
    let huge = if config.lock == LockMode::Off { HugePages::Off } else { config.huge_pages };
    MapOptions { fork: config.fork, guarded: config.debug_checks, huge, nodes }
}

/// A device of the pool, and where on the PCI bus it is, if the driver tells.
type Located = (u32, Option<String>);

/// Where slabs are to lie.
#[derive(Debug, PartialEq, Eq)]
struct Places {
    /// Near all devices.
    all: NodeSet,
    /// Near each device that has classes of its own.
    near: Vec<(u32, NodeSet)>,
}

impl Places {
    /// For devices at these addresses; `root` is the folder `/sys`.
    fn wanted(config: &PoolConfig, devices: &[Located], root: &Path) -> Result<Self, Error> {
        let place = |devices: &[Located]| {
            let addresses: Vec<_> = devices.iter().filter_map(|(_, at)| at.as_deref()).collect();
            numa::placement(config.numa, &addresses, root)
                .map_err(|present| no_such_node(config, &present))
        };
        let alone = |device: u32| config.classes.iter().any(|class| class.device == Some(device));
        let near = devices.iter().filter(|(device, _)| alone(*device));
        let near = near.map(|own| Ok((own.0, place(std::slice::from_ref(own))?)));
        Ok(Self { all: place(devices)?, near: near.collect::<Result<_, Error>>()? })
    }

    /// Gives up what `try_place` says cannot be had, and tells of it: once for the pool, not for each slab.
    fn settle<E: Display>(&mut self, try_place: impl Fn(NodeSet) -> Result<(), E>) -> Vec<String> {
        let mut notes = Vec::new();
        let sets = [&mut self.all].into_iter().chain(self.near.iter_mut().map(|(_, set)| set));
        for wanted in sets.filter(|set| !set.is_empty()) {
            let Err(error) = try_place(*wanted) else { continue };
            let note = format!(
                "memory lies on any NUMA node, because it cannot be placed on {wanted:?}: {error}"
            );
            *wanted = NodeSet::NONE;
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes
    }
}

fn no_such_node(config: &PoolConfig, present: &[u32]) -> Error {
    let names: Vec<_> = present.iter().map(u32::to_string).collect();
    let names = names.join(", ");
    let problem = format!("numa is {}, but the nodes with memory here are: {names}", config.numa);
    ConfigError::new(Origin::Effective, problem)
        .help("set numa in [pool] to one of them, to \"auto\" or to \"off\"")
        .into()
}

fn unavailable(reason: String) -> Error {
    Error::BackendUnavailable {
        backend: BackendKind::Cuda,
        reason,
        remedy: "install the NVIDIA driver, make the device visible and see to it that it has memory left \
                 for a context (nvidia-smi tells), or set backend = \"auto\" or \"host\" in [pool]",
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use super::{Arc, Chosen, Error, Located, Path, Places, PoolConfig, numa, options};
    use crate::cuda::CudaPages;

    /// The memory, and the devices that use it.
    pub(super) struct Found {
        pages: CudaPages,
        devices: Vec<Located>,
    }

    pub(super) fn open(config: &PoolConfig) -> Result<Found, String> {
        let pages = CudaPages::open(config.device)?;
        let located = |device| Ok((device, pages.pci_address(device)?));
        let devices = config.devices().map(located).collect::<Result<_, String>>()?;
        Ok(Found { pages, devices })
    }

    pub(super) fn chosen(
        found: Found,
        config: &PoolConfig,
        reason: String,
    ) -> Result<Chosen, Error> {
        let mut places = Places::wanted(config, &found.devices, Path::new("/sys"))?;
        let notes = places.settle(numa::try_place);
        let Places { all, near } = places;
        let memory = Arc::new(found.pages.mapped(options(config, all), near));
        Ok(Chosen { memory, reason, notes })
    }
}

#[cfg(not(feature = "cuda"))]
mod cuda {
    use super::{Chosen, Error, PoolConfig};

    /// There is none.
    #[derive(Clone, Copy)]
    pub(super) enum Found {}

    pub(super) fn open(_: &PoolConfig) -> Result<Found, String> {
        Err("pinpool was built without its `cuda` feature".into())
    }

    pub(super) fn chosen(found: Found, _: &PoolConfig, _: String) -> Result<Chosen, Error> {
        match found {}
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::config::ClassConfig;
    use crate::memory::Numa;
    use crate::memory::numa::tests::topology;

    /// Devices 4, 0 and 2; 0 and 2 have classes of their own.
    fn config(numa: Numa) -> PoolConfig {
        let class = |name, device| ClassConfig::new(name, 64, 1).device(device);
        let classes = vec![ClassConfig::new("all", 4096, 1), class("zero", 0), class("two", 2)];
        PoolConfig { device: 4, other_devices: vec![0, 2], numa, classes, ..PoolConfig::default() }
    }

    fn devices(addresses: [Option<&str>; 3]) -> Vec<Located> {
        [4, 0, 2].into_iter().zip(addresses.map(|at| at.map(str::to_owned))).collect()
    }

    fn wanted(numa: Numa, devices: &[Located], root: &Path) -> (Vec<u32>, Vec<(u32, Vec<u32>)>) {
        let places = Places::wanted(&config(numa), devices, root).unwrap();
        let near = places.near.iter().map(|(device, set)| (*device, set.nodes().collect()));
        (places.all.nodes().collect(), near.collect())
    }

    #[test]
    fn a_devices_classes_lie_near_it_and_others_near_all() {
        let folders = [
            ("0000:17:00.0", "0"),
            ("0000:3d:00.0", "1"),
            ("0000:60:00.0", "3"),
            ("0000:61:00.0", "-1"),
        ];
        let root = topology("0-3", &folders);
        let known = devices([Some("0000:3d:00.0"), Some("0000:17:00.0"), Some("0000:60:00.0")]);
        let wanted = |numa, devices: &[Located]| wanted(numa, devices, root.path());
        let apart = vec![(0, vec![0]), (2, vec![3])];
        assert_eq!(wanted(Numa::Auto, &known), (vec![0, 1, 3], apart));
        assert_eq!(wanted(Numa::Off, &known), (vec![], vec![(0, vec![]), (2, vec![])]));
        assert_eq!(wanted(Numa::Node(2), &known), (vec![2], vec![(0, vec![2]), (2, vec![2])]));
        // Neither where the node is not known nor where the address is not: it is near no other's.
        let unknown = devices([Some("0000:3d:00.0"), Some("0000:61:00.0"), None]);
        assert_eq!(wanted(Numa::Auto, &unknown), (vec![1], vec![(0, vec![]), (2, vec![])]));
        assert_eq!(wanted(Numa::Auto, &[]), (vec![], vec![]), "the host backend");
        assert!(Places::wanted(&config(Numa::Node(7)), &known, root.path()).is_err());
    }

    #[test]
    fn what_cannot_be_had_is_given_up_and_told_of_once() {
        let [zero, three] = [NodeSet::of([0]), NodeSet::of([3])];
        let places =
            || Places { all: three, near: vec![(0, zero), (2, three), (5, NodeSet::NONE)] };
        let mut kept = places();
        assert!(kept.settle(|_| Ok::<_, String>(())).is_empty());
        assert_eq!(kept, places());
        let mut rest = places();
        let notes = rest.settle(|set| if set == three { Err("not yours") } else { Ok(()) });
        let near = vec![(0, zero), (2, NodeSet::NONE), (5, NodeSet::NONE)];
        assert_eq!(rest, Places { all: NodeSet::NONE, near });
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("cannot be placed on {3}: not yours"), "{notes:?}");
    }
}
