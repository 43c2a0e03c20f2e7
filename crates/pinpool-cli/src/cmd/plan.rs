//! `pinpool plan`: what a configuration comes to, with the environment's overrides; nothing is
//! pinned.

use humantime::format_duration;
use pinpool::{ClassPlan, KeepFree, Plan, Pool, Threads};
use pinpool_bench::machine;
use serde_json::{Value, json};

use crate::cli::PlanArgs;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(arguments: &PlanArgs) -> Result<(), Failure> {
    // Whatever is wrong with a plan lies in the file or the environment.
    let plan = Pool::builder().file(&arguments.file).plan();
    let plan = plan.map_err(|cause| Failure::Input(cause.to_string()))?;
    if arguments.json {
        return out::print(&format!("{:#}\n", to_json(&plan)));
    }
    out::print(&plan.to_string())
}

/// The plan with the names of the configuration file.
fn to_json(plan: &Plan) -> Value {
    let config = &plan.config;
    let prefault_threads = match config.prefault_threads {
        Threads::Count(count) => json!(count),
        Threads::Auto => json!("auto"),
    };
    let memlock = machine::memlock();
    json!({
        "pool": {
            "backend": config.backend.to_string(),
            "device": config.device,
            "other_devices": config.other_devices,
            "max_pinned": config.max_pinned,
            "lock": config.lock.to_string(),
            "huge_pages": config.huge_pages.to_string(),
            "numa": config.numa.to_string(),
            "prefault_threads": prefault_threads,
            "pin_chunk": config.pin_chunk,
            "fork": config.fork.to_string(),
            "track_holders": config.track_holders,
            "leak_after": config.leak_after.map(|held| format_duration(held).to_string()),
            "keep_free": match config.keep_free {
                KeepFree::Bytes(bytes) => json!(bytes),
                other => json!(other.to_string()),
            },
            "on_pressure": config.on_pressure.to_string(),
            "open_timeout": config.open_timeout.map(|time| format_duration(time).to_string()),
            "min_bytes": config.min_bytes,
            "pin_pause": format_duration(config.pin_pause).to_string(),
            "debug_checks": config.debug_checks,
        },
        "classes": plan.classes.iter().map(class).collect::<Vec<_>>(),
        "total_bytes": plan.total_bytes,
        "pinned_bytes": plan.pinned_bytes,
        "waste_bytes": plan.waste_bytes(),
        "limits": {
            "max_pinned": config.max_pinned,
            "memlock_soft": memlock.soft_bytes,
            "memlock_hard": memlock.hard_bytes,
            "cap_ipc_lock": memlock.cap_ipc_lock,
        },
        "notes": plan.notes,
    })
}

fn class(class: &ClassPlan) -> Value {
    let grow = class.grow.map(|grow| {
        json!({
            "by": grow.by,
            "slabs": grow.slabs,
            "at": grow.at,
            "slab_bytes": grow.slab_bytes,
            "chunk_bytes": grow.chunk_bytes,
        })
    });
    json!({
        "name": class.name,
        "size": class.size,
        "count": class.count,
        "align": class.align,
        "on_empty": class.on_empty.to_string(),
        "reserve": class.reserve,
        "max_spill": class.max_spill,
        "scrub": class.scrub.to_string(),
        "grow": grow,
        "pageable_max": class.pageable_max,
        "idle_after": format_duration(class.idle_after).to_string(),
        "device": class.device,
        "slot_bytes": class.slot_bytes,
        "stride_bytes": class.stride_bytes,
        "slab_bytes": class.slab_bytes,
        "waste_bytes": class.waste_bytes,
        "chunk_bytes": class.chunk_bytes,
    })
}
