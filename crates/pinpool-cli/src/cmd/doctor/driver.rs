//! The CUDA driver: the library of the user's side and the kernel's module.

use pinpool_bench::machine;

use super::devices::Gpu;
use super::report::{self, Line};
use super::request::Request;
use super::root::Root;
use super::surroundings::Surroundings;

/// What the probe found, in a form that tests can make up.
#[derive(Debug, Clone, Default)]
pub(super) struct Driver {
    /// Why there is none, if there is none.
    pub(super) missing: Option<String>,
    /// The CUDA version it serves, as major and minor.
    pub(super) cuda: (i32, i32),
    pub(super) gpus: Vec<Gpu>,
    /// `CUDA_VISIBLE_DEVICES`, where it is set.
    pub(super) visible: Option<String>,
}

impl Driver {
    /// Asks the driver of this process.
    pub(super) fn probe() -> Self {
        let visible = std::env::var_os("CUDA_VISIBLE_DEVICES");
        let visible = visible.map(|value| value.to_string_lossy().into_owned());
        match pinpool::cuda::probe() {
            Ok(info) => Self {
                missing: None,
                cuda: info.cuda_version,
                gpus: (0..)
                    .zip(info.devices)
                    .map(|(ordinal, info)| Gpu::new(ordinal, info))
                    .collect(),
                visible,
            },
            Err(reason) => Self { missing: Some(reason), visible, ..Self::default() },
        }
    }

    /// The device of a pool, if there is one of that number.
    pub(super) fn gpu(&self, ordinal: u32) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.ordinal == ordinal)
    }
}

pub(super) fn lines(
    root: &Root,
    driver: &Driver,
    around: &Surroundings,
    request: &Request,
) -> Vec<Line> {
    let mut lines = vec![library(root, driver, around, request), module(root, driver, around)];
    if let Some(visible) = &driver.visible {
        lines.push(Line::ok(
            "CUDA_VISIBLE_DEVICES",
            format!("'{visible}': the driver shows these devices only, counted from 0"),
        ));
    }
    lines
}

fn library(root: &Root, driver: &Driver, around: &Surroundings, request: &Request) -> Line {
    let name = "CUDA driver";
    let Some(reason) = &driver.missing else {
        let (major, minor) = driver.cuda;
        let count = report::counted(driver.gpus.len(), "device", "devices");
        return Line::ok(name, format!("serves CUDA {major}.{minor}, {count}"));
    };
    let value = format!("cannot be used: {reason}");
    if !request.may_use_cuda() {
        return Line::none(name, format!("{value}; this pool stands on host memory anyway"));
    }
    let stops = request.needs_cuda();
    let value = if stops {
        format!("{value}; backend is 'cuda', so no pool opens")
    } else {
        format!("{value}; pools work on host memory, which no GPU copies from without staging")
    };
    Line::problem_if(stops, name, value, remedy(root, reason, driver, around))
}

/// What helps against a driver that does not work, by what is known of the machine.
fn remedy(root: &Root, reason: &str, driver: &Driver, around: &Surroundings) -> String {
    let on_bus = gpus_on_bus(root);
    if reason.contains("SYSTEM_DRIVER_MISMATCH") {
        return "library and kernel module are of different versions: reboot, or load the module of \
                the installed version"
            .into();
    }
    if reason.contains("stub") {
        return "take the CUDA toolkit's `stubs` folder out of LD_LIBRARY_PATH".into();
    }
    if reason.contains("no device") && driver.visible.is_some() {
        return "CUDA_VISIBLE_DEVICES hides the devices: unset it, or name one that exists".into();
    }
    if around.wsl {
        return "install the NVIDIA driver in Windows, none in Linux, and keep /usr/lib/wsl/lib in \
                the loader's path"
            .into();
    }
    if around.container.is_some() {
        return "in a container give it the driver and the devices (`--gpus all`, or the NVIDIA \
                runtime); without a GPU nothing is to be done"
            .into();
    }
    if machine::nvidia_module(root.path()).is_some() {
        return "the kernel module is loaded: install the driver's library libcuda.so.1 of the same \
                version, and allow this user /dev/nvidia*"
            .into();
    }
    match on_bus {
        0 => "without a GPU nothing is to be done; with one install the NVIDIA driver".into(),
        count => format!("there are NVIDIA GPUs on the PCI bus ({count}): install the driver"),
    }
}

fn module(root: &Root, driver: &Driver, around: &Surroundings) -> Line {
    let name = "kernel module";
    if let Some(version) = machine::nvidia_module(root.path()) {
        return Line::ok(name, format!("nvidia {version}"));
    }
    if around.wsl {
        return Line::none(name, "the module is in Windows");
    }
    if driver.missing.is_some() {
        return Line::none(name, "nvidia is not loaded");
    }
    Line::none(name, "its version cannot be read here (/sys/module/nvidia, /proc/driver/nvidia)")
}

/// NVIDIA's display controllers that the PCI bus shows.
fn gpus_on_bus(root: &Root) -> usize {
    let devices = root.names("sys/bus/pci/devices");
    let is_gpu = |device: &&String| {
        let read = |file: &str| root.read(&format!("sys/bus/pci/devices/{device}/{file}"));
        read("vendor").as_deref() == Some("0x10de")
            && read("class").is_some_and(|class| class.starts_with("0x03"))
    };
    devices.iter().filter(is_gpu).count()
}
