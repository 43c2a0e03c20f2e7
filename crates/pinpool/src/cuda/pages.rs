//! The cuda backend: the host backend's mappings, registered with the driver; where registration is
//! not supported, memory that the driver allocates.

use std::any::Any;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::num::NonZero;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::context::{Bound, Unrestricted, code, gone_is_done};
use super::event::EventPool;
use super::exit;
use super::probe::probe;
use crate::memory::mapping::{self, MapOptions};
use crate::memory::numa::NodeSet;
use crate::memory::{BackendKind, MemoryCause, MemoryError, MemoryStep, Obtained, PageLock};
use crate::memory::{PageTier, Pinned, Region, huge};
use crate::sync::Mutex;

/// Host memory that a CUDA device can copy from without staging and reach in place.
#[derive(Debug)]
pub struct CudaPages {
    /// Before the context, which must outlive them.
    events: EventPool,
    context: PrimaryContext,
    register: bool,
    /// Of all devices, in the driver's order, where it tells.
    pci_addresses: Vec<Option<String>>,
    options: MapOptions,
    /// Where memory for one device alone lies.
    near: Vec<(u32, NodeSet)>,
    /// Chunks that are registered although they could not be pinned: the driver did not take them back.
    kept: Mutex<Vec<NonZero<usize>>>,
}

/// A device's context whose release leaves the releasing thread's own context current.
#[derive(Debug)]
pub(crate) struct PrimaryContext(ManuallyDrop<Arc<CudaContext>>);

impl PrimaryContext {
    /// Retains it. The calling thread's own context stays current.
    pub(crate) fn of(device: u32) -> Result<Self, String> {
        let current = result::ctx::get_current()
            .map_err(|error| format!("the driver does not answer: {}", code(error)))?;
        let _restored = Bound::restoring(current);
        let context = CudaContext::new(device as usize)
            .map_err(|error| format!("device {device} gives no context: {}", code(error)))?;
        Ok(Self(ManuallyDrop::new(context)))
    }

    pub(crate) fn get(&self) -> &Arc<CudaContext> {
        &self.0
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        let Some(_inside) = exit::enter() else { return };
        let current = result::ctx::get_current().ok();
        let _restored = current.map(Bound::restoring);
        // SAFETY: dropped once, here, and not used again.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl CudaPages {
    /// Retains the device's primary context. The calling thread's own context stays current.
    ///
    /// # Errors
    ///
    /// Why the device cannot be used, in words.
    pub fn open(device: u32) -> Result<Self, String> {
        let driver = probe()?;
        let Some(info) = driver.devices.get(device as usize) else {
            return Err(no_such_device(device, driver.devices.len()));
        };
        let pci_addresses = driver.devices.iter().map(|device| device.pci_address.clone());
        let pci_addresses = pci_addresses.collect();
        if let Some(fault) = &info.fault {
            return Err(fault.clone());
        }
        let context = PrimaryContext::of(device)?;
        exit::watch()?;
        Ok(Self {
            events: EventPool::new(context.get()),
            context,
            register: info.can_register,
            pci_addresses,
            options: MapOptions::default(),
            near: Vec::new(),
            kept: Mutex::new(Vec::new()),
        })
    }

    /// The same, mapped in this way, and for one of these devices alone on these nodes; memory that the driver
    /// allocates is not.
    pub(crate) fn mapped(self, options: MapOptions, near: Vec<(u32, NodeSet)>) -> Self {
        Self { options, near, ..self }
    }

    /// Where a device is on the PCI bus, if the driver tells; or why it cannot be used.
    pub(crate) fn pci_address(&self, device: u32) -> Result<Option<String>, String> {
        let found = self.pci_addresses.get(device as usize).cloned();
        found.ok_or_else(|| no_such_device(device, self.pci_addresses.len()))
    }

    /// The CUDA backend underneath `memory`, if that is what it is.
    pub fn of(memory: &dyn PageLock) -> Option<&Self> {
        memory.as_any()?.downcast_ref()
    }

    /// The context that the memory is pinned for.
    pub fn context(&self) -> &Arc<CudaContext> {
        self.context.get()
    }

    pub(crate) fn events(&self) -> &EventPool {
        &self.events
    }

    /// Calls the driver with our context current.
    fn call<R>(
        &self,
        step: MemoryStep,
        bytes: usize,
        call: impl FnOnce() -> Result<R, DriverError>,
    ) -> Result<R, MemoryError> {
        self.bound(call).map_err(|error| failed(step, bytes, error))
    }

    fn bound<R>(&self, call: impl FnOnce() -> Result<R, DriverError>) -> Result<R, DriverError> {
        let _bound = Bound::to(&self.context.0)?;
        let _unrestricted = Unrestricted::enter();
        call()
    }

    /// Registers the chunk and asks for its address. If there is none the registration is undone; if that
    /// fails as well, the chunk is kept.
    fn register(&self, chunk: Region) -> Result<u64, MemoryError> {
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        self.call(MemoryStep::Pin, chunk.bytes, || {
            // SAFETY: the chunk is mapped memory of ours.
            unsafe { sys::cuMemHostRegister_v2(host(chunk), chunk.bytes, flags) }.result()?;
            device_base(chunk).inspect_err(|_| {
                // The first error is the one to report.
                // SAFETY: registered above, with this start.
                if unsafe { sys::cuMemHostUnregister(host(chunk)) }.result().is_err() {
                    self.kept.lock().push(chunk.start.addr());
                }
            })
        })
    }

    /// Memory that the driver allocates, for devices that cannot register any.
    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let start = self.call(MemoryStep::Reserve, bytes, || {
            // SAFETY: the driver gives new memory.
            unsafe { result::malloc_host(bytes, flags) }
        })?;
        let start = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| MemoryError::os(MemoryStep::Reserve, bytes, rustix::io::Errno::NOMEM))?;
        // SAFETY: the memory is `bytes` long and ours (B1 asks for zeroes).
        unsafe { start.write_bytes(0, bytes) };
        Ok(start)
    }

    /// Whether a chunk of the region is registered although it could not be pinned: it is given back to nobody
    /// (I6).
    fn keeps(&self, region: Region) -> bool {
        let start = region.start.addr().get();
        let within = |kept: &NonZero<usize>| (start..start + region.bytes).contains(&kept.get());
        self.kept.lock().iter().any(within)
    }

    fn unregister(&self, chunk: Region) -> Result<(), MemoryError> {
        let Some(_inside) = exit::enter() else { return Ok(()) };
        let unregistered = self.bound(|| {
            // SAFETY: the chunk was registered by `register`, with this start.
            unsafe { sys::cuMemHostUnregister(host(chunk)) }.result()
        });
        gone_is_done(unregistered).map_err(|error| failed(MemoryStep::Unpin, chunk.bytes, error))
    }
}

