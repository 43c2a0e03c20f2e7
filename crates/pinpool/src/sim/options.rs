//! What a seed chooses: the pool's configuration, and which events come how often.

use std::time::Duration;

use super::rng::Rng;
use crate::class::Spread;
use crate::config::{ClassConfig, OnEmpty, PoolConfig, Scrub};
use crate::error::Error;
use crate::plan::Plan;

/// The choices of one seed.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) plan: Plan,
    pub(super) spread: Spread,
    /// Threads that the only thread stands for, by home shard.
    pub(super) homes: u32,
    /// How often each kind of step is chosen, in the order of `ops::KINDS`.
    pub(super) weights: [u64; super::ops::KINDS.len()],
    /// How many of 1024 calls of the memory fail, by kind of call.
    pub(super) memory_faults: [u64; 4],
    /// How many of 1024 pieces of work fail, of the fences of users and of each stream.
    pub(super) fence_faults: u64,
    /// The longest that a piece of work takes, in nanoseconds.
    pub(super) lag: u64,
    /// The most time that passes in one step, in nanoseconds.
    pub(super) stride: u64,
}

impl Options {
    pub(super) fn new(rng: &mut Rng) -> Result<Self, Error> {
        let plan = plan(rng)?;
        let mut weights = [0; super::ops::KINDS.len()];
        for (weight, (_, usual, needed)) in weights.iter_mut().zip(super::ops::KINDS) {
            // A swarm: some events are left out, some come far more often.
            let factors = if needed { [1, 1, 1, 1, 2, 4] } else { [0, 1, 1, 1, 2, 4] };
            *weight = usual * rng.pick(&factors);
        }
        let faulty = rng.chance(400);
        let lag = rng.pick(&[1_000, 50_000, 400_000, 5_000_000]);
        let rate = |rng: &mut Rng| if faulty { rng.pick(&[0, 0, 20, 300]) } else { 0 };
        Ok(Self {
            plan,
            spread: Spread { shards: rng.pick(&[1, 2, 4]), desks: rng.pick(&[0, 2, 4]) },
            homes: rng.pick(&[1, 2, 4]),
            weights,
            memory_faults: [rate(rng), rate(rng), rate(rng), rate(rng)],
            fence_faults: if rng.chance(200) { rng.pick(&[1, 4, 30]) } else { 0 },
            lag,
            // From hurried worlds, where much is in flight, to slow ones.
            stride: lag / 4 * rng.pick(&[1, 4, 16]),
        })
    }
}

fn plan(rng: &mut Rng) -> Result<Plan, Error> {
    let mut config = PoolConfig::default();
    let hardened = rng.chance(200);
    config.track_holders = rng.chance(512);
    if rng.chance(300) {
        config.leak_after = Some(Duration::from_micros(rng.pick(&[300, 5_000, 60_000])));
    }
    let mut sizes = [64, 128, 192, 256];
    (1..4).rev().for_each(|at| sizes.swap(at, rng.index(at + 1)));
    for (number, size) in sizes.into_iter().take(1 + rng.index(3)).enumerate() {
        config.classes.push(class(number, size, rng));
    }
    // First as large as can be, then as small as the growth of some classes needs.
    config.max_pinned = Some(1 << 30);
    let mut plan = Plan::new(config)?;
    let mut total = 0;
    let mut growth = 0;
    for class in &mut plan.classes {
        if hardened {
            class.stride_bytes = class.slot_bytes + 64;
        }
        // More chunks than there is need for: each is pinned by a call of its own.
        let pages = 1 + rng.below(3);
        class.slab_bytes = 4096 * usize::try_from(pages).unwrap_or(1);
        class.chunk_bytes = 4096;
        total += class.slab_bytes as u64;
        if let Some(grow) = &mut class.grow {
            grow.slab_bytes = 4096 * (1 + rng.index(2));
            grow.chunk_bytes = 4096;
            growth += grow.slab_bytes as u64 * rng.below(u64::from(grow.slabs) + 1);
        }
    }
    plan.total_bytes = total;
    plan.pinned_bytes = if rng.chance(900) { total } else { 0 };
    plan.config.max_pinned = Some(if rng.chance(512) { total + growth } else { 1 << 30 });
    Ok(plan)
}

fn class(number: usize, size: usize, rng: &mut Rng) -> ClassConfig {
    let count = 1 + rng.index(6);
    let policy =
        rng.pick(&[OnEmpty::Wait, OnEmpty::Wait, OnEmpty::Fail, OnEmpty::Grow, OnEmpty::Pageable]);
    let mut class = ClassConfig::new(format!("c{number}"), size, count)
        .on_empty(policy)
        .max_spill(rng.pick(&[1, 1, 2, 4]))
        .scrub(rng.pick(&[Scrub::None, Scrub::None, Scrub::Zero, Scrub::Poison]));
    if count > 1 && rng.chance(400) {
        class = class.reserve(1 + rng.index(count - 1));
    }
    let idle = Duration::from_micros(rng.pick(&[100, 20_000, 200_000]));
    match policy {
        OnEmpty::Grow => {
            let by = 1 + rng.index(3);
            class = class.grow_by(by).grow_max(by * (1 + rng.index(3))).idle_after(idle);
            class = class.grow_at(rng.index(count));
        }
        OnEmpty::Pageable => class = class.pageable_max(1 + rng.index(3)).idle_after(idle),
        _ => {}
    }
    class
}
