//! The machine's memory: how much there is, in which pages, and what the first touch may cost.

use pinpool::limits::{Cgroup, Pressure};
use pinpool_bench::{machine, text};

use super::facts::Facts;
use super::report::Line;
use super::request::Request;
use super::root::Root;
use super::surroundings::Surroundings;

pub(super) fn lines(
    root: &Root,
    facts: &Facts,
    around: &Surroundings,
    request: &Request,
) -> Vec<Line> {
    let mut lines = vec![available(facts, request)];
    lines.extend(transparent_huge_pages(root));
    lines.extend(huge_pages(root));
    lines.push(overcommit(root, facts, request));
    lines.push(pressure(facts));
    lines.push(first_touch(around));
    lines
}

fn available(facts: &Facts, request: &Request) -> Line {
    let name = "available memory";
    let Some(memory) = facts.memory() else {
        return Line::none(name, "/proc/meminfo does not tell");
    };
    let (available, total) = (memory.available, memory.total);
    let value = format!("{} of {}", text::bytes(available), text::bytes(total));
    // Whether it is enough is judged where the limits are.
    let wanted = request.pinned_bytes().unwrap_or(0);
    if available / 10 < total / 100 && wanted <= available {
        let remedy = "little is left to pin: end what uses memory, or pin early, before other \
                      programs fill it";
        return Line::warning(name, value, remedy);
    }
    Line::ok(name, value)
}

fn transparent_huge_pages(root: &Root) -> [Line; 2] {
    let name = "transparent huge pages";
    let enabled = match machine::transparent_huge_pages(root.path(), "enabled") {
        None => Line::none(name, "this kernel has none, or does not tell"),
        Some(mode) if mode == "never" => Line::warning(
            name,
            "never: slabs stand on small pages, which take longer to pin and to copy from",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root",
        ),
        Some(mode) => Line::ok(name, mode),
    };
    let name = "huge page defrag";
    let defrag = match machine::transparent_huge_pages(root.path(), "defrag") {
        None => Line::none(name, "this kernel has none, or does not tell"),
        Some(mode) if mode == "never" || mode == "defer" => Line::warning(
            name,
            format!("{mode}: where memory is fragmented, slabs get small pages at once"),
            "echo madvise > /sys/kernel/mm/transparent_hugepage/defrag, as root",
        ),
        Some(mode) => Line::ok(name, mode),
    };
    [enabled, defrag]
}

/// A line for each size of pages that can be set aside.
fn huge_pages(root: &Root) -> Vec<Line> {
    const FOLDER: &str = "sys/kernel/mm/hugepages";
    let lines = root.names(FOLDER).into_iter().filter_map(|folder| {
        let kib: u64 = folder.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count = |file: &str| -> Option<u64> {
            root.read(&format!("{FOLDER}/{folder}/{file}"))?.parse().ok()
        };
        let (total, free) = (count("nr_hugepages")?, count("free_hugepages")?);
        let promised = count("resv_hugepages").unwrap_or(0);
        let name = format!("huge pages of {}", text::bytes(kib << 10));
        Some(match total {
            0 => Line::none(name, "none set aside"),
            _ => Line::ok(
                name,
                format!("{total} set aside, {free} free, {promised} of them promised"),
            ),
        })
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() {
        return vec![Line::none(
            "huge pages",
            "this kernel has none to set aside, or does not tell",
        )];
    }
    lines
}

fn overcommit(root: &Root, facts: &Facts, request: &Request) -> Line {
    let name = "overcommit";
    match root.read("proc/sys/vm/overcommit_memory").as_deref() {
        Some("0") => Line::ok(name, "0: the kernel judges each request"),
        Some("1") => Line::ok(name, "1: always"),
        Some("2") => strict(facts, request),
        _ => Line::none(name, "/proc/sys/vm/overcommit_memory does not tell"),
    }
}

/// With strict accounting, slabs count against a limit of its own kind.
fn strict(facts: &Facts, request: &Request) -> Line {
    let name = "overcommit";
    let Some(commit) = facts.memory().and_then(|memory| memory.commit) else {
        return Line::none(name, "2: strict, and the kernel does not tell how much is left");
    };
    let (room, limit) = (commit.room(), commit.limit);
    let value = format!("2: strict, {} left to map of {}", text::bytes(room), text::bytes(limit));
    let remedy =
        "vm.overcommit_memory = 0, or a larger vm.overcommit_ratio or vm.overcommit_kbytes";
    match request.plan.as_ref().map(|plan| plan.total_bytes) {
        Some(wanted) if wanted > room => {
            let value = format!("{value}; the classes map {}", text::bytes(wanted));
            Line::problem(name, value, remedy)
        }
        _ => Line::warning(name, value, remedy),
    }
}

fn pressure(facts: &Facts) -> Line {
    let name = "memory pressure";
    let group = facts.cgroup.as_ref().and_then(Cgroup::pressure);
    let Some(system) = facts.pressure else {
        return Line::none(name, "this kernel does not count it (boot with psi=1)");
    };
    let share = |pressure: Pressure| pressure.some.avg10;
    let mut value = format!("tasks waited for memory {}% of the last 10 s", share(system));
    if let Some(group) = group {
        value = format!("{value}, {}% in this control group", share(group));
    }
    let most = share(system).max(group.map_or(0.0, share));
    if most < HIGH_PRESSURE {
        return Line::ok(name, value);
    }
    let remedy = "memory is short already, and what a pool pins cannot be reclaimed: lower `count` or \
                  `size`, raise the limit, or move other programs away";
    Line::warning(name, value, remedy)
}

fn first_touch(around: &Surroundings) -> Line {
    let name = "first touch";
    if around.balloon {
        let remedy = "let the host set the guest's memory aside, and switch the balloon off";
        let value = "the host can take memory from this virtual machine (a balloon), and gives it back \
                     page by page at a touch";
        return Line::warning(name, value, remedy);
    }
    if around.hypervisor || around.wsl {
        let value = "may be slow in a virtual machine, whose host backs memory at the first touch; \
                     pools touch theirs when they open";
        return Line::ok(name, value);
    }
    Line::none(name, "no virtual machine was detected")
}

/// Percent of time from which memory counts as short.
const HIGH_PRESSURE: f64 = 10.0;
