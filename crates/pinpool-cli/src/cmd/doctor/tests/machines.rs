//! What is said of each kind of machine.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

#[test]
fn a_process_that_is_bound_away_from_a_device_is_told_so() {
    let machine = bare_metal();
    let bound = |processors: &str, nodes: &str| {
        let status = BOUND_NOWHERE.replace("0-127", processors).replace("0-1\n", nodes);
        machine.write("proc/self/status", &status);
        machine.report(&two_gpus(), &any())
    };
    let node = |device: u32| format!("device {device} NUMA node");
    let report = bound("0-7", "0-1\n");
    says(&report, &node(0), Status::Ok, &["node 0, processors 0-31,64-95", "may run"]);
    let words = ["node 1", "bound to processors 0-7", "numactl --cpunodebind=1"];
    says(&report, &node(1), Status::Warning, &words);
    let report = bound("0-127", "1\n");
    says(&report, &node(0), Status::Warning, &["may not have memory there", "cpuset"]);
    says(&report, &node(1), Status::Ok, &["node 1"]);
    // One node, or a virtual machine.
    machine.write("sys/bus/pci/devices/0000:17:00.0/numa_node", "-1\n");
    let report = machine.report(&two_gpus(), &any());
    says(&report, &node(0), Status::NotApplicable, &["does not tell"]);
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
