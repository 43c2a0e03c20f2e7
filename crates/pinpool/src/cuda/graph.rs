//! Leases in CUDA graphs: a graph reads and writes them at each launch, so it and they stay together.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaGraph, CudaStream, DevicePtr, DevicePtrMut, result};

use super::context::{Bound, failed};
use super::exit;
use super::stream::{Ready, is_capturing};
use super::transfer::{DeviceMemory, check_context, check_len, follow};
use crate::attached::AnyFence;
use crate::error::Error;
use crate::fence::FenceError;
use crate::lease::Lease;

/// A lease that copies may be captured from and to, for a graph that uses it at each launch.
///
/// Give it to [`HeldGraph::new`] together with the graph. Dropping it after a copy was captured loses
/// its slot: nobody can know when the graph is launched last. The slot is quarantined then, and that
/// is logged.
///
/// cudarc's event tracking must be off for the device memory of a captured copy (see
/// `CudaContext::disable_event_tracking`): the events that it would wait for lie outside the capture.
///
/// ```no_run
/// use pinpool::cuda::HeldGraph;
/// use pinpool::cudarc::driver::sys;
/// # fn graph(pool: pinpool::Pool) -> Result<(), Box<dyn std::error::Error>> {
/// let context = pool.cuda_context().ok_or("no GPU")?;
/// // SAFETY: one stream uses the memory below, so that nothing needs cudarc's events.
/// unsafe { context.disable_event_tracking() };
/// let stream = context.new_stream()?;
/// let mut on_device = stream.alloc_zeros::<u8>(4096)?;
/// stream.synchronize()?;
///
/// let hold = pool.lease(4096)?.hold_for_graph();
/// stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
/// hold.upload(&stream, &mut on_device)?;
/// let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0))?.ok_or("nothing was captured")?;
/// // SAFETY: `hold` was captured into this graph only.
/// let mut held = unsafe { HeldGraph::new(graph, &stream, vec![hold]) };
///
/// for number in 0..10 {
///     held.write(0).ok_or("one lease")?.fill(number); // waits for the last launch
///     held.launch()?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "dropping a hold loses its slot: bind it to its graph with HeldGraph::new"]
pub struct GraphHold<T: Pod = u8> {
    /// Taken out once: by `HeldGraph::new`, `release` or drop.
    lease: ManuallyDrop<Lease<T>>,
    /// Some graph may use it.
    captured: Cell<bool>,
}

impl<T: Pod> Lease<T> {
    /// Keeps the lease for a graph that is being captured. Waits for all work on it that the pool
    /// knows of.
    pub fn hold_for_graph(mut self) -> GraphHold<T> {
        let _ = self.as_mut_slice();
        GraphHold { lease: ManuallyDrop::new(self), captured: Cell::new(false) }
    }
}

impl<T: Pod> GraphHold<T> {
    /// Captures a copy of all elements to the start of `target`.
    ///
    /// # Errors
    ///
    /// [`Error::StreamNotCapturing`]; otherwise as [`Lease::upload`].
    pub fn upload<D: DevicePtrMut<T> + DeviceMemory>(
        &self,
        stream: &Arc<CudaStream>,
        target: &mut D,
    ) -> Result<(), Error> {
        check_len(self.lease.len(), target.len())?;
        check_context(target.stream(), stream)?;
        let _bound = self.ready(stream)?;
        let (address, _recorded) = target.device_ptr_mut(stream);
        // SAFETY: the lease is pinned and stays with the graph (I3); the target is the user's, who
        // owns the graph and its device memory alike.
        unsafe { result::memcpy_htod_async(address, self.lease.as_slice(), stream.cu_stream()) }
            .map(|()| self.captured.set(true))
            .map_err(|error| failed("cuMemcpyHtoDAsync", error))
    }

    /// Captures a copy of all elements of `source` to the start of the lease.
    ///
    /// # Errors
    ///
    /// As [`Self::upload`].
    pub fn download<S: DevicePtr<T> + DeviceMemory>(
        &mut self,
        source: &S,
        stream: &Arc<CudaStream>,
    ) -> Result<(), Error> {
        check_len(source.len(), self.lease.len())?;
        check_context(source.stream(), stream)?;
        let _bound = self.ready(stream)?;
        let (address, _recorded) = source.device_ptr(stream);
        let part = &mut self.lease.as_mut_slice()[..source.len()];
        // SAFETY: as `upload`.
        unsafe { result::memcpy_dtoh_async(part, address, stream.cu_stream()) }
            .map(|()| self.captured.set(true))
            .map_err(|error| failed("cuMemcpyDtoHAsync", error))
    }

    /// The lease again.
    ///
    /// # Safety
    ///
    /// No graph that was captured with this hold exists any more, and none of its launches runs: say,
    /// because the capture failed.
    pub unsafe fn release(self) -> Lease<T> {
        self.into_lease()
    }

