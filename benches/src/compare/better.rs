//! Which way each ratio of each scenario is better.

/// Which way a ratio is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// A rate over a rate, or a speed-up.
    Larger,
    /// A time over a time.
    Smaller,
    /// Says how the machine or a rival does, and nothing of pinpool: no change is a regression.
    Neither,
    /// Not known: every change counts.
    Unknown,
}

impl Better {
    /// Of a ratio of a scenario.
    pub fn of(scenario: &str, name: &str) -> Self {
        let Some(directions) = DIRECTIONS.iter().find(|of| of.scenario == scenario) else {
            return Self::Unknown;
        };
        if directions.rivals.iter().any(|rows| name.starts_with(rows)) {
            return Self::Neither;
        }
        // The name may stand behind those of a row.
        let key = name.rsplit(' ').next().unwrap_or(name);
        let found = [
            (directions.smaller, Self::Smaller),
            (directions.larger, Self::Larger),
            (directions.neither, Self::Neither),
        ];
        let found = found.into_iter().find(|(keys, _)| keys.contains(&key));
        found.map_or(Self::Unknown, |(_, better)| better)
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Larger => "larger",
            Self::Smaller => "smaller",
            Self::Neither => "neither",
            Self::Unknown => "-",
        }
    }

    /// How much worse `after` is than `before`, in percent; negative where it is better, and
    /// nothing where neither is.
    pub(super) fn worse_percent(self, before: f64, after: f64) -> f64 {
        let change = change_percent(before, after);
        match self {
            Self::Larger => -change,
            Self::Smaller => change,
            Self::Neither => 0.0,
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

/// The ratios of a scenario, by the last word of their names.
struct Directions {
    scenario: &'static str,
    smaller: &'static [&'static str],
    larger: &'static [&'static str],
    /// How pageable and pinned memory compare, and how rivals do, is the machine's.
    neither: &'static [&'static str],
    /// How the names of rows begin that are of rivals only.
    rivals: &'static [&'static str],
}

/// Where a scenario has none.
const NONE: Directions =
    Directions { scenario: "", smaller: &[], larger: &[], neither: &[], rivals: &[] };