/// Where devices see the chunk, which is pinned. The context is current.
fn device_base(chunk: Region) -> Result<u64, DriverError> {
    let mut address = 0;
    // SAFETY: the chunk is pinned and mapped for devices; the driver writes one address.
    unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut address, host(chunk), 0) }.result()?;
    Ok(address)
}

// SAFETY: B1 mappings are fresh zero pages, and allocations are zeroed here; B2 registering changes
// no byte; B3 a failed registration registers nothing, and one whose address cannot be had is undone, or its
// region is never released;
// B4 registered and allocated host memory stays in RAM until undone; B5 the address is the driver's
// own; B6 the driver calls neither unwind nor call back; B7 mappings as on the host, and what the driver
// allocates it backs at once.
unsafe impl PageLock for CudaPages {
    fn kind(&self) -> BackendKind {
        BackendKind::Cuda
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        self.reserve_as(bytes, PageTier::Base)
    }

    /// The driver chooses the pages of what it allocates: one try, and then a look at them.
    fn tiers(&self, bytes: usize) -> Vec<PageTier> {
        let tiers = huge::tiers(bytes, self.options);
        if self.register { tiers } else { tiers.last().copied().into_iter().collect() }
    }

    fn reserve_as(&self, bytes: usize, tier: PageTier) -> Result<NonNull<u8>, MemoryError> {
        if self.register {
            return mapping::reserve(bytes, tier, self.options);
        }
        self.allocate(bytes)
    }

    fn reserve_near(
        &self,
        bytes: usize,
        tier: PageTier,
        device: u32,
    ) -> Result<NonNull<u8>, MemoryError> {
        let near = self.near.iter().find(|(known, _)| *known == device);
        match near {
            Some((_, nodes)) if self.register => {
                mapping::reserve(bytes, tier, MapOptions { nodes: *nodes, ..self.options })
            }
            _ => self.reserve_as(bytes, tier),
        }
    }

    unsafe fn obtained(&self, region: Region, tier: PageTier) -> Obtained {
        mapping::obtained(region, tier)
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        if self.register {
            // SAFETY: the caller's duty is the same.
            return unsafe { mapping::populate(part) };
        }
        Ok(())
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        let base = if self.register {
            self.register(chunk)?
        } else {
            self.call(MemoryStep::Pin, chunk.bytes, || device_base(chunk))?
        };
        Ok(Pinned { locked: true, device_base: Some(base) })
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        if self.register { self.unregister(chunk) } else { Ok(()) }
    }

    unsafe fn forgo(&self, part: Region) {
        if self.register && !self.keeps(part) {
            // SAFETY: the caller's duty is the same.
            unsafe { mapping::forgo(part) };
        }
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // It may still be registered: the system takes both back.
        let Some(_inside) = exit::enter() else { return Ok(()) };
        if self.register {
            if self.keeps(region) {
                let cause = MemoryCause::Other("the CUDA driver keeps a part of it registered");
                return Err(MemoryError { step: MemoryStep::Release, bytes: region.bytes, cause });
            }
            // SAFETY: the caller's duty is the same.
            return unsafe { mapping::release(region, self.options) };
        }
        let freed = self.bound(|| {
            // SAFETY: the region is an allocation of `reserve` and unused (caller).
            unsafe { result::free_host(host(region)) }
        });
        gone_is_done(freed).map_err(|error| failed(MemoryStep::Release, region.bytes, error))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

fn no_such_device(device: u32, count: usize) -> String {
    let last = count.saturating_sub(1);
    format!("device {device} does not exist: the driver sees {count} (device 0 to {last})")
}

fn failed(step: MemoryStep, bytes: usize, error: DriverError) -> MemoryError {
    MemoryError { step, bytes, cause: MemoryCause::Driver(code(error)) }
}

fn host(region: Region) -> *mut c_void {
    region.start.as_ptr().cast()
}
