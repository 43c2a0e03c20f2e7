//! The plan: exact counts and bytes, rounding that is said, contradictions that are refused, and the
//! table that `pinpool plan` prints.

use pinpool::{BackendChoice, ClassConfig, FrameFormat, HugePages, LockMode, Plan};

use crate::{CLASS, builder, planned, refused};

const PAGE: usize = 4096;

#[test]
fn bytes_are_sums_without_hidden_parts() {
    let plan = planned(
        "[pool]\nbackend = \"host\"\npin_chunk = \"1MiB\"\n\
         [[class]]\nname = \"rgb\"\nsize = 6220800\ncount = 32\n\
         [[class]]\nname = \"small\"\nsize = 100\ncount = 3\n",
    );
    let [small, rgb] = &plan.classes[..] else { panic!("two classes: {plan}") };
    assert_eq!((small.name.as_str(), rgb.name.as_str()), ("small", "rgb"));
    assert_eq!((small.size, small.slot_bytes, small.count, small.align), (100, 128, 3, 64));
    assert_eq!((small.slab_bytes, small.waste_bytes), (PAGE, PAGE - 300));
    assert_eq!((rgb.size, rgb.slot_bytes, rgb.count), (6_220_800, 6_220_800, 32));
    assert_eq!((rgb.slab_bytes, rgb.waste_bytes), (199_065_600, 0));
    assert_eq!(rgb.chunk_bytes % PAGE, 0);
    assert_eq!(rgb.chunk_bytes % rgb.slot_bytes, 0);
    assert_eq!(plan.total_bytes, 199_065_600 + 4096);
    assert_eq!(plan.pinned_bytes, plan.total_bytes);
    assert_eq!(plan.cap_bytes(), plan.total_bytes, "without max_pinned the classes are the limit");
    assert_eq!(plan.waste_bytes(), 4096 - 300);
    let [note] = &plan.notes[..] else { panic!("one note: {:?}", plan.notes) };
    for word in ["'small'", "100", "128", "align 64"] {
        assert!(note.contains(word), "{note}");
    }
}

/// A class size that is no multiple of the alignment once was fatal, without a word about which
/// entry, and users guessed sizes.
///
/// Case config-2.
#[test]
fn an_unaligned_size_is_rounded_up_with_a_note_in_any_order_of_classes() {
    let sizes = [(46_489_736, 46_493_696), (43_336, 45_056), (563_336, 565_248)];
    let class =
        |(size, _): (usize, usize)| ClassConfig::new(format!("c{size}"), size, 2).align(PAGE);
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for order in orders {
        let plan = order
            .iter()
            .fold(builder(), |builder, at| builder.class_config(class(sizes[*at])))
            .plan()
            .unwrap();
        let got: Vec<_> = plan.classes.iter().map(|class| (class.size, class.slot_bytes)).collect();
        assert_eq!(got, [(43_336, 45_056), (563_336, 565_248), (46_489_736, 46_493_696)]);
        for class in &plan.classes {
            assert_eq!(class.slab_bytes, class.slot_bytes * 2);
            assert_eq!(class.waste_bytes, (class.slot_bytes - class.size) * 2);
            let noted = plan.notes.iter().any(|note| {
                [class.size, class.slot_bytes, class.slot_bytes - class.size]
                    .iter()
                    .all(|number| note.contains(&number.to_string()))
                    && note.contains(&class.name)
            });
            assert!(noted, "{}: {:?}", class.name, plan.notes);
        }
        assert_eq!(plan.notes.len(), 3);
    }
}

/// Two classes with slots of one size are one class for whoever leases: one of them would starve.
///
/// Case config-2.
#[test]
fn classes_with_slots_of_one_size_are_refused_by_name() {
    for (size, other) in [(4096, 4096), (4090, 4096), (4033, 4095)] {
        let error = refused(&builder().class("one", size, 2).class("two", other, 3));
        let message = error.to_string();
        for word in ["'one'", "'two'", &size.to_string(), &other.to_string(), "4096", "merge"] {
            assert!(message.contains(word), "`{word}` is missing: {message}");
        }
    }
    // 4032 is a multiple of 64 and keeps its own class.
    assert!(builder().class("one", 4032, 2).class("two", 4096, 3).plan().is_ok());
}

/// The unaligned sizes of config-2 with the alignment refused: the entry and a range are named.
#[test]
fn an_alignment_that_cannot_be_kept_is_refused_by_name() {
    for align in [1, 2, 32, 63, 65, 96, 4097, 8192, 1 << 40] {
        let class = ClassConfig::new("cam", 100, 1).align(align);
        let message = refused(&builder().class_config(class)).to_string();
        for word in ["class 'cam'", &format!("align is {align}"), "64", "4096"] {
            assert!(message.contains(word), "`{word}` is missing: {message}");
        }
    }
}

/// An empty configuration once pinned 800 MB on a small host, and a big host had a ceiling of 64 GB
/// that nobody had configured.
///
/// Case config-4.
#[test]
fn an_empty_configuration_pins_nothing_and_asks_for_a_size() {
    let empty = [
        builder(),
        builder().toml(""),
        builder().toml("# nothing\n\n"),
        builder().toml("[pool]\n"),
    ];
    for builder in empty.into_iter().chain([builder().toml("class = []\n")]) {
        let message = refused(&builder).to_string();
        assert!(message.contains("no class"), "{message}");
        assert!(message.contains("name, size and count"), "{message}");
        assert!(builder.open().is_err());
    }
}

