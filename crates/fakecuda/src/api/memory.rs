//! Device allocations, pinned host memory, and questions about addresses.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::{Handle, known_flags};
use crate::abi::{AnyOut, Call, Out, Res, driver_api};
use crate::codes;
use crate::device_memory::is_device_address;
use crate::host_memory::{self, DEVICE_MAP, PORTABLE, Region};
use crate::state::drain_until;

/// `CU_MEMHOSTALLOC_WRITECOMBINED`.
const WRITE_COMBINED: u32 = 4;
/// `CU_MEMHOSTREGISTER_IOMEMORY` and `_READ_ONLY`, which the pretended device has not.
const UNSUPPORTED: u32 = 4 | 8;

driver_api! {
    fn cuMemGetInfo_v2[Context](call, free: Out<usize>, total: Out<usize>) {
        let device = context_device(call)?;
        let all = call.state.config.memory_bytes;
        let left = all - call.state.device.used_bytes(device).min(all);
        free.set(usize::try_from(left).unwrap_or(usize::MAX))?;
        total.set(usize::try_from(all).unwrap_or(usize::MAX))
    }

    fn cuMemAlloc_v2[Context](call, address: Out<u64>, bytes: usize) {
        call.state.refuse_during_capture()?;
        if bytes == 0 {
            return Err(codes::INVALID_VALUE);
        }
        let context = call.current()?;
        let device = context_device(call)?;
        let capacity = call.state.config.memory_bytes;
        address.set(call.state.device.allocate(device, context, bytes, capacity)?)
    }

    fn cuMemFree_v2[Context](call, address: u64) {
        call.state.refuse_during_capture()?;
        call.free_device(address)
    }

    /// The memory belongs to the stream's context and can be used at once by everyone: stricter
    /// callers order themselves with events.
    fn cuMemAllocAsync[Context](call, address: Out<u64>, bytes: usize, stream: Handle) {
        if !call.state.config.async_alloc_supported {
            return Err(codes::NOT_SUPPORTED);
        }
        let id = call.state.stream(stream, call.context)?;
        call.state.refuse_if_capturing(id)?;
        if bytes == 0 {
            return address.set(0);
        }
        let context = call.state.stream_ref(id)?.context;
        let device = call.state.contexts.get(&context).ok_or(codes::INVALID_CONTEXT)?.device;
        let capacity = call.state.config.memory_bytes;
        address.set(call.state.device.allocate(device, context, bytes, capacity)?)
    }

    fn cuMemFreeAsync[Context](call, address: u64, stream: Handle) {
        call.free_device_on(address, stream)
    }

    fn cuMemGetAddressRange_v2[Context](call, base: Out<u64>, bytes: Out<usize>, address: u64) {
        let (start, len) = match call.state.device.holding(address) {
            Some((start, allocation)) => (start, allocation.len),
            None => host_range(call, address).ok_or(codes::NOT_FOUND)?,
        };
        base.set_if_wanted(start);
        bytes.set_if_wanted(len);
        Ok(())
    }

    fn cuMemHostAlloc[Context](call, pointer: Out<*mut c_void>, bytes: usize, flags: c_uint) {
        host_alloc(call, &pointer, bytes, flags)
    }

    fn cuMemAllocHost_v2[Context](call, pointer: Out<*mut c_void>, bytes: usize) {
        host_alloc(call, &pointer, bytes, 0)
    }

    fn cuMemFreeHost[Context](call, pointer: *mut c_void) {
        call.state.refuse_during_capture()?;
        let base = pointer.expose_provenance();
        let region = call.state.host.at(base).filter(|region| region.allocated);
        let len = region.ok_or(codes::INVALID_VALUE)?.len;
        quiesce(call, base, len, "freed")?;
        let gone = call.state.host.remove(base).ok_or(codes::INVALID_VALUE)?;
        host_memory::unmap(base, gone.len);
        Ok(())
    }

    fn cuMemHostRegister_v2[Context](call, pointer: *mut c_void, bytes: usize, flags: c_uint) {
        call.state.refuse_during_capture()?;
        if !call.state.config.register_supported {
            return Err(codes::NOT_SUPPORTED);
        }
        let flags = known_flags(flags, PORTABLE | DEVICE_MAP | UNSUPPORTED)?;
        if flags & UNSUPPORTED != 0 {
            return Err(codes::NOT_SUPPORTED);
        }
        let base = pointer.expose_provenance();
        if bytes == 0 || !host_memory::is_mapped(base, bytes) {
            return Err(codes::INVALID_VALUE);
        }
        check_limits(call, bytes)?;
        let context = call.current()?;
        call.state.host.insert(base, Region { len: bytes, flags, context, allocated: false })
    }

    fn cuMemHostUnregister[Context](call, pointer: *mut c_void) {
        call.state.refuse_during_capture()?;
        let base = pointer.expose_provenance();
        let region = call.state.host.at(base).filter(|region| !region.allocated);
        let len = region.ok_or(codes::HOST_MEMORY_NOT_REGISTERED)?.len;
        if !host_memory::is_mapped(base, len) {
            let what = format!("{len} host bytes at {base:#x} were unmapped before unregistering");
            call.state.violation(&what);
        }
        quiesce(call, base, len, "unregistered")?;
        call.state.host.remove(base).ok_or(codes::HOST_MEMORY_NOT_REGISTERED)?;
        Ok(())
    }

    /// With unified addressing the device address is the host address.
    fn cuMemHostGetDevicePointer_v2[Context](
        call,
        address: Out<u64>,
        pointer: *mut c_void,
        flags: c_uint,
    ) {
        known_flags(flags, 0)?;
        let at = pointer.expose_provenance();
        call.state.host.holding(at).ok_or(codes::INVALID_VALUE)?;
        address.set(at as u64)
    }

    fn cuMemHostGetFlags[Context](call, flags: Out<c_uint>, pointer: *mut c_void) {
        let holding = call.state.host.holding(pointer.expose_provenance());
        let (_, region) = holding.ok_or(codes::INVALID_VALUE)?;
        flags.set(region.flags | DEVICE_MAP)
    }

    fn cuPointerGetAttribute[Work](call, value: AnyOut, attribute: c_int, address: u64) {
        let pointed = Pointed::find(call, address).ok_or(codes::INVALID_VALUE)?;
        pointed.answer(attribute, address, value)
    }

    /// Unknown addresses are not an error here: every answer is zero.
    fn cuPointerGetAttributes[Work](
        call,
        count: c_uint,
        attributes: Out<c_int>,
        values: Out<AnyOut>,
        address: u64,
    ) {
        let pointed = Pointed::find(call, address);
        for index in 0..count as usize {
            let (attribute, value) =
                (attributes.element(index).get()?, values.element(index).get()?);
            match &pointed {
                Some(pointed) => pointed.answer(attribute, address, value)?,
                None => Pointed::default().answer(attribute, 0, value)?,
            }
        }
        Ok(())
    }
}

