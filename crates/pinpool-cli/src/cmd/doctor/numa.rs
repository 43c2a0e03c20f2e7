//! Whether this process runs, and may have memory, near a device: NUMA nodes against what it is bound to.

use super::devices::Gpu;
use super::link;
use super::report::Line;
use super::root::Root;

/// The line of one device.
pub(super) fn line(root: &Root, gpu: &Gpu) -> Line {
    let name = format!("device {} NUMA node", gpu.ordinal);
    let Some(node) = node_of(root, gpu) else {
        return Line::none(name, "the kernel does not tell, as is usual with one node only");
    };
    let mine = |field: &str| bound_to(root, field);
    let processors = root.read(&format!("sys/devices/system/node/node{node}/cpulist"));
    let processors = processors.as_deref().and_then(numbers).unwrap_or_default();
    let mut value = format!("node {node}");
    if let Some(list) = listed(&processors) {
        value = format!("{value}, processors {list}");
    }
    let allowed = mine("Cpus_allowed_list:");
    let away = allowed.as_ref().is_some_and(|allowed| !meet(allowed, &processors));
    if away && !processors.is_empty() {
        let allowed = allowed.as_deref().and_then(listed).unwrap_or_default();
        let value =
            format!("{value}; this process is bound to processors {allowed}, none of them near");
        let remedy = format!(
            "bind it to that node (`numactl --cpunodebind={node}`, `taskset`, the cpuset of the \
             container or unit): frames that are written far away cross the link between sockets"
        );
        return Line::warning(name, value, remedy);
    }
    if mine("Mems_allowed_list:").is_some_and(|nodes| !meet(&nodes, &[(node, node)])) {
        let value = format!("{value}; this process may not have memory there");
        let remedy = "allow the node in the cpuset (`cpuset.mems`, `--cpuset-mems` of a container)";
        return Line::warning(name, value, remedy);
    }
    match allowed {
        Some(_) => Line::ok(name, format!("{value}; this process may run and have memory there")),
        None => Line::ok(name, value),
    }
}

/// The node beside a device; `None` where the kernel writes -1 or nothing.
fn node_of(root: &Root, gpu: &Gpu) -> Option<u32> {
    let folder = link::folder(gpu.pci_address.as_ref()?);
    root.read(&format!("{folder}/numa_node"))?.parse().ok()
}

/// What the kernel says that this process is bound to.
fn bound_to(root: &Root, field: &str) -> Option<Ranges> {
    let status = root.read("proc/self/status")?;
    numbers(status.lines().find_map(|line| line.strip_prefix(field))?)
}

/// Whether some number is in both.
fn meet(some: &[(u32, u32)], others: &[(u32, u32)]) -> bool {
    some.iter().any(|(first, last)| others.iter().any(|(from, to)| first <= to && from <= last))
}

/// First and last of each run of numbers.
type Ranges = Vec<(u32, u32)>;

/// Numbers as the kernel lists them: `0-2,5`. `None` for anything else.
fn numbers(text: &str) -> Option<Ranges> {
    let parts = text.trim().split(',').filter(|part| !part.is_empty());
    let ranges = parts.map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    ranges.collect()
}

/// The same as text; `None` where there is none.
fn listed(ranges: &[(u32, u32)]) -> Option<String> {
    let parts = ranges.iter().map(|(first, last)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    });
    let text = parts.collect::<Vec<_>>().join(",");
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_read_and_compared() {
        assert_eq!(numbers("0-2,5\n"), Some(vec![(0, 2), (5, 5)]));
        assert_eq!(numbers("\n"), Some(vec![]));
        for nonsense in ["a", "1-", "-1", "1-b", "0,x"] {
            assert_eq!(numbers(nonsense), None, "{nonsense}");
        }
        assert_eq!(listed(&[(0, 2), (5, 5)]).as_deref(), Some("0-2,5"));
        assert_eq!(listed(&[]), None);
        assert!(meet(&[(0, 2), (5, 5)], &[(2, 4)]) && meet(&[(5, 5)], &[(0, 9)]));
        assert!(!meet(&[(0, 2), (5, 5)], &[(3, 4), (6, 9)]) && !meet(&[], &[(0, 9)]));
    }
}