    fn into_lease(self) -> Lease<T> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so the lease is taken out once.
        unsafe { ManuallyDrop::take(&mut this.lease) }
    }

    fn ready(&self, stream: &CudaStream) -> Result<Bound, Error> {
        self.lease.slot_of().check_here()?;
        if !self.lease.is_device_accessible() {
            return Err(Error::NotDeviceAccessible { backend: self.lease.backend() });
        }
        let bound =
            Bound::to(stream.context()).map_err(|error| failed("cuCtxSetCurrent", error))?;
        if !is_capturing(stream.cu_stream())? {
            return Err(Error::StreamNotCapturing);
        }
        Ok(bound)
    }
}

impl<T: Pod> Drop for GraphHold<T> {
    fn drop(&mut self) {
        if !self.captured.get() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.lease) };
            return;
        }
        let error = Error::Fence(FenceError::new("its hold was dropped and a graph may use it"));
        self.lease.class_ref().get().depart();
        // The lease itself is never dropped: its slot stays out, and its slab mapped.
        self.lease.quarantine(&error);
    }
}

/// A captured graph with the leases that it reads and writes.
///
/// Between launches [`Self::leases`] and [`Self::write`] reach them, and wait for the launches so far.
/// Dropping it destroys the graph, and the slots come home after its last launch.
pub struct HeldGraph<T: Pod = u8> {
    /// Before the leases: nothing can launch it once they are on their way home.
    graph: Destroyed,
    stream: Arc<CudaStream>,
    leases: Vec<Lease<T>>,
}

/// A graph that is destroyed on drop, unless the process exits.
struct Destroyed(ManuallyDrop<CudaGraph>);

impl Drop for Destroyed {
    fn drop(&mut self) {
        // Left behind, it keeps its stream and context.
        let Some(_inside) = exit::enter() else { return };
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}

impl<T: Pod> HeldGraph<T> {
    /// Binds holds to the graph that was captured with them. It is launched on `stream`.
    ///
    /// # Safety
    ///
    /// Whatever was captured with these holds is in `graph` and in no other graph: not in one whose
    /// capture ended before, not in a clone, not in a graph instantiated from the same capture
    /// elsewhere. The slots go to other owners once this value is gone; another graph would go on
    /// reading or writing them. The device memory that was captured outlives this value. (A hold that
    /// `graph` does not use is merely kept with it.)
    pub unsafe fn new(
        graph: CudaGraph,
        stream: &Arc<CudaStream>,
        holds: Vec<GraphHold<T>>,
    ) -> Self {
        let leases = holds.into_iter().map(GraphHold::into_lease).collect();
        Self { graph: Destroyed(ManuallyDrop::new(graph)), stream: Arc::clone(stream), leases }
    }

    /// Launches the graph and returns while it runs.
    ///
    /// # Errors
    ///
    /// A driver call failed. If it was the recording behind the launch, and the stream does not
    /// become idle either, the slots will be quarantined.
    pub fn launch(&mut self) -> Result<(), Error> {
        let stream = self.stream.cu_stream();
        let ready = self.leases.iter().map(|lease| {
            let ready = Ready::new(lease.class_ref(), self.stream.context(), stream)?;
            let order = |fence: &AnyFence| ready.order_behind(fence);
            lease.slot_of().come_behind_others(ready.id(), true, order)?;
            Ok(ready)
        });
        let ready = ready.collect::<Result<Vec<_>, Error>>()?;
        let _bound =
            Bound::to(self.stream.context()).map_err(|error| failed("cuCtxSetCurrent", error))?;
        // SAFETY: graph and stream are alive, and `&mut self` makes it the only use of the graph.
        let launched = unsafe { result::graph::launch(self.graph.0.cu_graph_exec(), stream) }
            .map_err(|error| failed("cuGraphLaunch", error));
        // Even a failed launch may have queued something.
        let mut outcome = launched;
        for (lease, ready) in self.leases.iter().zip(ready) {
            if let Err(failure) = follow(lease, ready, true) {
                failure.keep_out(lease);
                outcome = outcome.and(Err(failure.error));
            }
        }
        outcome
    }

    /// The leases, to read, in the order in which they were bound.
    pub fn leases(&self) -> &[Lease<T>] {
        &self.leases
    }

    /// The elements of one lease, to write between launches. Waits for the launches so far. `None` past
    /// the last lease.
    pub fn write(&mut self, index: usize) -> Option<&mut [T]> {
        self.leases.get_mut(index).map(Lease::as_mut_slice)
    }

    /// Destroys the graph and gives the leases back. Their accessors wait for its last launch.
    pub fn finish(self) -> Vec<Lease<T>> {
        self.leases
    }
}

impl<T: Pod> fmt::Debug for GraphHold<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GraphHold").field(&*self.lease).finish()
    }
}

impl<T: Pod> fmt::Debug for HeldGraph<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldGraph").field("leases", &self.leases).finish_non_exhaustive()
    }
}
