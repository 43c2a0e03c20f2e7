//! Whether this process runs, and may have memory, near a device: its node against what binds the process.

use pinpool::placement::{node_of, numbers, processors_of};

use super::devices::Gpu;
use super::report::Line;
use super::root::Root;

/// The line of one device.
pub(super) fn line(root: &Root, gpu: &Gpu) -> Line {
    let name = format!("device {} NUMA node", gpu.ordinal);
    let address = gpu.pci_address.as_deref();
    let Some(node) = address.and_then(|address| node_of(address, &root.sys())) else {
        return Line::none(name, "the kernel does not tell, as is usual with one node only");
    };
    let near = processors_of(node, &root.sys());
    let mut value = format!("node {node}");
    if !near.is_empty() {
        value = format!("{value}, processors {}", listed(&near));
    }
    let allowed = bound_to(root, "Cpus_allowed_list:");
    let away = |allowed: &&Vec<u32>| !near.is_empty() && !meet(allowed, &near);
    if let Some(allowed) = allowed.as_ref().filter(away) {
        let bound = listed(allowed);
        let value =
            format!("{value}; this process is bound to processors {bound}, none of them near");
        let remedy = format!(
            "bind it to that node (`numactl --cpunodebind={node}`, `taskset`, the cpuset of the \
             container or unit): frames that are written far away cross the link between sockets"
        );
        return Line::warning(name, value, remedy);
    }
    if bound_to(root, "Mems_allowed_list:").is_some_and(|nodes| !nodes.contains(&node)) {
        let value = format!("{value}; this process may not have memory there");
        let remedy = "allow the node in the cpuset (`cpuset.mems`, `--cpuset-mems` of a container)";
        return Line::warning(name, value, remedy);
    }
    match allowed {
        Some(_) => Line::ok(name, format!("{value}; this process may run and have memory there")),
        None => Line::ok(name, value),
    }
}

/// What the kernel says that this process is bound to.
fn bound_to(root: &Root, field: &str) -> Option<Vec<u32>> {
    let status = root.read("proc/self/status")?;
    numbers(status.lines().find_map(|line| line.strip_prefix(field))?)
}

/// Whether some number is in both.
fn meet(some: &[u32], others: &[u32]) -> bool {
    some.iter().any(|number| others.contains(number))
}

/// Numbers in rising order as the kernel lists them: `0-2,5`.
fn listed(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|before, after| before + 1 == *after);
    let parts = runs.filter_map(|run| match run {
        [] => None,
        [one] => Some(one.to_string()),
        [first, .., last] => Some(format!("{first}-{last}")),
    });
    parts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_listed_as_the_kernel_does() {
        for list in ["0-2,5", "7", "0-1", "1,3,5-7", ""] {
            assert_eq!(listed(&numbers(list).unwrap_or_default()), list);
        }
        assert!(meet(&[0, 1, 5], &[5, 9]) && !meet(&[0, 1], &[2]) && !meet(&[], &[0]));
    }
}