const DIRECTIONS: &[Directions] = &[
    Directions {
        scenario: "frames",
        larger: &[
            "lease_over_pinned_per_frame",
            "lease_over_malloc_per_frame",
            "lease_over_fixed_ring",
        ],
        ..NONE
    },
    Directions {
        scenario: "copy",
        larger: &["lease_over_raw", "lease_memory_over_raw"],
        neither: &["pageable_over_raw"],
        ..NONE
    },
    Directions {
        scenario: "gigabyte",
        neither: &[
            "h2d_first",
            "h2d_later",
            "h2d_all",
            "d2h_first",
            "d2h_later",
            "d2h_all",
            "host_fresh_over_touched",
        ],
        ..NONE
    },
    Directions {
        scenario: "alloc",
        larger: &["pinned_over_lease", "malloc_over_lease"],
        neither: &["pinned_over_malloc"],
        ..NONE
    },
    Directions {
        scenario: "break-even",
        smaller: &["reuses_leased"],
        neither: &["reuses_pinned", "reuses_registered", "pageable_over_pinned"],
        ..NONE
    },
    Directions {
        scenario: "neighbours",
        smaller: &["p50_over_alone", "p99_over_alone"],
        larger: &["turns_over_alone"],
        rivals: &["pinning, "],
        ..NONE
    },
    Directions {
        scenario: "overlap",
        // Pinned memory is that of leases here.
        larger: &["pinned_over_pageable", "pinned_speedup"],
        neither: &["pageable_speedup"],
        ..NONE
    },
    Directions {
        scenario: "pressure",
        smaller: &["map_over_none", "stream_over_none", "read_over_none"],
        ..NONE
    },
    Directions {
        scenario: "in-flight",
        smaller: &[
            "ours_over_pytorch",
            "p99_512_over_8",
            "p99_512_over_8_one_thread",
            "p99_512_over_8_manual",
            "p99_512_over_8_manual_one_thread",
        ],
        ..NONE
    },
    Directions {
        scenario: "lease",
        smaller: &[
            "one_thread_over_pytorch",
            "one_thread_over_mimalloc64",
            "array_queue_1_thread",
            "tail_65536_over_64",
            "growth_median",
            "growth_p99",
            "growth_median_half_out",
            "growth_p99_half_out",
        ],
        larger: &[
            "total16_over_pytorch",
            "total16_over_one_thread",
            "mutex_vec_2_threads",
            "handoff_1_over_integers",
            "handoff_8_over_integers",
            "handoff_1_over_same_size",
            "handoff_8_over_same_size",
        ],
        ..NONE
    },
    Directions {
        scenario: "waiting",
        smaller: &["tail_tasks", "tail_threads"],
        larger: &[
            "waiting_over_free_tasks",
            "waiting_over_free_threads",
            "waiting_over_free_short",
            "lease_over_semaphore",
            "lease_over_semaphore_giving_up",
            "lease_over_condvar",
            "lease_over_condvar_short",
        ],
        neither: &["waiting_over_free_short_condvar"],
        ..NONE
    },
    Directions {
        scenario: "startup",
        smaller: &[
            "open_over_bare_8g",
            "open_over_bare_1g",
            "neighbour_process_stall_ms",
            "own_copy_stall_ms",
        ],
        larger: &[
            "speedup_over_hostalloc_8g",
            "speedup_over_hostalloc_1g",
            "speedup_over_pytorch16_8g",
            "speedup_over_pytorch16_1g",
        ],
        neither: &[
            "neighbour_process_stall_hostalloc_ms",
            "neighbour_process_idle_ms",
            "own_copy_stall_hostalloc_ms",
            "own_copy_idle_ms",
        ],
        ..NONE
    },
    Directions {
        scenario: "staged",
        smaller: &["small_over_plain"],
        larger: &[
            "h2d_over_pinned",
            "h2d_over_pageable",
            "h2d_over_register",
            "d2h_over_pinned",
            "d2h_over_pageable",
            "d2h_over_register",
            "h2d_4_threads_over_pageable",
            "file_over_read_then_copy",
            "cold_file_over_read_then_copy",
            "h2d_over_pytorch_to",
            "h2d_over_pytorch_pin_memory",
        ],
        ..NONE
    },
];

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_worse_depends_on_which_way_is_better() {
        let worse = |better: Better, after: f64| better.worse_percent(10.0, after);
        assert_eq!((worse(Better::Larger, 9.0), worse(Better::Larger, 11.0)), (10.0, -10.0));
        assert_eq!((worse(Better::Smaller, 9.0), worse(Better::Smaller, 11.0)), (-10.0, 10.0));
        assert_eq!((worse(Better::Unknown, 9.0), worse(Better::Unknown, 11.0)), (10.0, 10.0));
        assert!(worse(Better::Neither, 99.0).abs() < 1e-9);
        // From nothing to something is more than any limit, and nothing stays nothing.
        assert!(Better::Smaller.worse_percent(0.0, 1.0) > 1e9);
        assert!(Better::Smaller.worse_percent(0.0, 0.0).abs() < 1e-9);
    }

    #[test]
    fn directions_are_of_the_scenario_and_of_the_last_word() {
        assert_eq!(Better::of("lease", "growth_p99"), Better::Smaller);
        assert_eq!(Better::of("lease", "mutex_vec_2_threads"), Better::Larger);
        assert_eq!(Better::of("copy", "4 KiB, h2d: lease_over_raw"), Better::Larger);
        assert_eq!(Better::of("copy", "4 KiB, h2d: pageable_over_raw"), Better::Neither);
        assert_eq!(Better::of("copy", "4 KiB, h2d: dance"), Better::Unknown);
        let felt = |case: &str| Better::of("neighbours", &format!("{case}, copy: p99_over_alone"));
        assert_eq!(felt("pool, 1080p at 60/s"), Better::Smaller);
        assert_eq!(felt("pinning, 1080p at 60/s"), Better::Neither);
        assert_eq!(Better::of("staged", "small_over_plain"), Better::Smaller);
        assert_eq!(Better::of("dance", "growth_p99"), Better::Unknown);
    }

    /// The names of the numbers and ranges of a definition of the schema.
    fn names(schema: &Value, definition: &Value) -> Vec<String> {
        let below = |reference: &str| schema.pointer(reference.trim_start_matches('#'));
        let is_ratio = |field: &Value| {
            let kinds = field.get("anyOf").and_then(Value::as_array);
            let kinds = kinds.map_or_else(|| vec![field], |kinds| kinds.iter().collect());
            kinds.iter().any(|kind| {
                kind.get("$ref") == Some(&json!("#/$defs/Range"))
                    || kind.get("type").is_some_and(|kind| kind.to_string().contains("\"number\""))
            })
        };
        let reference = definition.get("items").unwrap_or(definition).get("$ref");
        let fields = reference.and_then(Value::as_str).and_then(below);
        let fields = fields.and_then(|fields| fields.get("properties"));
        let fields = fields.and_then(Value::as_object).into_iter().flatten();
        let ratios = fields.filter(|(_, field)| is_ratio(field));
        ratios.map(|(name, _)| name.clone()).collect()
    }

    #[test]
    fn every_ratio_of_the_schema_has_a_direction_or_has_none_on_purpose() {
        let schema: Value = serde_json::from_str(include_str!("../../schema.json")).unwrap();
        let mut seen = Vec::new();
        for definition in schema["$defs"].as_object().unwrap().values() {
            let fields = &definition["properties"];
            let Some(scenario) = fields["scenario"]["const"].as_str() else { continue };
            let names = names(&schema, &fields["ratios"]);
            assert!(!names.is_empty(), "{scenario}");
            for name in names {
                assert_ne!(Better::of(scenario, &name), Better::Unknown, "{scenario}: {name}");
                seen.push((scenario, name));
            }
        }
        // And the table names nothing that no result has.
        for of in DIRECTIONS {
            for key in [of.smaller, of.larger, of.neither].concat() {
                assert!(seen.contains(&(of.scenario, key.to_owned())), "{}: {key}", of.scenario);
            }
        }
    }
}
