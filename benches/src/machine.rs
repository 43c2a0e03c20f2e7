//! Describes the machine and the command of a run: enough to judge a figure, nothing that
//! identifies the host.

use std::fs;
use std::path::Path;

use pinpool::cudarc::driver::{CudaContext, sys};
use pinpool::limits::{Cgroup, MemInfo};
use serde::{Deserialize, Serialize};

use crate::text;

/// Where a result was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name as the kernel gives it.
    pub cpu: String,
    /// The cores this process may use.
    pub cores: u64,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// The first GPU, where there is a driver and a device.
    pub gpu: Option<Gpu>,
    /// How much memory this process may lock.
    pub memlock: Memlock,
    /// The kernel's setting for transparent huge pages.
    pub transparent_huge_pages: String,
}

/// The GPU that a result was measured with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The device's name.
    pub name: String,
    /// The version of the NVIDIA kernel driver, where the system tells.
    pub driver: String,
    /// The highest CUDA version the driver serves.
    pub cuda: String,
    /// Memory of the device.
    pub memory_bytes: u64,
}

/// `RLIMIT_MEMLOCK`, and whether it binds this process at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memlock {
    /// The soft limit in bytes; `None` is unlimited.
    pub soft_bytes: Option<u64>,
    /// The hard limit in bytes; `None` is unlimited.
    pub hard_bytes: Option<u64>,
    /// With `CAP_IPC_LOCK` the limit does not apply.
    pub cap_ipc_lock: bool,
}

impl Machine {
    /// Reads the description of this machine. What cannot be read is "unknown" or zero.
    pub fn describe() -> Self {
        Self {
            cpu: cpu_model(),
            cores: std::thread::available_parallelism().map_or(0, |n| n.get() as u64),
            memory_bytes: MemInfo::read().map_or(0, |memory| memory.total),
            kernel: kernel(),
            gpu: gpu(),
            memlock: memlock(),
            transparent_huge_pages: transparent_huge_pages(Path::new("/"), "enabled")
                .unwrap_or_else(|| "unknown".to_owned()),
        }
    }

    /// The machine in one line.
    pub fn summary(&self) -> String {
        let gpu = self.gpu.as_ref().map_or_else(
            || "no GPU".to_owned(),
            |gpu| format!("{} (driver {}, CUDA {})", gpu.name, gpu.driver, gpu.cuda),
        );
        format!(
            "{gpu}; {}, {} cores, {:.0} GiB; {}; memlock {}; THP {}",
            self.cpu,
            self.cores,
            self.memory_bytes as f64 / (1u64 << 30) as f64,
            self.kernel,
            self.memlock.summary(),
            self.transparent_huge_pages,
        )
    }
}

impl Memlock {
    /// The limit in a few words.
    pub fn summary(&self) -> String {
        let limit = self.soft_bytes.map_or_else(|| "unlimited".to_owned(), text::bytes);
        if self.cap_ipc_lock { format!("{limit} (CAP_IPC_LOCK)") } else { limit }
    }
}

/// The commit that this code was built from, or "unknown".
pub fn commit() -> String {
    env!("BENCH_SOURCE_COMMIT").to_owned()
}

/// The command line that was run, with folders cut off: only the file's name is of interest.
pub fn command_line(arguments: impl IntoIterator<Item = String>) -> String {
    let words = arguments.into_iter().map(|argument| {
        let (option, value) = match argument.split_once('=') {
            Some((option, value)) if option.starts_with('-') => (Some(option), value),
            _ => (None, argument.as_str()),
        };
        let value = value.rsplit('/').next().unwrap_or(value);
        let word = option.map_or_else(|| value.to_owned(), |option| format!("{option}={value}"));
        if word.contains(char::is_whitespace) { format!("'{word}'") } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The memory that a new allocation may take: what the kernel calls available, or less where a
/// cgroup allows less.
pub fn available_bytes() -> Option<u64> {
    let system = MemInfo::read().map(|memory| memory.available);
    let group = Cgroup::read().and_then(|group| group.limit).map(|limit| limit.room());
    system.into_iter().chain(group).min()
}

/// The version of NVIDIA's kernel module below a folder that stands for `/`; `None` where it is not
/// loaded or not shown.
pub fn nvidia_module(root: &Path) -> Option<String> {
    if let Ok(version) = fs::read_to_string(root.join("sys/module/nvidia/version")) {
        return Some(version.trim().to_owned());
    }
    // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024"
    let text = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let words = text.lines().next()?.split_whitespace();
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    words.into_iter().find(is_version).map(str::to_owned)
}

/// The choice in a file of the kernel's settings for transparent huge pages, below a folder that
/// stands for `/`; `None` where the kernel has none or does not tell.
pub fn transparent_huge_pages(root: &Path, file: &str) -> Option<String> {
    let path = root.join("sys/kernel/mm/transparent_hugepage").join(file);
    let setting = fs::read_to_string(path).ok()?;
    let (chosen, _) = setting.split_once('[')?.1.split_once(']')?;
    Some(chosen.to_owned())
}

/// Whether the system lets this process use the barrier that desks need.
pub fn has_membarrier() -> bool {
    rustix::thread::membarrier_query()
        .contains_command(rustix::thread::MembarrierCommand::RegisterPrivateExpedited)
}

/// The memory lock limits of this process.
pub fn memlock() -> Memlock {
    let limit = pinpool::Memlock::read();
    Memlock {
        soft_bytes: limit.soft,
        hard_bytes: limit.hard,
        cap_ipc_lock: pinpool::Memlock::is_exempt(),
    }
}

fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

fn kernel() -> String {
    // The node name, which `uname` gives too, would name the host.
    let name = rustix::system::uname();
    format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
}

fn gpu() -> Option<Gpu> {
    // Without a driver every call into cudarc panics: the probe comes first.
    pinpool::cuda::probe().ok()?;
    let context = CudaContext::new(0).ok()?;
    let mut version = 0;
    // SAFETY: the driver is loaded (the probe said so); it writes one integer to a live local.
    let _ = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    Some(Gpu {
        name: context.name().ok()?,
        driver: nvidia_module(Path::new("/")).unwrap_or_else(|| "unknown".to_owned()),
        cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
        memory_bytes: context.total_mem().map_or(0, |bytes| bytes as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_keeps_options_and_drops_folders() {
        let words = ["/opt/x/pinpool", "bench", "frames", "--json", "out/r.json", "--frames=9"];
        assert_eq!(
            command_line(words.map(str::to_owned)),
            "pinpool bench frames --json r.json --frames=9"
        );
        let words = ["pinpool", "--json=/home/me/a b.json", "-"];
        assert_eq!(command_line(words.map(str::to_owned)), "pinpool '--json=a b.json' -");
    }

    #[test]
    fn the_description_names_this_machine_without_identifying_it() {
        let machine = Machine::describe();
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{}", machine.kernel);
        let json = serde_json::to_string(&machine).unwrap_or_default();
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        assert!(host.len() < 4 || !json.contains(host.as_ref()), "{json}");
        assert!(!json.contains("/home"), "{json}");
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn the_memory_lock_limit_reads_well() {
        let limit =
            |soft_bytes, cap_ipc_lock| Memlock { soft_bytes, hard_bytes: None, cap_ipc_lock };
        assert_eq!(limit(Some(8 << 20), false).summary(), "8 MiB");
        assert_eq!(limit(None, true).summary(), "unlimited (CAP_IPC_LOCK)");
    }
}
