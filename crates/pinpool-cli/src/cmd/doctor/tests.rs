//! Machines laid out as files: what the report says of each, without a driver and without a trial.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use pinpool::cuda::ComputeMode;
use pinpool::limits::{KeepFree, Memlock};
use pinpool::{BackendChoice, ClassConfig, LockMode, OnEmpty, Plan, PoolConfig};

use super::devices::Gpu;
use super::report::Line;
use super::*;

/// A machine in a folder.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(files: &[(&str, &str)]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(path, text)| machine.write(path, text));
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn root(&self) -> Root {
        Root::new(self.path())
    }

    /// A GPU below a port, as the kernel lays out the bus: links to the tree of devices.
    fn add_gpu(&self, address: &str, port: [&str; 2], device: [&str; 2], now: [&str; 2]) {
        let bridge = format!("sys/devices/pci0000:00/port-of-{address}");
        let folder = format!("{bridge}/{address}");
        let links = [(&bridge, "max", port), (&folder, "max", device), (&folder, "current", now)];
        for (folder, which, [speed, width]) in links {
            self.write(&format!("{folder}/{which}_link_speed"), &format!("{speed}\n"));
            self.write(&format!("{folder}/{which}_link_width"), &format!("{width}\n"));
        }
        self.write(&format!("{folder}/vendor"), "0x10de\n");
        self.write(&format!("{folder}/class"), "0x030200\n");
        let bus = self.path().join("sys/bus/pci/devices");
        fs::create_dir_all(&bus).unwrap();
        let target = format!("../../../devices/pci0000:00/port-of-{address}/{address}");
        symlink(target, bus.join(address)).unwrap();
    }

    fn report(&self, driver: &Driver, request: &Request) -> Report {
        self.report_with(driver, request, None)
    }

    fn report_with(&self, driver: &Driver, request: &Request, memlock: Option<u64>) -> Report {
        let mut facts = Facts::read(&self.root());
        // Whoever runs the tests may be anybody.
        facts.set_memlock(Memlock { soft: memlock, hard: memlock });
        examine(&self.root(), &facts, driver, request, None)
    }
}

/// The line of a name, which must be there once.
fn line<'a>(report: &'a Report, name: &str) -> &'a Line {
    let lines: Vec<_> = report.all().filter(|line| line.name == name).collect();
    assert_eq!(lines.len(), 1, "{name} in\n{}", report.to_text());
    lines[0]
}

/// Asserts a line's status and words of its value and remedy.
fn says(report: &Report, name: &str, status: Status, words: &[&str]) {
    let line = line(report, name);
    let text = format!("{} {}", line.value, line.remedy.as_deref().unwrap_or_default());
    assert_eq!(line.status, status, "{name}: {text}");
    for word in words {
        assert!(text.contains(word), "{word} is missing in {name}: {text}");
    }
}

fn gpu(ordinal: u32, address: &str) -> Gpu {
    Gpu {
        ordinal,
        name: "Test GPU".into(),
        memory_bytes: 80 << 30,
        pci_address: Some(address.into()),
        can_register: true,
        compute_mode: ComputeMode::Shared,
        fault: None,
    }
}

fn driver(gpus: Vec<Gpu>) -> Driver {
    Driver { missing: None, cuda: (12, 8), gpus, visible: None }
}

fn no_driver() -> Driver {
    Driver {
        missing: Some("no driver library libcuda.so.1: no such file".into()),
        ..Driver::default()
    }
}

/// A pool of any classes.
fn any() -> Request {
    Request::of(PoolConfig::default(), None)
}

/// A pool of one class.
fn pool(bytes: usize, change: impl FnOnce(&mut PoolConfig)) -> Request {
    let mut config = PoolConfig::default();
    config.classes = vec![ClassConfig::new("frame", bytes, 1)];
    change(&mut config);
    let plan = Plan::new(config).unwrap();
    Request::of(plan.config.clone(), Some(plan))
}

const GEN4: [&str; 2] = ["16.0 GT/s PCIe", "16"];
const GEN5: [&str; 2] = ["32.0 GT/s PCIe", "16"];
const MEMINFO: &str = "MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 50331648 kB\n\
                       CommitLimit: 8388608 kB\nCommitted_AS: 4194304 kB\n";
const CALM: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

