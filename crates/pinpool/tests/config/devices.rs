//! Classes of one device: the key, the order of the plan, and which classes may be of one size.

use pinpool::{ClassConfig, Plan, PoolBuilder};

use crate::{assert_refused, builder, config, planned, refused};

/// A class of 4096 bytes, or so, for a device.
fn class(name: &str, size: usize, device: Option<u32>) -> ClassConfig {
    let class = ClassConfig::new(name, size, 2);
    device.into_iter().fold(class, ClassConfig::device)
}

fn with(devices: [u32; 3], classes: &[(&str, usize, Option<u32>)]) -> PoolBuilder {
    let [first, others @ ..] = devices;
    classes.iter().fold(builder().devices(first, others), |builder, (name, size, device)| {
        builder.class_config(class(name, *size, *device))
    })
}

fn order(plan: &Plan) -> Vec<&str> {
    plan.classes.iter().map(|class| class.name.as_str()).collect()
}

#[test]
fn the_key_is_one_number_of_the_pools() {
    let text = |value: &str| {
        format!(
            "[pool]\ndevice = [0, 2]\n[[class]]\nname = \"a\"\nsize = 64\ncount = 1\ndevice = {value}\n\
             [[class]]\nname = \"b\"\nsize = 4096\ncount = 1\n"
        )
    };
    let classes = config(&text("2")).classes;
    assert_eq!([classes[0].device, classes[1].device], [Some(2), None]);
    assert_eq!(planned(&text("2")).classes[1].device, Some(2));
    assert_eq!(config(&text("\"2\"")).classes[0].device, Some(2));
    for wrong in ["[0]", "-1", "true", "\"gpu\"", "2147483648", "0.5"] {
        assert_refused(&text(wrong), 7, &["'device'", "whole number"]);
    }
    let error = refused(&builder().toml(text("1"))).to_string();
    for word in ["class 'a'", "device is 1", "the pool's devices are: 0, 2", "add 1 to device"] {
        assert!(error.contains(word), "`{word}` is missing: {error}");
    }
    let outside = format!("device = 1\n{}", text("2"));
    assert_refused(&outside, 1, &["'device' stands outside any table", "[pool]"]);
    // The weaker source says the key, the stronger leaves it alone, or says all of the class.
    let over = builder().toml(text("2")).class("a", 128, 3).plan().unwrap();
    assert_eq!(over.classes[1].device, Some(2));
    let over = builder().toml(text("2")).class_config(class("a", 64, None)).plan().unwrap();
    assert_eq!(over.classes[0].device, None);
}

/// Classes that no handle leases from together need no sizes to be told apart by.
#[test]
fn two_devices_may_have_classes_of_one_size_and_nobody_else() {
    let plan = with(
        [0, 1, 2],
        &[
            ("zero", 4096, Some(0)),
            ("one", 4096, Some(1)),
            ("two", 4090, Some(2)),
            ("all", 64, None),
        ],
    );
    let sizes: Vec<_> = plan.plan().unwrap().classes.iter().map(|one| one.slot_bytes).collect();
    assert_eq!(sizes, [64, 4096, 4096, 4096]);
    // (the devices of the two, what is to be said)
    let shared = ["a class without `device` serves all devices", "name a device in both", "merge"];
    let refusals: [(_, _, &[&str]); 4] = [
        (None, None, &["merge them into one class"]),
        (Some(1), Some(1), &["device 1", "merge them into one class"]),
        (None, Some(1), &shared),
        (Some(2), None, &shared),
    ];
    for (one, two, words) in refusals {
        // Others lie between them in the order of the plan.
        let between = [("c", 64, None), ("d", 8192, Some(0)), ("e", 128, Some(1))];
        let classes = [&[("a", 4096, one), ("b", 4090, two)][..], &between].concat();
        let error = refused(&with([0, 1, 2], &classes)).to_string();
        for word in ["'a'", "'b'", "slots of 4096 bytes"].iter().chain(words) {
            assert!(error.contains(word), "`{word}` is missing: {error}");
        }
        assert_eq!(error.contains("without `device`"), one != two, "{error}");
    }
}

/// First what the first device uses by rising size, then the others as they are listed, whatever their numbers.
#[test]
fn the_plan_goes_by_device_and_then_by_size() {
    let classes = [
        ("seven-large", 8192, Some(7)),
        ("shared-large", 1 << 20, None),
        ("three-small", 64, Some(3)),
        ("five", 4096, Some(5)),
        ("shared-small", 128, None),
        ("seven-small", 64, Some(7)),
        ("three-large", 4096, Some(3)),
    ];
    let plan = with([5, 7, 3], &classes).plan().unwrap();
    let wanted = [
        "shared-small",
        "five",
        "shared-large",
        "seven-small",
        "seven-large",
        "three-small",
        "three-large",
    ];
    assert_eq!(order(&plan), wanted);
    let table = plan.to_string();
    let column = |name: &str| {
        let line = table.lines().find(|line| line.split(' ').next() == Some(name));
        line.and_then(|line| line.split_whitespace().last()).map(str::to_owned)
    };
    let shown = ["class", "shared-small", "five", "seven-large", "three-small"].map(column);
    assert_eq!(shown.map(Option::unwrap), ["device", "all", "5", "7", "3"], "{table}");
    let without = with([5, 7, 3], &[("a", 64, None)]).plan().unwrap().to_string();
    assert!(without.lines().any(|line| line.ends_with("align")), "{without}");
}

/// A handle that could lease nothing is a slip, the first one's too.
#[test]
fn each_device_has_a_class() {
    for (idle, named) in [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])] {
        let classes = named.map(|device| ("c", 4096, Some(device)));
        let classes = [classes[0], ("d", 4096, classes[1].2)];
        let error = refused(&with([0, 1, 2], &classes)).to_string();
        for word in [format!("device {idle} of [pool] has no class"), format!("device = {idle}")] {
            assert!(error.contains(&word), "`{word}` is missing: {error}");
        }
        let served = [classes[0], classes[1], ("e", 64, None)];
        assert!(with([0, 1, 2], &served).plan().is_ok());
    }
}

/// A larger class helps only who may lease from it.
#[test]
fn a_spill_to_another_devices_class_is_noted_as_vain() {
    let noted = |small: Option<u32>, large: Option<u32>| {
        let small = class("small", 64, small).max_spill(4);
        let rest = with([0, 1, 2], &[("large", 256, large), ("shared", 1 << 20, None)]);
        let notes = rest.class_config(small).plan().unwrap().notes;
        notes.iter().any(|note| note.contains("'small': max_spill 4 has no effect"))
    };
    assert!(noted(Some(0), Some(1)) && noted(None, Some(1)));
    assert!(!noted(Some(1), Some(1)) && !noted(Some(2), None));
}
