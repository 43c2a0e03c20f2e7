//! A lease in company: with work on several streams, fences of several kinds, graphs that never come.

use std::time::Duration;

use pinpool::cudarc::driver::{result, sys};
use pinpool::{Error, ManualFence};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("an_upload_comes_behind_a_use_without_waiting", an_upload_comes_behind_a_use),
    check("a_graphs_launch_comes_behind_a_use", a_graphs_launch_comes_behind_a_use),
    check("a_cuda_event_is_a_fence", a_cuda_event_is_a_fence),
    check("a_copy_and_a_network_card_both_count", a_copy_and_a_network_card_both_count),
    check("a_shared_lease_can_be_waited_for", a_shared_lease_can_be_waited_for),
    check("a_hold_without_a_copy_gives_its_slot_back", a_hold_without_a_copy),
    check("a_failed_capture_gives_its_lease_back", a_failed_capture_gives_its_lease_back),
    check("a_capture_ruined_by_event_tracking_says_so", a_capture_ruined_by_tracking_says_so),
    check("a_refused_copy_is_an_error_like_others", a_refused_copy_is_an_error_like_others),
];

/// Work on one stream writes the lease; the upload on another comes behind it, and this thread goes
/// on.
fn an_upload_comes_behind_a_use() {
    let pool = pool(4096, 1);
    let [first, second] = streams_apart(&pool);
    let source = device_memory(&first, 4096);
    let mut device = device_memory(&second, 4096);
    let lease = filled(&pool, 4096, 0xee);
    let gate = Gate::close_now(&first);
    let address = lease.as_ptr().cast_mut();
    context(&pool).bind_to_thread().expect("bound");
    // What a foreign library does: a download to the lease's address.
    let (from, guard) = pinpool::cudarc::driver::DevicePtr::device_ptr(&source, &first);
    // SAFETY: the lease is 4096 bytes long and told of the use below.
    let bytes = unsafe { std::slice::from_raw_parts_mut(address, 4096) };
    // SAFETY: both sides are valid until the stream passed the copy.
    unsafe { result::memcpy_dtoh_async(bytes, from, first.cu_stream()) }.expect("queued");
    drop(guard);
    lease.record_use(&first).expect("recorded");
    let flight = lease.upload(&second, &mut device).expect("queued");
    assert!(!flight.is_complete().expect("no fault"), "it waits on the device");
    gate.open();
    drop(flight.wait().expect("copied"));
    // Zeroes came down from `source`, and went up again.
    assert_filled(&second, &device, 0);
    no_harm_done();
}

/// The same for a graph: the launch returns while another stream still uses the lease.
fn a_graphs_launch_comes_behind_a_use() {
    let pool = pool(4096, 1);
    let [first, second] = streams_apart(&pool);
    let mut device = unwatched_memory(&second, 4096);
    let hold = filled(&pool, 4096, 9).hold_for_graph();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    second.begin_capture(mode).expect("capture begins");
    hold.upload(&second, &mut device).expect("captured");
    let graph = second.end_capture(sys::CUgraphInstantiate_flags(0)).expect("captured");
    // SAFETY: the hold was captured into this graph only.
    let mut bound = unsafe {
        pinpool::cuda::HeldGraph::new(graph.expect("a copy was captured"), &second, vec![hold])
    };
    let gate = Gate::close_now(&first);
    bound.leases()[0].record_use(&first).expect("recorded");
    bound.launch().expect("launched");
    gate.open();
    assert!(bound.write(0).expect("one lease").iter().all(|byte| *byte == 9));
    assert_filled(&second, &device, 9);
    drop(bound);
    all_home(&pool);
    no_harm_done();
}

fn a_cuda_event_is_a_fence() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let gate = Gate::close_now(&stream);
    let event = stream.record_event(None).expect("recorded");
    pool.try_lease(1).expect("a slot").retire_after(event);
    assert!(pool.lease_timeout(1, Duration::from_millis(100)).is_err());
    gate.open();
    drop(filled(&pool, 4096, 1));
    no_harm_done();
}

fn a_copy_and_a_network_card_both_count() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    for card_first in [false, true] {
        let gate = Gate::close_now(&stream);
        let sent = ManualFence::new();
        let flight = filled(&pool, 4096, 5).upload(&stream, &mut device).expect("queued");
        let flight = flight.also_until(sent.clone());
        if card_first {
            sent.complete();
        } else {
            gate.open();
        }
        assert!(!flight.is_complete().expect("no fault"));
        if card_first {
            gate.open();
        } else {
            stream.synchronize().expect("idle");
            assert!(!flight.is_complete().expect("no fault"));
            sent.complete();
        }
        drop(flight.wait().expect("both are over"));
        assert_eq!(counts(&pool), (1, 0, 0, 0));
    }
    no_harm_done();
}

fn a_shared_lease_can_be_waited_for() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    for value in 0..20 {
        let shared = filled(&pool, 4096, value).share();
        let opener = Gate::close_now(&stream).open_soon();
        shared.upload(&stream, &mut device).expect("queued");
        shared.wait().expect("copied");
        let mut lease = shared.into_lease().expect("the only holder, and nothing in flight");
        lease.as_mut_slice().fill(0xff);
        assert_filled(&stream, &device, value);
        opener.join().expect("no panic");
    }
    // One more consumer than the GPU.
    let sent = ManualFence::new();
    let shared = filled(&pool, 4096, 1).share();
    shared.upload(&stream, &mut device).expect("queued");
    shared.retire_after(sent.clone());
    stream.synchronize().expect("idle");
    assert!(pool.lease_timeout(1, Duration::from_millis(50)).is_err());
    sent.complete();
    drop(filled(&pool, 4096, 2));
    no_harm_done();
}

fn a_hold_without_a_copy() {
    let pool = pool(4096, 1);
    for _ in 0..3 {
        drop(filled(&pool, 4096, 1).hold_for_graph());
    }
    assert_eq!(counts(&pool), (1, 0, 0, 0));
}

fn a_failed_capture_gives_its_lease_back() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let hold = filled(&pool, 4096, 1).hold_for_graph();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).expect("capture begins");
    hold.upload(&stream, &mut device).expect("captured");
    drop(stream.end_capture(sys::CUgraphInstantiate_flags(0)).expect("captured"));
    // SAFETY: the only graph of the hold is gone and was never launched.
    drop(unsafe { hold.release() });
    assert_eq!(counts(&pool), (1, 0, 0, 0));
}

fn a_capture_ruined_by_tracking_says_so() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    stream.synchronize().expect("idle");
    let hold = filled(&pool, 4096, 1).hold_for_graph();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).expect("capture begins");
    let refused = hold.upload(&stream, &mut device).expect_err("events lie outside the capture");
    assert!(refused.to_string().contains("disable_event_tracking"), "{refused}");
    assert!(stream.end_capture(sys::CUgraphInstantiate_flags(0)).is_err(), "it is ruined");
    let _ = stream.context().check_err();
    // Nothing was captured, so that nothing is lost.
    drop(hold);
    assert_eq!(counts(&pool), (1, 0, 0, 0));
}

fn a_refused_copy_is_an_error_like_others() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 10);
    let mut copy = || -> Result<(), Error> {
        drop(pool.try_lease(11)?.upload(&stream, &mut device)?);
        Ok(())
    };
    assert!(matches!(copy(), Err(Error::CopyLength { .. })));
    assert_eq!(counts(&pool), (1, 0, 0, 0), "the refused lease went home");
}
