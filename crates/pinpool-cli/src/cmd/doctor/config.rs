//! The pool of a configuration file against what there is: what stops it, and which key to change.

use std::collections::BTreeSet;

use pinpool::limits::{Headroom, LimitKind};
use pinpool::placement::{self, Supply};
use pinpool::{ClassPlan, ForkPolicy, HugePages, LockMode, Numa, Plan};
use pinpool_bench::text;

use super::driver::Driver;
use super::facts::Facts;
use super::limits::{self, PAGE_BYTES};
use super::report::{self, Line};
use super::request::Request;
use super::root::Root;

/// Nothing without a file.
pub(super) fn lines(
    root: &Root,
    facts: &Facts,
    driver: &Driver,
    request: &Request,
    on_host: bool,
) -> Vec<Line> {
    let Some(plan) = &request.plan else { return Vec::new() };
    let binding = facts.binding(request, on_host);
    let mut lines = vec![backend(driver, request, on_host), bytes(plan, binding.as_ref())];
    lines.extend(growth(plan, binding.as_ref()));
    lines.push(huge_pages(plan, &Supply::under(root.path())));
    lines.push(numa(root, driver, request, on_host));
    lines
}

fn backend(driver: &Driver, request: &Request, on_host: bool) -> Line {
    let name = "backend";
    let asked = request.config.backend;
    let device = request.device();
    let gpu = driver.gpu(device);
    if !on_host && let Some(gpu) = gpu {
        return Line::ok(name, format!("'{asked}': device {device}, {}", gpu.name));
    }
    if request.needs_cuda() {
        let remedy = "see the lines on driver and devices; or set `backend` in [pool] to \"auto\" or \
                      \"host\"";
        return Line::problem(name, format!("'{asked}': device {device} cannot be used"), remedy);
    }
    let what = match request.config.lock {
        LockMode::Off => "host memory, not locked",
        LockMode::Try => "host memory, locked if the limits allow it",
        LockMode::Require => "host memory, locked",
    };
    Line::ok(name, format!("'{asked}': {what}"))
}

/// What the pool takes at its opening against the least limit.
fn bytes(plan: &Plan, binding: Option<&Headroom>) -> Line {
    let name = "bytes at opening";
    let classes = report::counted(plan.classes.len(), "class", "classes");
    let mut value = format!("{} in {classes}", text::bytes(plan.total_bytes));
    if let Some(least) = plan.config.min_bytes {
        value = format!("{value}, min_bytes {}", text::bytes(least));
    }
    if let Some(cap) = plan.config.max_pinned {
        value = format!("{value}, max_pinned {}", text::bytes(cap));
    }
    let Some(binding) = binding else {
        return Line::ok(name, format!("{value}; no limit of the system is known"));
    };
    let value = format!("{value}; {}", limits::told(binding));
    if plan.total_bytes <= binding.room() {
        return Line::ok(name, value);
    }
    let raise = match binding.limit {
        LimitKind::Memlock => "or raise the limit, as the line on locked memory says",
        _ => binding.remedy(),
    };
    let remedy = format!("{}; {raise}", key(plan, binding.room()));
    match plan.config.min_bytes.filter(|least| *least <= binding.room()) {
        None => Line::problem(name, value, remedy),
        Some(least) => {
            let least = text::bytes(least);
            let value = format!(
                "{value}; the pool may open smaller, with min_bytes of {least}, if each class gets a slot"
            );
            Line::warning(name, value, remedy)
        }
    }
}

/// The key that does the most: of the class that takes the most memory.
fn key(plan: &Plan, room: u64) -> String {
    let Some(class) = plan.classes.iter().max_by_key(|class| class.slab_bytes) else {
        return String::new();
    };
    let ClassPlan { name, count, slab_bytes, stride_bytes, .. } = class;
    let others = plan.total_bytes - *slab_bytes as u64;
    // A slab ends where a page does.
    let left = room.saturating_sub(others) / PAGE_BYTES * PAGE_BYTES;
    let fits = left / (*stride_bytes as u64).max(1);
    let most = format!("[[class]] '{name}' takes {} of it", text::bytes(*slab_bytes as u64));
    match fits {
        0 => format!("{most}, and even `count = 1` does not fit: lower `size`, or other classes"),
        fits => format!("{most}: `count = {fits}` fits, `count = {count}` does not"),
    }
}

