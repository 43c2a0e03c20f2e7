//! The devices that the driver shows: whether a pool may use them, and how.

use pinpool::cuda::{ComputeMode, DeviceInfo};
use pinpool_bench::text;

use super::driver::Driver;
use super::report::Line;
use super::request::Request;

/// One device.
#[derive(Debug, Clone)]
pub(super) struct Gpu {
    /// Its number in the driver's order.
    pub(super) ordinal: u32,
    pub(super) name: String,
    pub(super) memory_bytes: u64,
    pub(super) pci_address: Option<String>,
    pub(super) can_register: bool,
    pub(super) compute_mode: ComputeMode,
    /// Why it does not answer, if it does not.
    pub(super) fault: Option<String>,
}

impl Gpu {
    pub(super) fn new(ordinal: u32, info: DeviceInfo) -> Self {
        Self {
            ordinal,
            name: info.name,
            memory_bytes: info.memory_bytes,
            pci_address: info.pci_address,
            can_register: info.can_register,
            compute_mode: info.compute_mode,
            fault: info.fault,
        }
    }
}

pub(super) fn lines(driver: &Driver, request: &Request) -> Vec<Line> {
    let mut lines: Vec<_> = driver.gpus.iter().flat_map(|gpu| of_one(gpu, request)).collect();
    if driver.gpus.is_empty() {
        lines.push(Line::none("devices", "none without a driver"));
    }
    let missing = request.devices().filter(|device| driver.gpu(*device).is_none());
    lines.extend(missing.filter_map(|device| missing_line(driver, request, device)));
    lines
}

/// A device that the pool would use is not there.
fn missing_line(driver: &Driver, request: &Request, wanted: u32) -> Option<Line> {
    let demanded = request.demands_device();
    if !demanded && (driver.missing.is_some() || !request.may_use_cuda()) {
        // Said by the driver's own line, or of no interest.
        return None;
    }
    let value = match driver.gpus.len() {
        0 => format!("device {wanted} does not exist: the driver shows none"),
        count => format!("device {wanted} does not exist: the driver shows 0 to {}", count - 1),
    };
    let stops = demanded || request.needs_cuda();
    let value = if stops { value } else { format!("{value}; the pool stands on host memory") };
    let remedy = "set `device` in [pool], PINPOOL_DEVICE or --device to one that exists; \
                  CUDA_VISIBLE_DEVICES may hide some";
    Some(Line::problem_if(stops, format!("device {wanted}"), value, remedy))
}

fn of_one(gpu: &Gpu, request: &Request) -> Vec<Line> {
    let name = format!("device {}", gpu.ordinal);
    let stops = request.needs_cuda() && request.device() == gpu.ordinal;
    if let Some(fault) = &gpu.fault {
        let remedy = "look for the device in `nvidia-smi` and the kernel's log (Xid), reset it, or use \
                      another one";
        return vec![Line::problem_if(stops, name, fault.as_str(), remedy)];
    }
    let address = gpu.pci_address.as_deref().unwrap_or("unknown");
    let memory = text::bytes(gpu.memory_bytes);
    vec![
        Line::ok(name, format!("{}, {memory}, PCI {address}", gpu.name)),
        compute_mode(gpu, stops),
        registration(gpu),
    ]
}

fn compute_mode(gpu: &Gpu, stops: bool) -> Line {
    let name = format!("device {} compute mode", gpu.ordinal);
    let remedy = format!("`nvidia-smi -i {} -c DEFAULT`, as root", gpu.ordinal);
    match gpu.compute_mode {
        ComputeMode::Shared => Line::ok(name, "default: any number of processes"),
        ComputeMode::Prohibited => {
            Line::problem_if(stops, name, "prohibited: no process may use the device", remedy)
        }
        ComputeMode::ExclusiveProcess => {
            let value = "exclusive: a second process is refused while one uses the device";
            Line::warning(name, value, remedy)
        }
        _ => Line::none(name, "the driver does not tell one that is known"),
    }
}

fn registration(gpu: &Gpu) -> Line {
    let name = format!("device {} registration", gpu.ordinal);
    if gpu.can_register {
        return Line::ok(name, "host memory can be registered");
    }
    Line::warning(
        name,
        "host memory cannot be registered: the driver allocates it, on one thread, without huge pages \
         or a choice of NUMA node",
        "none but another device or driver; pools work, and take longer to open",
    )
}