/// Case config-4.
#[test]
fn there_is_no_ceiling_but_the_address_space() {
    for bytes in [64_usize << 30, (64 << 30) + 1, 512 << 30, 1 << 40, 1 << 46] {
        let plan = builder().class("huge", bytes, 1).plan().unwrap();
        assert_eq!(plan.total_bytes, bytes.next_multiple_of(PAGE) as u64);
    }
    let largest = isize::MAX as usize + 1 - PAGE;
    let plan = builder().class("largest", largest, 1).plan().unwrap();
    assert_eq!(plan.total_bytes, largest as u64);
    let beyond = refused(&builder().class("beyond", largest + 1, 1)).to_string();
    assert!(beyond.contains("'beyond'") && beyond.contains("address space"), "{beyond}");
    // Each is possible, both together are not.
    let sum = refused(&builder().class("a", largest, 1).class("b", 64, 1)).to_string();
    assert!(sum.contains("together exceed the address space"), "{sum}");
}

#[test]
fn at_most_255_classes() {
    let classes = |count: usize| {
        (0..count).fold(builder(), |builder, at| builder.class(&format!("c{at}"), 64 * (at + 1), 1))
    };
    assert_eq!(classes(255).plan().unwrap().classes.len(), 255);
    let message = refused(&classes(256)).to_string();
    assert!(message.contains("256 classes, at most 255"), "{message}");
}

#[test]
fn more_than_max_pinned_is_refused_with_both_numbers() {
    let base = || builder().class("a", 6_220_800, 3).class("b", 100, 1);
    let total = base().plan().unwrap().total_bytes;
    for cap in [total, total + 1, u64::MAX] {
        let plan = base().max_pinned(cap).plan().unwrap();
        assert_eq!((plan.pinned_bytes, plan.cap_bytes()), (total, cap));
    }
    for cap in [1, 4096, total - 1] {
        let message = refused(&base().max_pinned(cap)).to_string();
        for word in [total.to_string(), format!("max_pinned is {cap}"), "count or size".into()] {
            assert!(message.contains(&word), "`{word}` is missing: {message}");
        }
    }
    // What is not locked is not pinned.
    let plan = base().max_pinned(1).lock(LockMode::Off).plan().unwrap();
    assert_eq!((plan.pinned_bytes, plan.total_bytes), (0, total));
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let cuda = builder().class("a", 64, 1).backend(BackendChoice::Cuda);
    assert!(cuda.clone().plan().is_ok());
    let message = refused(&cuda.lock(LockMode::Off)).to_string();
    for word in ["cuda", "lock", "off"] {
        assert!(message.contains(word), "{message}");
    }
    let huge = builder().class("a", 64, 1).huge_pages(HugePages::Require);
    assert!(huge.clone().plan().is_ok());
    let message = refused(&huge.lock(LockMode::Off)).to_string();
    for word in ["huge_pages", "'require'", "lock 'off'"] {
        assert!(message.contains(word), "{message}");
    }
}

/// Effective values are printable, and exact: what the pool will do can be read off the table.
#[test]
fn the_printed_plan_shows_every_effective_value() {
    let plan = planned(
        "[pool]\nbackend = \"host\"\ndevice = 3\nmax_pinned = \"300MB\"\nlock = \"try\"\n\
         huge_pages = \"require\"\nnuma = 3\nprefault_threads = 5\npin_chunk = 1000001\n\
         [[class]]\nname = \"nv12\"\nsize = 3110400\ncount = 7\nalign = 4096\n\
         [[class]]\nname = \"meta\"\nsize = 1000\ncount = 9\n",
    );
    let text = plan.to_string();
    assert_eq!(FrameFormat::Nv12.bytes(1920, 1080).unwrap(), 3_110_400);
    for word in [
        "backend host",
        "device 3",
        "lock try",
        "huge_pages require",
        "numa 3",
        "prefault_threads 5",
        "max_pinned 300000000 bytes",
        "nv12",
        "3110400",
        "3112960", // the slot: 760 pages
        "21790720",
        "17920", // the waste: 7 times 2560
        "meta",
        "1024",
        "12288",
        "3288",     // the waste: 12288 - 9000
        "21803008", // the total
        "RLIMIT_MEMLOCK",
        "note: class 'nv12'",
        "note: class 'meta'",
    ] {
        assert!(text.contains(word), "`{word}` is missing:\n{text}");
    }
    assert!(text.contains("1000001"), "pin_chunk is rounded, not the effective value:\n{text}");
}

#[test]
fn the_printed_plan_shows_the_defaults_as_well() {
    let text = planned(CLASS).to_string();
    for word in
        ["backend auto", "device 0", "lock require", "prefault_threads auto", "max_pinned not set"]
    {
        assert!(text.contains(word), "`{word}` is missing:\n{text}");
    }
}

/// Planning touches no memory, so a plan of more than this machine has costs nothing.
#[test]
fn a_plan_is_a_function_of_its_configuration() {
    let plan = planned(CLASS);
    assert_eq!(Plan::new(plan.config.clone()).unwrap(), plan);
    assert_eq!(plan.config, builder().toml(CLASS).config().unwrap());
}
