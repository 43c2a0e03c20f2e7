//! What this process may lock and use, beside what the machine has.

use pinpool::LockMode;
use pinpool::limits::{Headroom, LimitKind};
use pinpool_bench::text;

use super::facts::Facts;
use super::report::Line;
use super::request::Request;

/// `on_host` says that the pool stands on host memory, which the lock limit binds.
pub(super) fn lines(facts: &Facts, request: &Request, on_host: bool) -> Vec<Line> {
    vec![
        memlock(facts, request, on_host),
        capability(facts),
        cgroup(facts),
        least(facts, request, on_host),
    ]
}

/// The limit that leaves the least.
fn least(facts: &Facts, request: &Request, on_host: bool) -> Line {
    let name = "least limit";
    let Some(binding) = facts.binding(request, on_host) else {
        return Line::none(name, "no limit is known, or `keep_free` is off");
    };
    let value = told(&binding);
    if binding.limit == LimitKind::Memlock {
        // Judged by the line on locked memory.
        return Line::ok(name, value);
    }
    // Whether it is enough for the classes of a file is told with them.
    let wanted = request.pinned_bytes().unwrap_or(PAGE_BYTES);
    match binding.room() {
        none if none < PAGE_BYTES => Line::problem(name, value, binding.remedy()),
        small if small < wanted.max(SMALL) => Line::warning(name, value, binding.remedy()),
        _ => Line::ok(name, value),
    }
}

/// A limit with its figures, for people.
pub(super) fn told(headroom: &Headroom) -> String {
    let bytes = text::bytes;
    let value = format!(
        "{} leaves {} of {}",
        headroom.limit,
        bytes(headroom.room()),
        bytes(headroom.bytes)
    );
    match headroom.kept_free {
        0 => format!("{value}, {} are in use", bytes(headroom.used)),
        kept => {
            format!("{value}, {} are in use and {} kept free", bytes(headroom.used), bytes(kept))
        }
    }
}

fn memlock(facts: &Facts, request: &Request, on_host: bool) -> Line {
    let name = "locked memory";
    let bytes = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), text::bytes);
    let (soft, hard) = (facts.memlock.soft, facts.memlock.hard);
    let value = format!("RLIMIT_MEMLOCK {} soft, {} hard", bytes(soft), bytes(hard));
    let binding = soft.filter(|_| !facts.exempt);
    let Some(soft) = binding else {
        let why = if soft.is_none() { "" } else { ", not binding this process" };
        return Line::ok(name, format!("{value}{why}"));
    };
    if !on_host {
        let value = format!("{value}; memory that the driver registers does not count");
        return Line::ok(name, value);
    }
    if request.config.lock == LockMode::Off {
        return Line::none(name, format!("{value}; lock is 'off', so nothing is locked"));
    }
    let wanted = request.pinned_bytes();
    if wanted.is_some_and(|wanted| wanted <= soft) {
        return Line::ok(name, value);
    }
    let value = match wanted {
        Some(wanted) => format!("{value}; the classes lock {}", text::bytes(wanted)),
        None => format!("{value}; a pool that locks more does not open"),
    };
    let remedy = remedy(wanted, hard);
    // Without classes only a limit that allows nothing stops every pool.
    let too_little = soft < PAGE_BYTES || (wanted.is_some() && !request.makes_do_with(soft));
    let stops = request.config.lock == LockMode::Require && too_little;
    Line::problem_if(stops, name, value, remedy)
}

/// How the limit is raised, the nearest way first.
fn remedy(wanted: Option<u64>, hard: Option<u64>) -> String {
    let in_reach = match (wanted, hard) {
        (_, None) => true,
        (Some(wanted), Some(hard)) => wanted <= hard,
        (None, Some(_)) => false,
    };
    let own = match wanted.filter(|_| in_reach) {
        Some(wanted) => format!("`ulimit -l {}` here, ", wanted.div_ceil(1024)),
        None if in_reach => "`ulimit -l unlimited` here, ".to_owned(),
        None => String::new(),
    };
    format!(
        "{own}`LimitMEMLOCK=infinity` in the systemd unit, `--ulimit memlock=-1` for a container, a \
         `memlock` line in /etc/security/limits.conf, or CAP_IPC_LOCK; or `lock = \"try\"` to run \
         unlocked"
    )
}

fn capability(facts: &Facts) -> Line {
    let name = "CAP_IPC_LOCK";
    if facts.exempt {
        return Line::ok(name, "yes: RLIMIT_MEMLOCK does not bind this process");
    }
    Line::none(name, "no: RLIMIT_MEMLOCK binds this process")
}

fn cgroup(facts: &Facts) -> Line {
    let name = "control group";
    let Some(group) = &facts.cgroup else {
        return Line::none(name, "none counts this process's memory, or it cannot be seen");
    };
    let Some(limit) = &group.limit else {
        return Line::ok(name, format!("{}, no limit", group.version));
    };
    let (room, bytes) = (limit.room(), limit.bytes);
    let file = limit.file.file_name().unwrap_or_default().to_string_lossy();
    let value = format!(
        "{}, {file} {}, {} used, {} of that reclaimable: room for {}",
        group.version,
        text::bytes(bytes),
        text::bytes(limit.used),
        text::bytes(limit.reclaimable),
        text::bytes(room)
    );
    if room < bytes / 10 {
        let remedy = "raise the limit (`--memory` of a container, `MemoryMax=` of a unit), or end what \
                      uses it: what a pool pins cannot be reclaimed";
        return Line::warning(name, value, remedy);
    }
    Line::ok(name, value)
}

/// Memory is had and locked in whole pages.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Less than that is hardly a pool.
const SMALL: u64 = 64 << 20;
