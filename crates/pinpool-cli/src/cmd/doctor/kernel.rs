//! The kernel, and what lies between it and the machine: hypervisor, container, Windows, IOMMU.

use pinpool_bench::machine;

use super::driver::Driver;
use super::link;
use super::report::Line;
use super::root::Root;
use super::surroundings::Surroundings;

pub(super) fn lines(root: &Root, around: &Surroundings, driver: &Driver) -> Vec<Line> {
    vec![
        version(root),
        membarrier(),
        virtual_machine(around),
        container(around),
        wsl(around),
        iommu(root, around, driver),
    ]
}

fn version(root: &Root) -> Line {
    let name = "kernel";
    let Some(release) = root.read("proc/sys/kernel/osrelease") else {
        return Line::none(name, "/proc/sys/kernel/osrelease cannot be read");
    };
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let value = format!("Linux {release}");
    match number {
        old if old < POPULATE => Line::warning(
            name,
            format!(
                "{value}: before 5.14 slabs are touched page by page, and a lack of memory ends \
                     the process instead of the opening"
            ),
            "a kernel from 5.14 on, which has MADV_POPULATE_WRITE",
        ),
        _ => Line::ok(name, value),
    }
}

fn membarrier() -> Line {
    let name = "membarrier";
    if machine::has_membarrier() {
        return Line::ok(name, "allowed: threads keep free slots at a desk of their own");
    }
    Line::warning(
        name,
        "refused: threads have no desks, and a lease costs what the shared stacks cost",
        "Linux 4.14 or later, and a sandbox or seccomp profile that allows membarrier(2)",
    )
}

fn virtual_machine(around: &Surroundings) -> Line {
    let name = "virtual machine";
    match (&around.product, around.hypervisor) {
        (Some(product), true) => Line::ok(name, format!("yes: {product}")),
        (None, true) => Line::ok(name, "yes: the processor names a hypervisor"),
        (Some(product), false) => Line::none(name, format!("none was detected: {product}")),
        (None, false) => Line::none(name, "none was detected"),
    }
}

fn container(around: &Surroundings) -> Line {
    match &around.container {
        Some(kind) => Line::ok("container", format!("yes: {kind}; its limits are shown above")),
        None => Line::none("container", "none was detected"),
    }
}

fn wsl(around: &Surroundings) -> Line {
    let name = "WSL";
    if !around.wsl {
        return Line::none(name, "this is not Linux within Windows");
    }
    Line::warning(
        name,
        "Windows lets less memory be pinned for the GPU than there is, whatever the limits here say",
        "keep max_pinned small, give WSL more memory in .wslconfig, or use Linux by itself",
    )
}

fn iommu(root: &Root, around: &Surroundings, driver: &Driver) -> Line {
    let name = "IOMMU";
    let groups = root.names("sys/kernel/iommu_groups").len();
    let units = root.names("sys/class/iommu").len();
    let command_line = root.read("proc/cmdline").unwrap_or_default();
    let words = command_line.split_whitespace();
    let words: Vec<_> = words.filter(|word| word.contains("iommu")).collect();
    let asked = match words.len() {
        0 => String::new(),
        _ => format!(" (kernel command line: {})", words.join(" ")),
    };
    if groups == 0 && units == 0 {
        return Line::none(name, format!("none is in use{asked}"));
    }
    let kinds = driver.gpus.iter().filter_map(|gpu| {
        let folder = link::folder(gpu.pci_address.as_ref()?);
        Some((gpu.ordinal, root.read(&format!("{folder}/iommu_group/type"))?))
    });
    let kinds: Vec<_> = kinds.collect();
    let mut value = format!("in use, {groups} groups");
    for (ordinal, kind) in &kinds {
        value = format!("{value}, device {ordinal}: {kind}");
    }
    value.push_str(&asked);
    let translates = kinds.iter().any(|(_, kind)| kind.starts_with("DMA"));
    if translates && !around.hypervisor {
        let remedy = "each page that is pinned is mapped there too, which makes opening slower: boot with \
                      iommu=pt if devices are trusted";
        return Line::warning(name, value, remedy);
    }
    Line::ok(name, value)
}

/// The first kernel that populates memory on request.
const POPULATE: (u32, u32) = (5, 14);
