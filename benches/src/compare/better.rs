//! Which way each ratio of each scenario is better.

/// Which way a ratio is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A rate over a rate, or a speed-up.
    Larger,
    /// A time over a time.
    Smaller,
    /// Not known: every change counts.
    Unknown,
}

impl Better {
    /// Of a ratio of a scenario.
    pub fn of(scenario: &str, name: &str) -> Self {
        let Some((_, smaller, larger)) = DIRECTIONS.iter().find(|(of, ..)| *of == scenario) else {
            return Self::Unknown;
        };
        // The name may stand behind those of a row.
        let key = name.rsplit(' ').next().unwrap_or(name);
        let is_in = |keys: &[&str]| keys.iter().any(|known| *known == "*" || key == *known);
        match (is_in(smaller), is_in(larger)) {
            (true, _) => Self::Smaller,
            (false, true) => Self::Larger,
            (false, false) => Self::Unknown,
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Larger => "larger",
            Self::Smaller => "smaller",
            Self::Unknown => "-",
        }
    }

    /// How much worse `after` is than `before`, in percent; negative where it is better.
    pub(super) fn worse_percent(self, before: f64, after: f64) -> f64 {
        let change = change_percent(before, after);
        match self {
            Self::Larger => -change,
            Self::Smaller => change,
            Self::Unknown => change.abs(),
        }
    }
}

/// What was added, in percent of what was there.
pub(super) fn change_percent(before: f64, after: f64) -> f64 {
    let added = after - before;
    // Nothing over nothing would be no number.
    if added.abs() > 0.0 { added / before.abs() * 100.0 } else { 0.0 }
}

/// By scenario: the ratios that are better when smaller, and those that are better when larger;
/// "*" is all the others.
const DIRECTIONS: &[(&str, &[&str], &[&str])] = &[
    ("frames", &[], &["*"]),
    ("copy", &[], &["lease_over_raw", "lease_memory_over_raw"]),
    ("in-flight", &["*"], &[]),
    (
        "lease",
        &[
            "one_thread_over_pytorch",
            "one_thread_over_mimalloc64",
            "array_queue_1_thread",
            "tail_65536_over_64",
            "growth_median",
            "growth_p99",
            "growth_median_half_out",
            "growth_p99_half_out",
        ],
        &[
            "total16_over_pytorch",
            "total16_over_one_thread",
            "mutex_vec_2_threads",
            "handoff_1_over_integers",
            "handoff_8_over_integers",
            "handoff_1_over_same_size",
            "handoff_8_over_same_size",
        ],
    ),
    (
        "waiting",
        &["tail_tasks", "tail_threads"],
        &[
            "waiting_over_free_tasks",
            "waiting_over_free_threads",
            "waiting_over_free_short",
            "lease_over_semaphore",
            "lease_over_semaphore_giving_up",
            "lease_over_condvar",
            "lease_over_condvar_short",
        ],
    ),
    (
        "startup",
        &[
            "open_over_bare_8g",
            "open_over_bare_1g",
            "neighbour_process_stall_ms",
            "own_copy_stall_ms",
        ],
        &[
            "speedup_over_hostalloc_8g",
            "speedup_over_hostalloc_1g",
            "speedup_over_pytorch16_8g",
            "speedup_over_pytorch16_1g",
        ],
    ),
    ("staged", &["small_over_plain"], &["*"]),
    ("alloc", &[], &["pinned_over_lease", "malloc_over_lease"]),
    ("break-even", &["reuses_leased"], &[]),
    // How pageable and pinned memory compare is the machine's; what a lease adds is ours.
    ("alloc", &[], &["pinned_over_lease", "malloc_over_lease"]),
    ("break-even", &["reuses_leased"], &[]),
    ("neighbours", &["*"], &[]),
    ("overlap", &[], &["*"]),
    ("pressure", &["*"], &[]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worse_depends_on_which_way_is_better() {
        let worse = |better: Better, after: f64| better.worse_percent(10.0, after);
        assert_eq!((worse(Better::Larger, 9.0), worse(Better::Larger, 11.0)), (10.0, -10.0));
        assert_eq!((worse(Better::Smaller, 9.0), worse(Better::Smaller, 11.0)), (-10.0, 10.0));
        assert_eq!((worse(Better::Unknown, 9.0), worse(Better::Unknown, 11.0)), (10.0, 10.0));
        // From nothing to something is more than any limit, and nothing stays nothing.
        assert!(Better::Smaller.worse_percent(0.0, 1.0) > 1e9);
        assert!(Better::Smaller.worse_percent(0.0, 0.0).abs() < 1e-9);
    }

    #[test]
    fn directions_are_of_the_scenario_and_of_the_last_word() {
        assert_eq!(Better::of("lease", "growth_p99"), Better::Smaller);
        assert_eq!(Better::of("lease", "mutex_vec_2_threads"), Better::Larger);
        assert_eq!(Better::of("copy", "4 KiB, h2d: lease_over_raw"), Better::Larger);
        assert_eq!(Better::of("copy", "4 KiB, h2d: pageable_over_raw"), Better::Unknown);
        assert_eq!(Better::of("staged", "small_over_plain"), Better::Smaller);
        assert_eq!(Better::of("dance", "growth_p99"), Better::Unknown);
    }
}
