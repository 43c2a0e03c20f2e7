//! Machines laid out as files: what the report says of each, without a driver and without a trial.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed unwrap is a failed test")]

mod machines;
mod pools;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use pinpool::cuda::ComputeMode;
use pinpool::limits::Memlock;
use pinpool::{ClassConfig, Plan, PoolConfig};

use super::devices::Gpu;
use super::report::Line;
use super::*;

/// A machine in a folder.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(files: &[(&str, &str)]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            machine.write(path, text);
        }
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
    for (address, node) in [("0000:17:00.0", "0\n"), ("0000:9a:00.0", "1\n")] {
        machine.write(&format!("sys/bus/pci/devices/{address}/numa_node"), node);
    }
    machine.write("sys/devices/system/node/node0/cpulist", "0-31,64-95\n");
    machine.write("sys/devices/system/node/node1/cpulist", "32-63,96-127\n");
    machine.write("proc/self/status", BOUND_NOWHERE);
    machine
}

const BOUND_NOWHERE: &str = "Name:\tpinpool\nCpus_allowed_list:\t0-127\nMems_allowed_list:\t0-1\n";

fn two_gpus() -> Driver {
    // As drivers write them: in capitals, and with a long domain.
    driver(vec![gpu(0, "0000:17:00.0"), gpu(1, "00000000:9A:00.0")])
}
