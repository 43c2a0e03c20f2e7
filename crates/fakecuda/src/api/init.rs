//! Initialisation, errors, versions and devices.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use super::find_export;
use crate::abi::{Out, Text, TextOut, driver_api};
use crate::codes::{self, CuResult};
use crate::exit;
use crate::state::State;

/// The CUDA version that the library claims (13.0).
const VERSION: c_int = 13_000;
/// The PCI domain of the devices. No machine has it, so nothing under `/sys` matches by accident.
const PCI_DOMAIN: c_int = 0xfa4e;

driver_api! {
    /// Fails as `FAKECUDA_NO_DEVICE` and `FAKECUDA_STUB` say.
    fn cuInit[Nothing](call, flags: c_uint) {
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        if call.state.config.init != codes::SUCCESS {
            return Err(call.state.config.init);
        }
        call.state.initialised = true;
        exit::watch(&call.state);
        Ok(())
    }

    fn cuDriverGetVersion[Nothing](_call, version: Out<c_int>) {
        version.set(VERSION)
    }

    fn cuGetErrorName[Nothing](_call, code: CuResult, name: Out<*const c_char>) {
        let found = codes::describe(code);
        name.set(found.map_or(std::ptr::null(), |(name, _)| name))?;
        found.map(|_| ()).ok_or(codes::INVALID_VALUE)
    }

    fn cuGetErrorString[Nothing](_call, code: CuResult, text: Out<*const c_char>) {
        let found = codes::describe(code);
        text.set(found.map_or(std::ptr::null(), |(_, text)| text))?;
        found.map(|_| ()).ok_or(codes::INVALID_VALUE)
    }

    /// Knows the unversioned names, and answers with the newest version of each.
    fn cuGetProcAddress_v2[Nothing](
        _call,
        symbol: Text,
        function: Out<*mut c_void>,
        _version: c_int,
        _flags: c_ulonglong,
        status: Out<c_int>,
    ) {
        /// `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
        const NOT_FOUND: c_int = 1;
        let name = symbol.get()?;
        let versions = ["_v3", "_v2", ""].map(|tail| format!("{name}{tail}"));
        let found = versions.iter().find_map(|name| find_export(name));
        status.set_if_wanted(if found.is_some() { 0 } else { NOT_FOUND });
        function.set(found.map_or(std::ptr::null_mut(), |at| at.cast_mut().cast()))?;
        found.map(|_| ()).ok_or(codes::NOT_FOUND)
    }

    fn cuDeviceGetCount[Init](call, count: Out<c_int>) {
        count.set(call.state.config.devices)
    }

    fn cuDeviceGet[Init](call, device: Out<c_int>, ordinal: c_int) {
        device.set(call.state.device(ordinal)?)
    }

    fn cuDeviceGetName[Init](call, name: TextOut, room: c_int, device: c_int) {
        let device = call.state.device(device)?;
        name.set(room, &format!("Fake CUDA device {device}"))
    }

    fn cuDeviceGetUuid[Init](call, uuid: Out<[u8; 16]>, device: c_int) {
        uuid.set(device_uuid(call.state.device(device)?))
    }

    fn cuDeviceGetUuid_v2[Init](call, uuid: Out<[u8; 16]>, device: c_int) {
        uuid.set(device_uuid(call.state.device(device)?))
    }

    fn cuDeviceTotalMem_v2[Init](call, bytes: Out<usize>, device: c_int) {
        call.state.device(device)?;
        bytes.set(usize::try_from(call.state.config.memory_bytes).unwrap_or(usize::MAX))
    }

    fn cuDeviceGetAttribute[Init](call, value: Out<c_int>, attribute: c_int, device: c_int) {
        let device = call.state.device(device)?;
        value.set(device_attribute(&call.state, attribute, device).ok_or(codes::INVALID_VALUE)?)
    }

    fn cuDeviceGetPCIBusId[Init](call, id: TextOut, room: c_int, device: c_int) {
        id.set(room, &pci_id(call.state.device(device)?))
    }

    fn cuDeviceGetByPCIBusId[Init](call, device: Out<c_int>, id: Text) {
        let id = id.get()?;
        let named = |device: &c_int| pci_id(*device).eq_ignore_ascii_case(id);
        let found = (0..call.state.config.devices).find(named);
        device.set(found.ok_or(codes::INVALID_DEVICE)?)
    }

    fn cuDeviceCanAccessPeer[Init](call, can: Out<c_int>, device: c_int, peer: c_int) {
        call.state.device(device)?;
        call.state.device(peer)?;
        can.set(c_int::from(device != peer))
    }
}

fn pci_id(device: i32) -> String {
    format!("{PCI_DOMAIN:04x}:{:02x}:00.0", device + 1)
}

fn device_uuid(device: i32) -> [u8; 16] {
    let mut uuid = *b"fakecuda-device-";
    uuid[15] = device.to_le_bytes()[0];
    uuid
}

/// The attributes that callers of memory and streams ask for; others are 0, unknown ones `None`.
fn device_attribute(state: &State, attribute: c_int, device: i32) -> Option<c_int> {
    /// The numbers in use by the driver interface.
    const KNOWN: std::ops::RangeInclusive<c_int> = 1..=150;
    let value = match attribute {
        // Maximum threads per block, warp size, multiprocessors, compute capability.
        1 => 1024,
        10 => 32,
        16 => 132,
        75 => 9,
        // Overlap of copies with work, mapped host memory, concurrent work, unified addressing,
        // stream priorities.
        15 | 19 | 31 | 41 | 78 => 1,
        20 => state.config.compute_mode,
        // Asynchronous copy engines.
        40 => 2,
        33 => device + 1,
        34 | 76 => 0,
        50 => PCI_DOMAIN,
        // Host addresses serve as device addresses; host registration; memory pools.
        91 | 99 => c_int::from(state.config.register_supported),
        115 => c_int::from(state.config.async_alloc_supported),
        // The NUMA node beside the device is unknown.
        134 => -1,
        other if KNOWN.contains(&other) => 0,
        _ => return None,
    };
    Some(value)
}
