//! What is said of a pool on a machine that cannot serve it, or can in part.

use std::fs;

use pinpool::limits::KeepFree;
use pinpool::{BackendChoice, ForkPolicy, HugePages, LockMode, Numa, OnEmpty};

use super::*;

#[test]
fn without_a_driver_only_a_pool_that_must_have_it_is_stopped() {
    let machine = bare_metal();
    fs::remove_file(machine.path().join("sys/module/nvidia/version")).unwrap();
    let report = machine.report(&no_driver(), &any());
    says(&report, "CUDA driver", Status::Warning, &["host memory", "PCI bus (2)", "install"]);
    says(&report, "devices", Status::NotApplicable, &["none"]);
    assert!(report.names(Status::Problem).is_empty(), "{}", report.to_text());
    let cuda = pool(4096, |config| config.backend = BackendChoice::Cuda);
    let report = machine.report(&no_driver(), &cuda);
    says(&report, "CUDA driver", Status::Problem, &["backend is 'cuda'"]);
    for mode in [LockMode::Require, LockMode::Off] {
        let host = pool(4096, |config| {
            config.lock = mode;
            config.backend =
                if mode == LockMode::Off { BackendChoice::Auto } else { BackendChoice::Host };
        });
        let report = machine.report(&no_driver(), &host);
        says(&report, "CUDA driver", Status::NotApplicable, &["anyway"]);
    }
}