/// A server without a hypervisor, with two GPUs.
fn bare_metal() -> Machine {
    let machine = Machine::new(&[
        ("proc/version", "Linux version 6.8.0\n"),
        ("proc/sys/kernel/osrelease", "6.8.0-45-generic\n"),
        ("proc/sys/vm/overcommit_memory", "0\n"),
        ("proc/cpuinfo", "processor: 0\nflags\t\t: fpu sse2\n"),
        ("proc/cmdline", "quiet intel_iommu=on\n"),
        ("proc/meminfo", MEMINFO),
        ("proc/pressure/memory", CALM),
        ("sys/class/dmi/id/sys_vendor", "Example\n"),
        ("sys/class/dmi/id/product_name", "Server 1\n"),
        ("sys/module/nvidia/version", "550.54.15\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        (
            "sys/kernel/mm/transparent_hugepage/defrag",
            "always defer defer+madvise [madvise] never\n",
        ),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "20\n"),
    ]);
    machine.add_gpu("0000:17:00.0", GEN5, GEN5, GEN5);
    machine.add_gpu("0000:9a:00.0", GEN5, GEN5, GEN5);
    machine
}

fn two_gpus() -> Driver {
    // As drivers write them: in capitals, and with a long domain.
    driver(vec![gpu(0, "0000:17:00.0"), gpu(1, "00000000:9A:00.0")])
}

#[test]
fn a_good_machine_has_no_warning_and_a_line_for_each_device() {
    let machine = bare_metal();
    let report = machine.report(&two_gpus(), &any());
    assert!(report.names(Status::Problem).is_empty(), "{}", report.to_text());
    // membarrier is asked of this machine, whatever it is.
    let warned: Vec<_> =
        report.names(Status::Warning).into_iter().filter(|name| *name != "membarrier").collect();
    assert!(warned.is_empty(), "{}", report.to_text());
    says(&report, "CUDA driver", Status::Ok, &["CUDA 12.8", "2 devices"]);
    says(&report, "kernel module", Status::Ok, &["550.54.15"]);
    for device in ["device 0", "device 1"] {
        says(&report, device, Status::Ok, &["Test GPU", "80 GiB"]);
        says(&report, &format!("{device} compute mode"), Status::Ok, &["default"]);
        says(&report, &format!("{device} registration"), Status::Ok, &["can be registered"]);
        says(&report, &format!("{device} link"), Status::Ok, &["32 GT/s x16 (63.0 GB/s)"]);
    }
    says(&report, "available memory", Status::Ok, &["48 GiB of 64 GiB"]);
    says(&report, "huge pages of 2 MiB", Status::Ok, &["512 set aside", "500 free", "20 of"]);
    says(&report, "virtual machine", Status::NotApplicable, &["none", "Example Server 1"]);
    says(&report, "container", Status::NotApplicable, &["none"]);
    says(&report, "first touch", Status::NotApplicable, &["no virtual machine"]);
    says(&report, "IOMMU", Status::NotApplicable, &["none", "intel_iommu=on"]);
    assert!(report.to_text().lines().all(|row| row.chars().count() <= report::WIDTH));
}

#[test]
fn links_that_are_below_their_best_are_told_from_those_that_idle() {
    let machine = Machine::new(&[]);
    machine.add_gpu("0000:01:00.0", GEN5, GEN5, ["2.5 GT/s PCIe", "16"]);
    machine.add_gpu("0000:02:00.0", GEN5, GEN5, ["32.0 GT/s PCIe", "8"]);
    machine.add_gpu("0000:03:00.0", GEN4, GEN5, GEN4);
    machine.add_gpu("0000:04:00.0", GEN5, GEN5, ["Unknown", "63"]);
    machine.add_gpu("0000:05:00.0", ["Unknown", "255"], GEN4, GEN4);
    let gpus = (0..).zip(["01", "02", "03", "04", "05", "06"]);
    let gpus = gpus.map(|(ordinal, bus)| gpu(ordinal, &format!("0000:{bus}:00.0"))).collect();
    let mut driver = driver(gpus);
    driver.gpus.push(Gpu { pci_address: None, ..gpu(6, "") });
    let report = machine.report(&driver, &any());
    let link = |device: u32| format!("device {device} link");
    says(&report, &link(0), Status::Warning, &["2.5 GT/s x16 (4.0 GB/s)", "idle", "bench copy"]);
    says(&report, &link(1), Status::Warning, &["x8 (31.5 GB/s)", "does not change", "16 lanes"]);
    says(&report, &link(2), Status::Warning, &["its slot 16 GT/s x16", "own generation"]);
    says(&report, &link(3), Status::NotApplicable, &["does not tell", "virtual"]);
    says(&report, &link(4), Status::Ok, &["16 GT/s x16 (31.5 GB/s)"]);
    says(&report, &link(5), Status::NotApplicable, &["sysfs does not show"]);
    says(&report, &link(6), Status::NotApplicable, &["no PCI address"]);
    // After copies the same speed has no excuse.
    let busy = link::line(&machine.root(), &driver.gpus[0], true);
    assert!(busy.remedy.unwrap().contains("not idling"));
}

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

