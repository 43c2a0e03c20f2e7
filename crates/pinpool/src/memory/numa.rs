//! NUMA nodes: which ones are near a device, how a region is placed there, and where it really lies.

use std::fmt;
use std::path::Path;

use rustix::io::Errno;
use rustix::mm::ProtFlags;

use super::Region;
use super::limits::page_size;
use super::mapping::map;

/// On which NUMA node slabs are to lie. It is a preference: where the node is full, or the system refuses
/// to place memory, it lies elsewhere, and the start-up report says where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Numa {
    /// On the node of the pool's GPU; anywhere on the host backend, or where the node is not known.
    #[default]
    Auto,
    /// Anywhere.
    Off,
    /// On this node.
    Node(u32),
}

impl fmt::Display for Numa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Off => f.pad("off"),
            Self::Node(node) => write!(f, "{node}"),
        }
    }
}

/// A set of nodes. None in it means anywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct NodeSet([u64; WORDS]);

/// No kernel is built for more nodes.
pub(crate) const NODES_MAX: u32 = 1024;
const WORDS: usize = NODES_MAX as usize / 64;

impl NodeSet {
    pub(crate) const NONE: Self = Self([0; WORDS]);

    /// These nodes; those that no kernel can have are left out.
    pub(crate) fn of(nodes: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::NONE;
        for node in nodes {
            if let Some(word) = set.0.get_mut(node as usize / 64) {
                *word |= 1 << (node % 64);
            }
        }
        set
    }

    /// The nodes in rising order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = u32> {
        let bits = self.0.into_iter().zip(0u32..);
        bits.flat_map(|(word, at)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// One node is preferred; several are taken in turn, page by page.
    ///
    /// Never `MPOL_BIND`: a fault that finds a bound node full calls the out-of-memory killer, although
    /// the others have room. A preference falls back to the nearest of them.
    fn policy(&self) -> libc::c_int {
        match self.nodes().take(2).count() {
            0 => MPOL_DEFAULT,
            1 => MPOL_PREFERRED,
            _ => MPOL_INTERLEAVE,
        }
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.nodes()).finish()
    }
}

/// The nodes that slabs go to, for devices at these PCI addresses; `root` is the folder `/sys`.
///
/// # Errors
///
/// The node asked for does not exist: those that do.
pub(crate) fn placement(
    numa: Numa,
    devices: &[impl AsRef<str>],
    root: &Path,
) -> Result<NodeSet, Vec<u32>> {
    let present = nodes_with_memory(root);
    match numa {
        Numa::Off => Ok(NodeSet::NONE),
        Numa::Node(node) if present.contains(&node) => Ok(NodeSet::of([node])),
        Numa::Node(_) => Err(present),
        // Where there is one node only there is nothing to choose.
        Numa::Auto if present.len() < 2 => Ok(NodeSet::NONE),
        Numa::Auto => {
            let near = devices.iter().filter_map(|device| node_of(device.as_ref(), root));
            Ok(NodeSet::of(near.filter(|node| present.contains(node))))
        }
    }
}

/// The NUMA nodes that have memory; a kernel without NUMA has node 0. `root` is the folder `/sys`.
pub fn nodes_with_memory(root: &Path) -> Vec<u32> {
    let folder = root.join("devices/system/node");
    let list =
        |name| std::fs::read_to_string(folder.join(name)).ok().and_then(|text| numbers(&text));
    list("has_memory").or_else(|| list("online")).unwrap_or_else(|| vec![0])
}

/// The processors of a NUMA node, none where it has none or the kernel does not tell. `root` is the
/// folder `/sys`.
pub fn processors_of(node: u32, root: &Path) -> Vec<u32> {
    let file = root.join(format!("devices/system/node/node{node}/cpulist"));
    let list = std::fs::read_to_string(file).ok().and_then(|text| numbers(&text));
    list.unwrap_or_default()
}

/// Numbers as the kernel lists them, such as `0-2,5`; `None` for no number or anything else.
pub fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range: (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(range.0..=range.1.min(NODES_MAX));
    }
    (!numbers.is_empty()).then_some(numbers)
}

/// The NUMA node of a PCI device; `None` where the kernel does not know. `root` is the folder `/sys`.
pub fn node_of(device: &str, root: &Path) -> Option<u32> {
    // The driver writes capitals, and some tools a domain of eight digits.
    let address = device.to_ascii_lowercase();
    let address = address.strip_prefix("0000").filter(|rest| rest.len() >= 12).unwrap_or(&address);
    let text =
        std::fs::read_to_string(root.join("bus/pci/devices").join(address).join("numa_node"));
    text.ok()?.trim().parse().ok()
}

/// Places pages of a mapping that are not there yet.
///
/// # Safety
///
/// `region` is mapped, and nobody uses it.
pub(super) unsafe fn place(region: Region, nodes: NodeSet) -> Result<(), Errno> {
    if nodes.is_empty() {
        return Ok(());
    }
    let (start, bytes) = (region.start.as_ptr(), region.bytes);
    // One more than there are bits: the kernel looks at one less than it is told.
    let bits = WORDS * 64 + 1;
    // SAFETY: the policy of pages that do not exist changes no byte; the mask is as long as it says.
    let result = unsafe {
        libc::syscall(libc::SYS_mbind, start, bytes, nodes.policy(), nodes.0.as_ptr(), bits, 0)
    };
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

/// Whether memory can be placed on these nodes: found out with a page of its own, which is given back.
///
/// # Errors
///
/// What the system says: a sandbox may forbid it, or a cpuset these nodes.
pub(crate) fn try_place(nodes: NodeSet) -> Result<(), Errno> {
    let region =
        Region { start: map(page_size(), ProtFlags::READ | ProtFlags::WRITE)?, bytes: page_size() };
    // SAFETY: mapped above, and nobody else knows it.
    let placed = unsafe { place(region, nodes) };
    // SAFETY: as above. A page that stays mapped harms nobody.
    let _ = unsafe { rustix::mm::munmap(region.start.as_ptr().cast(), region.bytes) };
    placed
}

/// The node that a region lies on, if the pages looked at are all on one and the system tells.
pub(super) fn node(region: Region) -> Option<u32> {
    let page = page_size();
    let pages = region.bytes / page;
    let count = pages.clamp(1, SAMPLES);
    let sample = |number: usize| region.start.as_ptr().wrapping_add(number * pages / count * page);
    let addresses: [*mut u8; SAMPLES] = std::array::from_fn(|number| sample(number.min(count - 1)));
    let mut nodes: [libc::c_int; SAMPLES] = [-1; SAMPLES];
    // SAFETY: without nodes to move to the call only tells; it writes one number for each address.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            count,
            addresses.as_ptr(),
            std::ptr::null::<libc::c_int>(),
            nodes.as_mut_ptr(),
            0,
        )
    };
    let first = u32::try_from(nodes[0]).ok()?;
    let alike = nodes[..count].iter().all(|node| *node == nodes[0]);
    (result == 0 && alike).then_some(first)
}

fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}

/// Pages looked at: a region that is partly elsewhere is hardly missed, and the call takes microseconds.
const SAMPLES: usize = 64;

const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_PREFERRED: libc::c_int = 1;
const MPOL_INTERLEAVE: libc::c_int = 3;

#[cfg(all(test, not(any(loom, shuttle, miri))))]
pub(crate) mod tests;