#[test]
fn the_remedy_for_a_driver_follows_from_where_it_is_missing() {
    let machine = Machine::new(&[]);
    let remedy = |driver: &Driver, words: &[&str]| {
        says(&machine.report(driver, &any()), "CUDA driver", Status::Warning, words);
    };
    remedy(&no_driver(), &["without a GPU nothing is to be done"]);
    let missing = |reason: &str| Driver { missing: Some(reason.into()), ..Driver::default() };
    remedy(&missing("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), &["different versions", "reboot"]);
    remedy(&missing("libcuda.so.1 is the toolkit's stub, not a driver"), &["stubs"]);
    let hidden = Driver { visible: Some(String::new()), ..missing("the driver sees no device") };
    remedy(&hidden, &["CUDA_VISIBLE_DEVICES hides"]);
    machine.write("proc/driver/nvidia/version", NVRM);
    remedy(&no_driver(), &["libcuda.so.1", "/dev/nvidia*"]);
    says(
        &machine.report(&no_driver(), &any()),
        "kernel module",
        Status::Ok,
        &["nvidia 535.104.05"],
    );
    machine.write(".dockerenv", "");
    remedy(&no_driver(), &["--gpus all"]);
    machine.write("proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2\n");
    remedy(&no_driver(), &["/usr/lib/wsl/lib"]);
}

#[test]
fn the_lock_limit_stops_only_what_it_binds() {
    const NAME: &str = "locked memory";
    let machine = Machine::new(&[]);
    let report = |request: &Request, soft| machine.report_with(&no_driver(), request, soft);
    let large = pool(64 << 20, |_| {});
    let eight = Some(8 << 20);
    says(
        &report(&large, eight),
        NAME,
        Status::Problem,
        &["64 MiB", "LimitMEMLOCK", "lock = \"try\""],
    );
    says(&report(&large, Some(64 << 20)), NAME, Status::Ok, &["64 MiB soft"]);
    says(&report(&large, None), NAME, Status::Ok, &["unlimited"]);
    says(&report(&any(), eight), NAME, Status::Warning, &["locks more does not open"]);
    says(&report(&any(), Some(0)), NAME, Status::Problem, &["0 B soft"]);
    let tries = pool(64 << 20, |config| config.lock = LockMode::Try);
    says(&report(&tries, eight), NAME, Status::Warning, &["64 MiB"]);
    let off = pool(64 << 20, |config| config.lock = LockMode::Off);
    says(&report(&off, eight), NAME, Status::NotApplicable, &["'off'"]);
    let on_gpu = machine.report_with(&driver(vec![gpu(0, "0000:01:00.0")]), &large, eight);
    says(&on_gpu, NAME, Status::Ok, &["driver registers"]);
    // What the hard limit allows needs nobody's help.
    let mut facts = Facts::read(&machine.root());
    facts.set_memlock(Memlock { soft: eight, hard: None });
    let report = examine(&machine.root(), &facts, &no_driver(), &large, None);
    says(&report, NAME, Status::Problem, &["`ulimit -l 65536` here"]);
}

#[test]
fn a_file_s_pool_is_held_against_the_least_limit() {
    const NAME: &str = "bytes at opening";
    let machine = Machine::new(&[
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("proc/meminfo", MEMINFO),
        ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/memory.current", "209715200\n"),
    ]);
    // 1 GiB less 200 MiB in use and 32 MiB kept free.
    let file = |megabytes: usize, count| {
        pool(megabytes << 20, |config| {
            config.classes[0].count = count;
            config.classes.push(ClassConfig::new("small", 4096, 3));
        })
    };
    let report = |request: &Request| machine.report(&no_driver(), request);
    let fits = report(&file(79, 10));
    says(&fits, NAME, Status::Ok, &["828.4 MB in 2 classes", "memory.max leaves 792 MiB of 1 GiB"]);
    says(&fits, "least limit", Status::Ok, &["200 MiB are in use", "32 MiB kept free"]);
    says(&fits, "backend", Status::Ok, &["'auto': host memory, locked"]);
    let words = [
        "memory.max",
        "'frame' takes 800 MiB",
        "`count = 9` fits, `count = 10` does not",
        "--memory",
    ];
    says(&report(&file(80, 10)), NAME, Status::Problem, &words);
    // The count that is named fits indeed, and one more does not.
    says(&report(&file(80, 9)), NAME, Status::Ok, &[]);
    let report_of_one = report(&file(900, 1));
    says(&report_of_one, NAME, Status::Problem, &["even `count = 1` does not fit", "lower `size`"]);
    let all = pool(900 << 20, |config| config.keep_free = KeepFree::Off);
    says(&report(&all), NAME, Status::Ok, &["no limit of the system is known"]);
    says(&report(&all), "least limit", Status::NotApplicable, &["keep_free"]);
    // One that may open smaller is stopped by less than that only.
    let smaller = |least: u64| {
        pool(80 << 20, |config| (config.classes[0].count, config.min_bytes) = (10, Some(least)))
    };
    says(&report(&smaller(700 << 20)), NAME, Status::Warning, &["min_bytes 700 MiB", "792 MiB"]);
    says(&report(&smaller(793 << 20)), NAME, Status::Problem, &["min_bytes 793 MiB"]);
    // Without a file nothing is said of one.
    let names: Vec<_> = report(&any()).all().map(|line| line.name.clone()).collect();
    assert!(!names.iter().any(|name| name == NAME || name == "backend"), "{names:?}");
    // The lock limit is less than the group's.
    let locked = machine.report_with(&no_driver(), &file(79, 10), Some(8 << 20));
    says(&locked, NAME, Status::Problem, &["RLIMIT_MEMLOCK leaves 8 MiB", "locked memory"]);
}

#[test]
fn growth_that_the_limits_will_refuse_is_warned_of() {
    let machine = Machine::new(&[("proc/meminfo", MEMINFO)]);
    let grows = |max_pinned: u64| {
        pool(1 << 30, |config| {
            config.classes[0].count = 4;
            config.classes[0].on_empty = OnEmpty::Grow;
            config.classes[0].grow_max = Some(100);
            config.classes[0].grow_by = Some(2);
            config.max_pinned = Some(max_pinned);
        })
    };
    let report = machine.report(&no_driver(), &grows(20 << 30));
    says(&report, "bytes of growth", Status::Ok, &["16 GiB at most"]);
    says(&report, "bytes at opening", Status::Ok, &["4 GiB in 1 class, max_pinned 20 GiB"]);
    let report = machine.report(&no_driver(), &grows(60 << 30));
    says(
        &report,
        "bytes of growth",
        Status::Warning,
        &["56 GiB at most", "leaves 43 GiB", "grow_max"],
    );
}

#[test]
fn huge_pages_that_cannot_be_had_stop_only_who_requires_them() {
    const NAME: &str = "huge_pages";
    let machine = bare_metal();
    let asks = |pages: HugePages| pool(64 << 20, |config| config.huge_pages = pages);
    let report = |request: &Request| machine.report(&two_gpus(), request);
    let meminfo = |free: u32| {
        let pages =
            format!("HugePages_Total: 512\nHugePages_Free: {free}\nHugepagesize: 2048 kB\n");
        machine.write("proc/meminfo", &format!("{MEMINFO}{pages}"));
    };
    // Files of a kernel without any.
    says(&report(&asks(HugePages::Try)), NAME, Status::NotApplicable, &["the system has none"]);
    meminfo(32);
    let words = ["needs 32 reserved pages of 2 MiB, 32 are free"];
    says(&report(&asks(HugePages::Require)), NAME, Status::Ok, &words);
    let inherit = pool(64 << 20, |config| {
        (config.huge_pages, config.fork) = (HugePages::Require, ForkPolicy::Inherit);
    });
    says(&report(&inherit), NAME, Status::Problem, &["transparent ones are off"]);
    machine.write("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n");
    says(&report(&inherit), NAME, Status::Ok, &["transparent ones (madvise)"]);
    meminfo(31);
    says(&report(&asks(HugePages::Require)), NAME, Status::Ok, &["transparent", "31 are free"]);
    machine.write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    let words = ["needs 32", "vm.nr_hugepages", "huge_pages = \"off\""];
    says(&report(&asks(HugePages::Require)), NAME, Status::Problem, &words);
    says(&report(&asks(HugePages::Try)), NAME, Status::Warning, &words);
    says(&report(&asks(HugePages::Off)), NAME, Status::Ok, &["ordinary pages"]);
    let small = pool(4096, |config| config.huge_pages = HugePages::Require);
    says(&report(&small), NAME, Status::NotApplicable, &["no slab is as large"]);
}

#[test]
fn a_node_that_does_not_exist_stops_the_pool() {
    const NAME: &str = "numa";
    let machine = bare_metal();
    machine.write("sys/devices/system/node/has_memory", "0-1\n");
    let asks = |numa: Numa, device| {
        let request = pool(4096, |config| (config.numa, config.device) = (numa, device));
        machine.report(&two_gpus(), &request)
    };
    says(&asks(Numa::Auto, 0), NAME, Status::Ok, &["node 0, near the device"]);
    says(&asks(Numa::Auto, 1), NAME, Status::Ok, &["node 1, near the device"]);
    says(&asks(Numa::Node(1), 0), NAME, Status::Ok, &["node 1"]);
    let both = pool(4096, |config| config.other_devices = vec![1]);
    says(&machine.report(&two_gpus(), &both), NAME, Status::Ok, &["spread over nodes 0, 1"]);
    says(&asks(Numa::Off, 0), NAME, Status::Ok, &["anywhere"]);
    let words = ["node 7, but the nodes with memory here are: 0, 1", "\"auto\""];
    says(&asks(Numa::Node(7), 0), NAME, Status::Problem, &words);
    let host = pool(4096, |config| config.backend = BackendChoice::Host);
    says(&machine.report(&two_gpus(), &host), NAME, Status::Ok, &["no device's node"]);
    machine.write("sys/devices/system/node/has_memory", "0\n");
    says(&asks(Numa::Auto, 0), NAME, Status::Ok, &["one node"]);
}

#[test]
fn devices_that_cannot_be_used_stop_the_pool_that_needs_them() {
    let machine = bare_metal();
    let cuda = |device| {
        pool(4096, |config| {
            config.backend = BackendChoice::Cuda;
            config.device = device;
        })
    };
    let prohibited = Gpu { compute_mode: ComputeMode::Prohibited, ..gpu(0, "0000:17:00.0") };
    let exclusive = Gpu { compute_mode: ComputeMode::ExclusiveProcess, ..gpu(1, "0000:9a:00.0") };
    let both = driver(vec![prohibited, exclusive]);
    let report = machine.report(&both, &cuda(0));
    says(&report, "device 0 compute mode", Status::Problem, &["prohibited", "nvidia-smi -i 0"]);
    says(&report, "device 1 compute mode", Status::Warning, &["exclusive"]);
    let report = machine.report(&both, &cuda(1));
    says(&report, "device 0 compute mode", Status::Warning, &["prohibited"]);
    let report = machine.report(&two_gpus(), &cuda(7));
    says(&report, "device 7", Status::Problem, &["0 to 1", "PINPOOL_DEVICE"]);
    let report = machine.report(&two_gpus(), &pool(4096, |config| config.device = 7));
    says(&report, "device 7", Status::Warning, &["host memory"]);
    // One of several devices is enough.
    let several = pool(4096, |config| {
        (config.backend, config.other_devices) = (BackendChoice::Cuda, vec![1, 8]);
    });
    says(&machine.report(&two_gpus(), &several), "device 8", Status::Problem, &["0 to 1"]);
    let silent = Gpu { fault: Some("device 0 does not answer".into()), ..gpu(0, "0000:17:00.0") };
    let report = machine.report(&driver(vec![silent]), &cuda(0));
    says(&report, "device 0", Status::Problem, &["does not answer", "Xid"]);
    let staged = Gpu { can_register: false, ..gpu(0, "0000:17:00.0") };
    let report = machine.report(&driver(vec![staged]), &cuda(0));
    says(&report, "device 0 registration", Status::Warning, &["the driver allocates"]);
}

#[test]
fn the_verdict_names_the_problems() {
    let machine = bare_metal();
    let request = pool(4096, |config| config.backend = BackendChoice::Cuda);
    let report = machine.report(&no_driver(), &request);
    let verdict = verdict(&report, &request);
    assert!(verdict.contains("cannot open here: 2 problems (CUDA driver, backend)"), "{verdict}");
    let request = any();
    let good = super::verdict(&machine.report(&two_gpus(), &request), &request);
    assert!(good.starts_with("a pool of the default kind can open here: no problem"), "{good}");
}

const NVRM: &str = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023\n\
                    GCC version:  gcc version 12.3.0\n";