const NVRM: &str = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023\n\
                    GCC version:  gcc version 12.3.0\n";

#[test]
fn wsl_and_virtual_machines_are_named_with_what_they_do_to_memory() {
    let machine = Machine::new(&[
        ("proc/version", "Linux version 5.15.90.1-microsoft-standard-WSL2 (oe-user@oe-host)\n"),
        ("proc/sys/kernel/osrelease", "5.15.90.1-microsoft-standard-WSL2\n"),
        ("proc/cpuinfo", "flags : fpu hypervisor sse2\n"),
    ]);
    let report = machine.report(&driver(vec![gpu(0, "0000:01:00.0")]), &any());
    says(&report, "WSL", Status::Warning, &["Windows lets less memory be pinned", "max_pinned"]);
    says(&report, "virtual machine", Status::Ok, &["yes"]);
    says(&report, "first touch", Status::Ok, &["slow"]);
    says(&report, "kernel", Status::Ok, &["5.15.90.1-microsoft"]);
    says(&report, "kernel module", Status::NotApplicable, &["in Windows"]);
    says(&report, "available memory", Status::NotApplicable, &["does not tell"]);
    machine.write("sys/bus/virtio/drivers/virtio_balloon/virtio4", "");
    says(&machine.report(&no_driver(), &any()), "first touch", Status::Warning, &["balloon"]);
}