fn context_device(call: &Call) -> Res<c_int> {
    let context = call.state.contexts.get(&call.current()?);
    Ok(context.ok_or(codes::INVALID_CONTEXT)?.device)
}

fn host_range(call: &Call, address: u64) -> Option<(u64, usize)> {
    let (base, region) = call.state.host.holding(usize::try_from(address).ok()?)?;
    Some((base as u64, region.len))
}

fn check_limits(call: &Call, bytes: usize) -> Res {
    if bytes as u64 > call.state.config.pin_max {
        return Err(codes::INVALID_VALUE);
    }
    let after = call.state.host.pinned_bytes().saturating_add(bytes as u64);
    if after > call.state.config.pin_limit { Err(codes::OUT_OF_MEMORY) } else { Ok(()) }
}

fn host_alloc(call: &mut Call, pointer: &Out<*mut c_void>, bytes: usize, flags: c_uint) -> Res {
    call.state.refuse_during_capture()?;
    let flags = known_flags(flags, PORTABLE | DEVICE_MAP | WRITE_COMBINED)?;
    if bytes == 0 {
        return Err(codes::INVALID_VALUE);
    }
    check_limits(call, bytes)?;
    let context = call.current()?;
    let base = host_memory::map(bytes).ok_or(codes::OUT_OF_MEMORY)?;
    let region = Region { len: bytes, flags, context, allocated: true };
    call.state
        .host
        .insert(base, region)
        .and_then(|()| pointer.set(std::ptr::with_exposed_provenance_mut(base)))
        .inspect_err(|_| {
            call.state.host.remove(base);
            host_memory::unmap(base, bytes);
        })
}

/// The check that this library exists for: no queued copy may need memory that is taken away.
///
/// A violation is counted and said; then the copy is let finish, so that the process lives on and
/// the test can report.
fn quiesce(call: &mut Call, base: usize, len: usize, verb: &str) -> Res {
    let range = base..base + len;
    if !call.state.host_in_use(&range) {
        return Ok(());
    }
    let what = format!("{len} host bytes at {base:#x} were {verb} under a queued copy");
    call.state.violation(&what);
    drain_until(&mut call.state, |state| !state.host_in_use(&range))
}

/// What is known about an address.
#[derive(Default)]
struct Pointed {
    context: usize,
    device: c_int,
    /// `CU_MEMORYTYPE_HOST` or `CU_MEMORYTYPE_DEVICE`.
    memory_type: c_uint,
    start: u64,
    len: usize,
}

impl Pointed {
    fn find(call: &Call, address: u64) -> Option<Self> {
        if is_device_address(address) {
            let (start, found) = call.state.device.holding(address)?;
            let (context, device, len) = (found.context, found.device, found.len);
            return Some(Self { context, device, memory_type: 2, start, len });
        }
        let (base, region) = call.state.host.holding(usize::try_from(address).ok()?)?;
        let device = call.state.contexts.get(&region.context).map_or(0, |one| one.device);
        let (context, start, len) = (region.context, base as u64, region.len);
        Some(Self { context, device, memory_type: 1, start, len })
    }

    fn answer(&self, attribute: c_int, address: u64, value: AnyOut) -> Res {
        let host = self.memory_type == 1;
        match attribute {
            1 => value.typed().set(self.context),
            2 => value.typed().set(self.memory_type),
            4 if self.memory_type == 2 => Err(codes::INVALID_VALUE),
            3 | 4 => value.typed().set(address),
            // The first address is unique to an allocation for the life of the process, or is that
            // of the registration.
            7 => value.typed::<c_ulonglong>().set(self.start),
            8 => value.typed().set(0_u8),
            9 => value.typed().set(self.device),
            11 => value.typed().set(self.start),
            12 => value.typed().set(self.len),
            13 => value.typed().set(u8::from(host || self.memory_type == 2)),
            _ => Err(codes::NOT_SUPPORTED),
        }
    }
}
