//! Leases in cudarc's own copy calls: `stream.memcpy_htod(&lease, &mut device)` is tracked.
//!
//! cudarc asks for the slice, queues the copy, and then either records an event that it was given or
//! waits for the stream. Where it records, the event is a fence of the lease. cudarc may skip it, and
//! a fence that was never recorded is found out later (see [`InteropEvent`]).
//!
//! Who calls the trait's `unsafe` methods without cudarc drops the guard on the calling thread, before
//! that thread asks for another, as cudarc's own calls do.

use std::sync::Arc;
use std::time::Instant;

use bytemuck::Pod;
use cudarc::driver::{CudaStream, HostSlice, SyncOnDrop, sys};

use super::context::Bound;
use super::event::InteropEvent;
use super::stream::{is_capturing, stream_id};
use crate::attached::{AnyFence, Attached, Order};
use crate::fence::{FenceStatus, Lost};
use crate::foreign::tell;
use crate::free_list::home_number;
use crate::lease::Lease;
use crate::shared_lease::SharedLease;
use crate::view::{LeaseView, LeaseViewMut, SlotOf};

impl<T: Pod> HostSlice<T> for Lease<T> {
    fn len(&self) -> usize {
        self.len()
    }

    unsafe fn stream_synced_slice<'a>(
        &'a self,
        stream: &'a CudaStream,
    ) -> (&'a [T], SyncOnDrop<'a>) {
        let guard = follow(self.slot_of(), stream, false);
        (self.raw_slice(), guard)
    }

    unsafe fn stream_synced_mut_slice<'a>(
        &'a mut self,
        stream: &'a CudaStream,
    ) -> (&'a mut [T], SyncOnDrop<'a>) {
        let guard = follow(self.slot_of(), stream, true);
        (self.raw_mut_slice(), guard)
    }
}

/// For `memcpy_htod` from a part of a lease.
impl<T: Pod> HostSlice<T> for LeaseView<'_, T> {
    fn len(&self) -> usize {
        self.len()
    }

    unsafe fn stream_synced_slice<'a>(
        &'a self,
        stream: &'a CudaStream,
    ) -> (&'a [T], SyncOnDrop<'a>) {
        (self.as_slice(), follow(self.slot(), stream, false))
    }

    /// # Panics
    ///
    /// Always: a copy into a view that only reads is a mistake that the trait cannot refuse earlier.
    #[allow(clippy::panic, reason = "the trait has no way to refuse, and no other answer is sound")]
    unsafe fn stream_synced_mut_slice<'a>(
        &'a mut self,
        _: &'a CudaStream,
    ) -> (&'a mut [T], SyncOnDrop<'a>) {
        panic!("a copy into a LeaseView, which only reads: use Lease::view_mut")
    }
}

/// For `memcpy_htod` from a lease with several holders.
impl<T: Pod> HostSlice<T> for SharedLease<T> {
    fn len(&self) -> usize {
        self.len()
    }

    unsafe fn stream_synced_slice<'a>(
        &'a self,
        stream: &'a CudaStream,
    ) -> (&'a [T], SyncOnDrop<'a>) {
        (self.as_slice(), follow(self.lease().slot_of(), stream, false))
    }

    /// # Panics
    ///
    /// Always: a copy into a lease that only reads is a mistake that the trait cannot refuse earlier.
    #[allow(clippy::panic, reason = "the trait has no way to refuse, and no other answer is sound")]
    unsafe fn stream_synced_mut_slice<'a>(
        &'a mut self,
        _: &'a CudaStream,
    ) -> (&'a mut [T], SyncOnDrop<'a>) {
        panic!("a copy into a SharedLease, which only reads: use SharedLease::into_lease first")
    }
}

