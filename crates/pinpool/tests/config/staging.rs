//! What configures a stager: the keys, the class that it needs, the plan's notes.

use pinpool::{ClassConfig, Plan, PoolBuilder};

use super::{CLASS, assert_refused, builder};

fn pool_key(key: &str, value: &str) -> String {
    format!("[pool]\n{key} = {value}\n{CLASS}")
}

fn notes(plan: &Plan) -> usize {
    plan.notes.iter().filter(|note| note.contains("a Stager needs")).count()
}

#[test]
fn a_builder_adds_the_class_that_a_stager_needs() {
    let plan = builder().stage_threads(3).stage_chunk(64 << 10).stager().plan().unwrap();
    let class = &plan.classes[0];
    assert_eq!((class.name.as_str(), class.slot_bytes, class.count), ("stage", 64 << 10, 6));
    assert_eq!(plan.config.stage_slots(), 6);
    assert_eq!(notes(&plan), 0);
    let plan = builder().stager().plan().unwrap();
    assert_eq!(plan.classes[0].count as usize, plan.config.stage_slots());
}

/// Of each device that has too few: by the smallest class that holds a piece, as a lease would take.
#[test]
fn a_plan_notes_a_stager_that_could_not_be_made() {
    let few = || builder().stage_threads(4).stage_chunk(4096);
    let plan = |classes: &[(usize, usize)]| {
        let named = |at: usize, (size, count)| ClassConfig::new(format!("c{at}"), size, count);
        let classes = classes.iter().enumerate().map(|(at, class)| named(at, *class));
        classes.fold(few(), PoolBuilder::class_config).plan().unwrap()
    };
    assert_eq!(notes(&plan(&[(4096, 8)])), 0);
    assert_eq!(notes(&plan(&[(4096, 7)])), 1);
    assert_eq!(notes(&plan(&[(4096, 7), (8192, 8)])), 1);
    assert_eq!(notes(&plan(&[(2048, 80), (8192, 8)])), 0);
    let none = plan(&[(2048, 80)]);
    assert!(none.notes.iter().any(|note| note.contains("no class has such")), "{:?}", none.notes);
    // Who says nothing of stagers needs none.
    assert_eq!(notes(&builder().class("c", 64, 1).plan().unwrap()), 0);
}

#[test]
fn a_piece_that_is_too_small_is_refused_at_its_line() {
    assert_refused(&pool_key("stage_chunk", "\"100B\""), 2, &["stage_chunk", "4096"]);
    let whole = "expected a whole number or \"auto\", found a number with a fraction";
    assert_refused(&pool_key("stage_threads", "1.5"), 2, &["stage_threads", whole]);
}