/// Growth that the limits will refuse is no problem of the opening.
fn growth(plan: &Plan, binding: Option<&Headroom>) -> Option<Line> {
    let name = "bytes of growth";
    let growths = plan.classes.iter().filter_map(|class| class.grow);
    let wanted: u64 =
        growths.map(|grow| (grow.slab_bytes as u64).saturating_mul(grow.slabs.into())).sum();
    if wanted == 0 {
        return None;
    }
    let under_cap = plan.config.max_pinned.map(|cap| cap.saturating_sub(plan.pinned_bytes));
    let wanted = under_cap.map_or(wanted, |left| left.min(wanted));
    let value = format!("{} at most", text::bytes(wanted));
    let left = binding.map(|binding| binding.room().saturating_sub(plan.total_bytes));
    match left.filter(|left| *left < wanted) {
        None => Some(Line::ok(name, value)),
        Some(left) => {
            let value = format!("{value}, but the limit above leaves {}", text::bytes(left));
            let remedy = "what does not fit is not grown, and leases wait: lower `grow_max` or \
                          `max_pinned`, or raise the limit";
            Some(Line::warning(name, value, remedy))
        }
    }
}

/// Which pages the slabs can lie on. Kinds are tried for each slab; this judges all of them together.
fn huge_pages(plan: &Plan, supply: &Supply) -> Line {
    let name = "huge_pages";
    let asked = plan.config.huge_pages;
    if asked == HugePages::Off || plan.config.lock == LockMode::Off {
        return Line::ok(name, "off: slabs lie on ordinary pages");
    }
    let Supply { page_bytes, free, transparent_bytes, transparent } = supply;
    let least = [Some(*page_bytes), *transparent_bytes].into_iter().flatten();
    let Some(least) = least.filter(|bytes| *bytes > 0).min() else {
        return Line::none(name, format!("{asked}, but the system has none: ordinary pages"));
    };
    let large = plan.classes.iter().map(|class| class.slab_bytes).filter(|bytes| *bytes >= least);
    let needed: u64 = large.map(|bytes| supply.pages_for(bytes as u64)).sum();
    if needed == 0 {
        return Line::none(name, format!("{asked}, but no slab is as large as a huge page"));
    }
    let pages = text::bytes(*page_bytes as u64);
    let reserved = format!("needs {needed} reserved pages of {pages}, {free} are free");
    // Reserved pages are not used where a child or a guard page could find none.
    let safe = plan.config.fork == ForkPolicy::Deny && !plan.config.debug_checks;
    if safe && needed <= *free {
        return Line::ok(name, format!("{asked}: {reserved}"));
    }
    if transparent_bytes.is_some() && transparent != "never" {
        return Line::ok(name, format!("{asked}: transparent ones ({transparent}); {reserved}"));
    }
    let remedy = format!(
        "set /sys/kernel/mm/transparent_hugepage/enabled to madvise, or vm.nr_hugepages to {needed} more \
         than now; or set huge_pages = \"off\" in [pool]"
    );
    let stops = asked == HugePages::Require;
    let value = format!("{asked}: {reserved}, and transparent ones are off");
    Line::problem_if(stops, name, value, remedy)
}

/// Where the slabs can lie.
fn numa(root: &Root, driver: &Driver, request: &Request, on_host: bool) -> Line {
    let name = "numa";
    let asked = request.config.numa;
    let present = placement::nodes_with_memory(&root.sys());
    // Of the host backend none.
    let gpus = request.devices().filter_map(|device| driver.gpu(device).filter(|_| !on_host));
    let addresses = gpus.filter_map(|gpu| gpu.pci_address.as_deref());
    let near = addresses.filter_map(|address| placement::node_of(address, &root.sys()));
    let near: BTreeSet<_> = near.filter(|node| present.contains(node)).collect();
    match asked {
        Numa::Off => Line::ok(name, "off: slabs lie anywhere"),
        Numa::Node(node) if present.contains(&node) => Line::ok(name, format!("node {node}")),
        Numa::Node(node) => {
            let value =
                format!("node {node}, but the nodes with memory here are: {}", all(&present));
            Line::problem(
                name,
                value,
                "set `numa` in [pool] to one of them, to \"auto\" or \"off\"",
            )
        }
        Numa::Auto if present.len() < 2 => Line::ok(name, "auto: there is one node"),
        Numa::Auto if near.is_empty() => {
            Line::ok(name, "auto: anywhere, as no device's node is known")
        }
        Numa::Auto if near.len() == 1 => {
            Line::ok(name, format!("auto: node {}, near the device", all(&near)))
        }
        Numa::Auto => {
            Line::ok(name, format!("auto: spread over nodes {}, near the devices", all(&near)))
        }
    }
}

fn all<'a>(nodes: impl IntoIterator<Item = &'a u32>) -> String {
    let names: Vec<_> = nodes.into_iter().map(u32::to_string).collect();
    names.join(", ")
}