#[test]
fn containers_are_known_by_their_marks_and_show_their_limit() {
    for (file, text, kind) in [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("run/systemd/container", "lxc\n", "lxc"),
        ("proc/1/cgroup", "0::/kubepods.slice/kubepods-pod7.slice\n", "kubepods"),
    ] {
        let machine = Machine::new(&[(file, text)]);
        says(&machine.report(&no_driver(), &any()), "container", Status::Ok, &[kind]);
    }
    let machine = Machine::new(&[
        ("proc/self/cgroup", "0::/\n"),
        ("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("proc/meminfo", MEMINFO),
        ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/memory.current", "209715200\n"),
        ("sys/fs/cgroup/memory.stat", "inactive_file 104857600\nactive_file 0\n"),
        (".dockerenv", ""),
    ]);
    let report = machine.report(&no_driver(), &any());
    let words = ["v2, memory.max 1 GiB", "200 MiB used", "100 MiB of that", "room for 924 MiB"];
    says(&report, "control group", Status::Ok, &words);
    machine.write("sys/fs/cgroup/memory.current", "1073741824\n");
    let report = machine.report(&no_driver(), &any());
    says(&report, "control group", Status::Warning, &["room for 100 MiB", "--memory"]);
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
    let words =
        ["memory.max", "'frame' takes 800 MiB", "`count = 9` fits, 10 does not", "--memory"];
    says(&report(&file(80, 10)), NAME, Status::Problem, &words);
    // The count that is named fits indeed, and one more does not.
    says(&report(&file(80, 9)), NAME, Status::Ok, &[]);
    let report_of_one = report(&file(900, 1));
    says(&report_of_one, NAME, Status::Problem, &["even `count = 1` does not fit", "lower `size`"]);
    let all = pool(900 << 20, |config| config.keep_free = KeepFree::Off);
    says(&report(&all), NAME, Status::Ok, &["no limit of the system is known"]);
    says(&report(&all), "least limit", Status::NotApplicable, &["keep_free"]);
    // Without a file nothing is said of one.
    let names: Vec<_> = report(&any()).all().map(|line| line.name.clone()).collect();
    assert!(!names.iter().any(|name| name == NAME || name == "backend"), "{names:?}");
    // The lock limit is less than the group's.
    let locked = machine.report_with(&no_driver(), &file(79, 10), Some(8 << 20));
    says(&locked, NAME, Status::Problem, &["RLIMIT_MEMLOCK leaves 8 MiB", "ulimit -l"]);
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
    let silent = Gpu { fault: Some("device 0 does not answer".into()), ..gpu(0, "0000:17:00.0") };
    let report = machine.report(&driver(vec![silent]), &cuda(0));
    says(&report, "device 0", Status::Problem, &["does not answer", "Xid"]);
    let staged = Gpu { can_register: false, ..gpu(0, "0000:17:00.0") };
    let report = machine.report(&driver(vec![staged]), &cuda(0));
    says(&report, "device 0 registration", Status::Warning, &["the driver allocates"]);
}

#[test]
fn settings_of_the_kernel_that_hurt_are_warned_of() {
    let machine = bare_metal();
    let changed = |path: &str, text: &str, name: &str, status, words: &[&str]| {
        let before = fs::read_to_string(machine.path().join(path)).unwrap();
        machine.write(path, text);
        says(&machine.report(&two_gpus(), &any()), name, status, words);
        machine.write(path, &before);
    };
    let thp = "sys/kernel/mm/transparent_hugepage";
    let warning = Status::Warning;
    let words = ["small pages", "echo madvise"];
    let never = "always madvise [never]\n";
    changed(&format!("{thp}/enabled"), never, "transparent huge pages", warning, &words);
    let never = "always defer defer+madvise madvise [never]\n";
    changed(&format!("{thp}/defrag"), never, "huge page defrag", warning, &["fragmented"]);
    let old = "5.4.0-150-generic\n";
    changed("proc/sys/kernel/osrelease", old, "kernel", warning, &["5.14", "MADV_POPULATE_WRITE"]);
    let busy = CALM.replace("some avg10=0.00", "some avg10=31.50");
    changed("proc/pressure/memory", &busy, "memory pressure", warning, &["31.5%"]);
    let full = MEMINFO.replace("MemAvailable: 50331648", "MemAvailable: 1024");
    changed("proc/meminfo", &full, "available memory", warning, &["1 MiB of 64 GiB"]);
    changed("proc/sys/vm/overcommit_memory", "2", "overcommit", warning, &["4 GiB left", "8 GiB"]);
    machine.write("proc/sys/vm/overcommit_memory", "2\n");
    let report = machine.report(&two_gpus(), &pool(5 << 30, |_| {}));
    says(&report, "overcommit", Status::Problem, &["the classes map 5 GiB", "overcommit_ratio"]);
}

#[test]
fn an_iommu_that_translates_for_a_gpu_is_warned_of() {
    let machine = bare_metal();
    machine.write("sys/kernel/iommu_groups/0/type", "DMA-FQ\n");
    machine.write("sys/kernel/iommu_groups/1/type", "identity\n");
    let group = |address: &str, number: u32| {
        let device = machine.path().join("sys/bus/pci/devices").join(address);
        symlink(
            machine.path().join(format!("sys/kernel/iommu_groups/{number}")),
            device.join("iommu_group"),
        )
        .unwrap();
    };
    group("0000:9a:00.0", 1);
    let report = machine.report(&two_gpus(), &any());
    says(&report, "IOMMU", Status::Ok, &["2 groups", "device 1: identity", "intel_iommu=on"]);
    group("0000:17:00.0", 0);
    let report = machine.report(&two_gpus(), &any());
    says(&report, "IOMMU", Status::Warning, &["device 0: DMA-FQ", "iommu=pt"]);
}

#[test]
fn every_warning_and_problem_has_a_remedy_and_nothing_else_has() {
    let machine = Machine::new(&[]);
    let many = [
        machine.report(&no_driver(), &any()),
        machine.report_with(&no_driver(), &pool(64 << 20, |_| {}), Some(0)),
        bare_metal().report(&two_gpus(), &pool(4096, |config| config.device = 9)),
    ];
    for line in many.iter().flat_map(Report::all) {
        let needs = matches!(line.status, Status::Warning | Status::Problem);
        assert_eq!(line.remedy.is_some(), needs, "{line:?}");
        assert!(!line.value.is_empty() && !line.name.is_empty(), "{line:?}");
    }
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
