//! Leases in CUDA graphs: a graph reads and writes them at each launch, so it and they stay together.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaGraph, CudaStream, DevicePtr, DevicePtrMut, result};

use super::context::{Bound, failed};
use super::stream::{Ready, is_capturing};
use super::transfer::{DeviceMemory, check_len, follow};
use crate::error::Error;
use crate::fence::FenceError;
use crate::lease::Lease;

/// A lease that copies may be captured from and to, for a graph that uses it at each launch.
///
/// Give it to [`HeldGraph::new`] together with the graph. Dropping it instead loses its slot: the
/// graph may have captured it, and nobody can know when the graph is launched last. The slot is
/// quarantined then, and that is logged.
///
/// cudarc's event tracking must be off for the device memory of a captured copy (see
/// `CudaContext::disable_event_tracking`): the events that it would wait for lie outside the capture.
#[must_use = "dropping a hold loses its slot: bind it to its graph with HeldGraph::new"]
pub struct GraphHold<T: Pod = u8> {
    /// Taken out once: by `HeldGraph::new`.
    lease: ManuallyDrop<Lease<T>>,
}

impl<T: Pod> Lease<T> {
    /// Keeps the lease for a graph that is being captured. Waits for all work on it that the pool
    /// knows of.
    pub fn hold_for_graph(mut self) -> GraphHold<T> {
        let _ = self.as_mut_slice();
        GraphHold { lease: ManuallyDrop::new(self) }
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
        let _bound = self.ready(stream)?;
        let (address, _recorded) = target.device_ptr_mut(stream);
        // SAFETY: the lease is pinned and stays with the graph (I3); the target is the user's, who
        // owns the graph and its device memory alike.
        unsafe { result::memcpy_htod_async(address, self.lease.as_slice(), stream.cu_stream()) }
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
        let _bound = self.ready(stream)?;
        let (address, _recorded) = source.device_ptr(stream);
        let part = &mut self.lease.as_mut_slice()[..source.len()];
        // SAFETY: as `upload`.
        unsafe { result::memcpy_dtoh_async(part, address, stream.cu_stream()) }
            .map_err(|error| failed("cuMemcpyDtoHAsync", error))
    }

    fn ready(&self, stream: &CudaStream) -> Result<Bound, Error> {
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
        let error = Error::Fence(FenceError::new("its hold was dropped and a graph may use it"));
        self.lease.class_ref().get().depart();
        // The lease itself is never dropped: its slot stays out, and its slab mapped.
        self.lease.quarantine(&error);
    }
}

/// A captured graph with the leases that it reads and writes.
///
/// Between launches [`Self::leases_mut`] reaches them: their accessors wait for the launches so far.
/// Dropping it destroys the graph, and the slots come home after its last launch.
pub struct HeldGraph<T: Pod = u8> {
    /// Before the leases: nothing can launch it once they are on their way home.
    graph: CudaGraph,
    stream: Arc<CudaStream>,
    leases: Vec<Lease<T>>,
}

impl<T: Pod> HeldGraph<T> {
    /// Binds holds to the graph that was captured with them. It is launched on `stream`.
    ///
    /// # Safety
    ///
    /// Whatever was captured with these holds is in `graph` and in no other graph: not in one whose
    /// capture ended before, not in a clone, not in a graph instantiated from the same capture
    /// elsewhere. The slots go to other owners once this value is gone; another graph would go on
    /// reading or writing them. (A hold that `graph` does not use is merely kept with it.)
    pub unsafe fn new(
        graph: CudaGraph,
        stream: &Arc<CudaStream>,
        holds: Vec<GraphHold<T>>,
    ) -> Self {
        let leases = holds.into_iter().map(|hold| {
            let mut hold = ManuallyDrop::new(hold);
            // SAFETY: `hold` is not dropped, so the lease is taken out once.
            unsafe { ManuallyDrop::take(&mut hold.lease) }
        });
        Self { graph, stream: Arc::clone(stream), leases: leases.collect() }
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
            lease.slot_of().wait_for_others(ready.id(), true)?;
            Ok(ready)
        });
        let ready = ready.collect::<Result<Vec<_>, Error>>()?;
        let _bound =
            Bound::to(self.stream.context()).map_err(|error| failed("cuCtxSetCurrent", error))?;
        // SAFETY: graph and stream are alive, and `&mut self` makes it the only use of the graph.
        let launched = unsafe { result::graph::launch(self.graph.cu_graph_exec(), stream) }
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

    /// The leases, in the order in which they were bound.
    pub fn leases(&self) -> &[Lease<T>] {
        &self.leases
    }

    /// The leases, to write between launches.
    pub fn leases_mut(&mut self) -> &mut [Lease<T>] {
        &mut self.leases
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
