//! The pool of a configuration file against what there is: which limit stops it, and which key to change.

use pinpool::limits::Headroom;
use pinpool::{ClassPlan, LockMode, Plan};
use pinpool_bench::text;

use super::driver::Driver;
use super::facts::Facts;
use super::limits::{self, PAGE_BYTES};
use super::report::{self, Line};
use super::request::Request;

/// Nothing without a file.
pub(super) fn lines(facts: &Facts, driver: &Driver, request: &Request, on_host: bool) -> Vec<Line> {
    let Some(plan) = &request.plan else { return Vec::new() };
    let binding = facts.binding(request, on_host);
    let mut lines = vec![backend(driver, request, on_host), bytes(plan, binding.as_ref())];
    lines.extend(growth(plan, binding.as_ref()));
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
    Line::problem(name, value, format!("{}; {}", key(plan, binding.room()), binding.remedy()))
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
        fits => format!("{most}: `count = {fits}` fits, {count} does not"),
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