/// For copies from and to a part of a lease.
impl<T: Pod> HostSlice<T> for LeaseViewMut<'_, T> {
    fn len(&self) -> usize {
        self.len()
    }

    unsafe fn stream_synced_slice<'a>(
        &'a self,
        stream: &'a CudaStream,
    ) -> (&'a [T], SyncOnDrop<'a>) {
        let guard = follow(self.slot(), stream, false);
        (self.raw_slice(), guard)
    }

    unsafe fn stream_synced_mut_slice<'a>(
        &'a mut self,
        stream: &'a CudaStream,
    ) -> (&'a mut [T], SyncOnDrop<'a>) {
        let guard = follow(self.slot(), stream, true);
        (self.raw_mut_slice(), guard)
    }
}

/// Attaches a fence for a copy that cudarc is about to queue, and tells cudarc how to set it off.
fn follow<'a>(slot: SlotOf, stream: &'a CudaStream, writes: bool) -> SyncOnDrop<'a> {
    let class = slot.class.get();
    if !class.is_device_accessible() || slot.check_here().is_err() {
        // To the driver it is pageable memory, which it is done with when the call returns.
        return SyncOnDrop::Sync(None);
    }
    // The default stream is that of the current context.
    let _bound = Bound::to(stream.context());
    // First: asking which stream it is would ruin a capture.
    if is_capturing(stream.cu_stream()).unwrap_or(true) {
        // The copy would run again at each launch, and the trait has no way to refuse it.
        let lost = "cudarc captured a copy of it into a graph: hold it with `hold_for_graph`";
        slot.attach(Attached::user(Lost(lost)));
        return SyncOnDrop::Record(None);
    }
    let id = stream_id(stream.cu_stream());
    if let Err(error) = slot.come_behind_others(id, writes, |_| false) {
        tell!(error, %error, slot = slot.slot, "work on a lease failed");
    }
    drop_complete(slot);
    let event = will_record(stream).then(|| InteropEvent::new(stream));
    let event = event.and_then(Result::ok).map(Arc::new);
    let Some(event) = event else { return SyncOnDrop::Sync(Some(stream)) };
    let borrowed: *const InteropEvent = Arc::as_ptr(&event);
    slot.attach(Attached {
        fence: AnyFence::Interop(event),
        order: Order::unplaced(id),
        since: Instant::now(),
        writes,
        bytes: slot.bytes,
        shard: home_number(),
    });
    // SAFETY: I3, a fence stays attached as long as a guard may use it. It is taken off by whoever may
    // write its bytes, which the guard borrows; if it writes, by whoever may read them, whom the
    // guard's `&mut` shuts out; by the lease's drop; and by the thread that made it, when it is back
    // from the call that dropped the guard.
    let event: &'a InteropEvent = unsafe { &*borrowed };
    SyncOnDrop::Record(Some((event.event(), stream)))
}

/// Whether cudarc will record an event behind the copy, as far as anybody can know. Where it may not,
/// it must wait for the stream: it looks again after the copy, and what it looks at can change
/// meanwhile, but not while a stream of its own lives, as this one does.
fn will_record(stream: &CudaStream) -> bool {
    let special = [std::ptr::null_mut(), LEGACY, PER_THREAD];
    let own = !special.contains(&stream.cu_stream());
    own && stream.context().is_managing_stream_synchronization()
}

/// Takes off the calling thread's fence of an earlier copy, if that is over, so that a lease which is
/// copied from again and again does not collect them.
fn drop_complete(slot: SlotOf) {
    let own = |attached: &Attached| match &attached.fence {
        AnyFence::Interop(event) => event.is_unborrowed(),
        _ => false,
    };
    let Some(attached) = slot.class.get().slot_state(slot.slot).find(own) else { return };
    if matches!(attached.fence.poll(), Ok(FenceStatus::Complete)) {
        slot.take_off(attached);
    }
}

/// The driver's handles for default streams.
const LEGACY: sys::CUstream = std::ptr::without_provenance_mut(1);
const PER_THREAD: sys::CUstream = std::ptr::without_provenance_mut(2);
