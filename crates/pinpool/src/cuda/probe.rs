//! Finds out whether a driver and a device are there, before anything that would panic without.

use std::ffi::CStr;
use std::sync::OnceLock;

use cudarc::driver::{result, sys};

use super::context::code;

/// The driver and its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverInfo {
    /// The CUDA version that the driver supports, as major and minor.
    pub cuda_version: (i32, i32),
    /// The devices, in the driver's order.
    pub devices: Vec<DeviceInfo>,
}

/// One CUDA device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Its PCI address, if the driver tells.
    pub pci_address: Option<String>,
    /// Whether host memory that exists already can be registered.
    pub can_register: bool,
    /// Which processes may use it.
    pub compute_mode: ComputeMode,
    /// Why the device does not answer, if it does not.
    pub fault: Option<String>,
}

/// Which processes may make a context on a device, as its administrator decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ComputeMode {
    /// Any number of processes.
    #[default]
    Shared,
    /// One process at a time: a second one is refused.
    ExclusiveProcess,
    /// None.
    Prohibited,
    /// The driver gives a number that this crate does not know, or none (a negative one).
    Other(i32),
}

impl ComputeMode {
    fn of(device: sys::CUdevice) -> Self {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE;
        // SAFETY: `device` is a device of the driver.
        match unsafe { result::device::get_attribute(device, attribute) } {
            Ok(0) => Self::Shared,
            Ok(2) => Self::Prohibited,
            Ok(3) => Self::ExclusiveProcess,
            Ok(other) => Self::Other(other),
            Err(_) => Self::Other(-1),
        }
    }
}

/// Looks for a driver and devices. No context is made.
///
/// # Errors
///
/// Why CUDA cannot be used, in words.
pub fn probe() -> Result<DriverInfo, String> {
    library()?;
    result::init().map_err(|error| match error.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => "the driver sees no device".to_owned(),
        sys::CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "libcuda.so.1 is the toolkit's stub, not a driver".to_owned()
        }
        // It answers so to nobody but a child of a process that has it.
        sys::CUresult::CUDA_ERROR_NOT_INITIALIZED => format!(
            "CUDA was initialised before this process was forked, and works in its parent only \
             ({}): fork before the first use of CUDA, or run another program (exec) in the child",
            code(error)
        ),
        _ => format!("the driver does not start: {}", code(error)),
    })?;
    let count = result::device::get_count()
        .map_err(|error| format!("the driver does not count its devices: {}", code(error)))?;
    if count <= 0 {
        return Err("the driver sees no device".into());
    }
    // One that does not answer must not hide the others.
    let devices = (0..count)
        .map(|ordinal| {
            device(ordinal).unwrap_or_else(|fault| DeviceInfo {
                name: "unknown".into(),
                memory_bytes: 0,
                pci_address: None,
                can_register: false,
                compute_mode: ComputeMode::Other(-1),
                fault: Some(fault),
            })
        })
        .collect();
    Ok(DriverInfo { cuda_version: version(), devices })
}

/// Loads the driver library, once and for ever, and looks for what this crate calls in it: cudarc
/// panics where a library or a symbol is missing.
fn library() -> Result<&'static libloading::Library, String> {
    static LIBRARY: OnceLock<Result<libloading::Library, String>> = OnceLock::new();
    let loaded = LIBRARY.get_or_init(|| {
        // In cudarc's order, so that the library checked is the one used.
        let library = open("libcuda.so").or_else(|_| open("libcuda.so.1"))?;
        for symbol in SYMBOLS {
            // SAFETY: the symbol is looked up, not called.
            let found = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) };
            found.map_err(|_| {
                format!(
                    "the library libcuda.so.1 lacks {symbol}: it is no driver, or too old a one"
                )
            })?;
        }
        Ok(library)
    });
    match loaded {
        Ok(library) => Ok(library),
        Err(reason) => Err(reason.clone()),
    }
}

/// A driver function that not every driver has, or that cudarc calls by another name.
///
/// # Safety
///
/// `F` is the function's type.
pub(super) unsafe fn function<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: the caller's duty; the library is never unloaded.
    let found = unsafe { library().ok()?.get::<F>(name.as_bytes()) };
    found.ok().map(|function| *function)
}

fn open(name: &str) -> Result<libloading::Library, String> {
    // SAFETY: the driver library's initialisers are run by every CUDA program.
    unsafe { libloading::Library::new(name) }
        .map_err(|error| format!("no driver library {name}: {}", reason(&error, name)))
}

/// The driver functions behind every call that this crate and cudarc's context and streams make.
const SYMBOLS: [&str; 30] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGraphLaunch",
    "cuInit",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemFreeHost",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuStreamIsCapturing",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuThreadExchangeStreamCaptureMode",
];

/// The loader's reason, in one line and without the name it begins with.
fn reason(error: &libloading::Error, name: &str) -> String {
    let text =
        std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix(name).map_or(line, |rest| rest.trim_start_matches([':', ' '])).to_owned()
}

fn version() -> (i32, i32) {
    let mut version = 0;
    // SAFETY: the driver is loaded, and writes one integer.
    let _ = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    (version / 1000, version % 1000 / 10)
}

fn device(ordinal: i32) -> Result<DeviceInfo, String> {
    let failed = |error| format!("device {ordinal} does not answer: {}", code(error));
    let device = result::device::get(ordinal).map_err(failed)?;
    // SAFETY: `device` is a device of the driver.
    let memory = unsafe { result::device::total_mem(device) }.map_err(failed)?;
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED;
    // SAFETY: as above.
    let can_register =
        unsafe { result::device::get_attribute(device, attribute) }.map_err(failed)?;
    Ok(DeviceInfo {
        name: result::device::get_name(device).map_err(failed)?,
        memory_bytes: memory as u64,
        pci_address: pci_address(device),
        can_register: can_register > 0,
        compute_mode: ComputeMode::of(device),
        fault: None,
    })
}

fn pci_address(device: sys::CUdevice) -> Option<String> {
    let mut buffer = [0i8; 32];
    // SAFETY: the buffer has the length that is passed.
    let answer = unsafe { sys::cuDeviceGetPCIBusId(buffer.as_mut_ptr(), 32, device) };
    answer.result().ok()?;
    let bytes = buffer.map(i8::cast_unsigned);
    Some(CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().into_owned())
}
