//! Captures and graphs: copies that run later, as often as somebody launches them.

use std::sync::Arc;

use pinpool::cuda::{GraphHold, HeldGraph};
use pinpool::cudarc::driver::{CudaGraph, CudaStream, sys};
use pinpool::{Error, Pool};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("a_captured_upload_is_refused_with_advice", a_captured_upload_is_refused_with_advice),
    check("a_graph_reads_its_leases_at_each_launch", a_graph_reads_its_leases_at_each_launch),
    check("a_graph_writes_its_leases_at_each_launch", a_graph_writes_its_leases_at_each_launch),
    check("a_hold_takes_copies_only_while_capturing", a_hold_takes_copies_only_while_capturing),
    check("a_dropped_hold_never_gives_its_slot_out", a_dropped_hold_never_gives_its_slot_out),
    check("a_dropped_graph_gives_its_slots_back", a_dropped_graph_gives_its_slots_back),
    check("other_streams_work_on_during_a_capture", other_streams_work_on_during_a_capture),
    check("the_keeper_asks_on_during_a_capture", the_keeper_asks_on_during_a_capture),
    check("a_plain_copy_into_a_capture_costs_the_slot", a_plain_copy_into_a_capture),
];

const GLOBAL: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: sys::CUstreamCaptureMode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;

fn begin(stream: &CudaStream, mode: sys::CUstreamCaptureMode) {
    stream.begin_capture(mode).expect("a capture begins");
}

fn end(stream: &Arc<CudaStream>) -> CudaGraph {
    let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    stream.end_capture(flags).expect("the capture is valid").expect("a graph")
}

/// Ends a capture in which just these holds were used.
fn bind(stream: &Arc<CudaStream>, holds: Vec<GraphHold>) -> HeldGraph {
    let graph = end(stream);
    // SAFETY: the graph is the one captured with the holds, which are in no other.
    unsafe { HeldGraph::new(graph, stream, holds) }
}

fn hold(pool: &Pool, value: u8) -> GraphHold {
    filled(pool, 4096, value).hold_for_graph()
}

fn a_captured_upload_is_refused_with_advice() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    begin(&stream, GLOBAL);
    let refused = filled(&pool, 4096, 1).upload(&stream, &mut device);
    let refused = refused.expect_err("a captured copy would outlive the lease");
    assert!(matches!(refused.error, Error::StreamCapturing), "{}", refused.error);
    assert!(refused.error.to_string().contains("hold_for_graph"), "{}", refused.error);
    let lease = refused.lease.expect("nothing was queued");
    let refused = lease.download(&device, &stream).expect_err("as above");
    assert!(matches!(refused.error, Error::StreamCapturing), "{}", refused.error);
    let lease = refused.lease.expect("nothing was queued");
    let refused = lease.record_use(&stream).expect_err("an event of a capture tells nothing");
    assert!(matches!(refused, Error::StreamCapturing), "{refused}");
    drop(lease);
    drop(end(&stream));
    assert_eq!(counts(&pool), (1, 0, 0, 0));
}

fn a_graph_reads_its_leases_at_each_launch() {
    let pool = pool(4096, 2);
    let stream = stream(&pool);
    let mut devices = [unwatched_memory(&stream, 4096), unwatched_memory(&stream, 4096)];
    let holds = vec![hold(&pool, 1), hold(&pool, 2)];
    begin(&stream, GLOBAL);
    for (hold, device) in holds.iter().zip(&mut devices) {
        hold.upload(&stream, device).expect("captured");
    }
    let mut graph = bind(&stream, holds);
    assert!(pool.try_lease(1).is_err(), "both slots belong to the graph");
    for round in 0..10 {
        let opener = Gate::close(&stream).open_soon();
        graph.launch().expect("launched");
        for number in 0..2 {
            // Waits for the launch, whose copies still read the slot.
            let slice = graph.write(number).expect("two leases");
            slice.fill(slice[0] + 1);
        }
        assert!(graph.write(2).is_none());
        assert_filled(&stream, &devices[0], round + 1);
        assert_filled(&stream, &devices[1], round + 2);
        assert_eq!(graph.leases()[1].as_slice()[0], round + 3);
        opener.join().expect("no panic");
    }
    assert_eq!(graph.finish().len(), 2);
    all_home(&pool);
    no_harm_done();
}

fn a_graph_writes_its_leases_at_each_launch() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let mut hold = hold(&pool, 0xee);
    begin(&stream, RELAXED);
    hold.download(&device, &stream).expect("captured");
    let mut graph = bind(&stream, vec![hold]);
    for round in 0..10 {
        stream.memset_zeros(&mut device).expect("queued");
        let wanted = pattern(4096, round);
        stream.memcpy_htod(&wanted, &mut device).expect("queued");
        let opener = Gate::close(&stream).open_soon();
        graph.launch().expect("launched");
        assert_eq!(graph.leases()[0].as_slice(), wanted, "round {round}: read too early");
        opener.join().expect("no panic");
    }
    drop(graph.finish());
    all_home(&pool);
}

fn a_hold_takes_copies_only_while_capturing() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let mut hold = hold(&pool, 1);
    hold.upload(&stream, &mut device).expect_err("the stream runs");
    hold.download(&device, &stream).expect_err("the stream runs");
    assert_filled(&stream, &device, 0);
    begin(&stream, RELAXED);
    hold.upload(&stream, &mut device).expect("captured");
    let mut small = device.try_slice_mut(..4095).expect("a part");
    hold.upload(&stream, &mut small).expect_err("4096 bytes into 4095");
    let graph = bind(&stream, vec![hold]);
    drop(graph.finish());
    all_home(&pool);
}

/// A graph that nobody can see may read the slot at any time.
fn a_dropped_hold_never_gives_its_slot_out() {
    let pool = pool(4096, 2);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let hold = hold(&pool, 7);
    begin(&stream, RELAXED);
    hold.upload(&stream, &mut device).expect("captured");
    drop(hold);
    let graph = end(&stream);
    for round in 0..100 {
        drop(filled(&pool, 4096, 0xff));
        let class = class(&pool);
        assert_eq!((class.free, class.leased), (1, 0), "round {round}");
        let other = pool.try_lease(1).expect("the other slot");
        assert!(pool.try_lease(1).is_err(), "round {round}: the graph's slot was given out");
        drop(other);
    }
    graph.launch().expect("launched");
    assert_filled(&stream, &device, 7);
    drop(graph);
    let report = pool.close(std::time::Duration::from_millis(100));
    assert!(!report.is_complete(), "the slot is reported: {report:?}");
    no_harm_done();
}

fn a_dropped_graph_gives_its_slots_back() {
    let pool = pool(4096, 1);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    for round in 0..20 {
        let hold = hold(&pool, round);
        begin(&stream, RELAXED);
        hold.upload(&stream, &mut device).expect("captured");
        let mut graph = bind(&stream, vec![hold]);
        let gate = Gate::close_now(&stream);
        graph.launch().expect("launched");
        drop(graph);
        assert_eq!(counts(&pool), (0, 0, 1, 0), "round {round}: the launch has not run");
        assert!(pool.try_lease(1).is_err());
        gate.open();
        drop(filled(&pool, 4096, 0xff));
        assert_filled(&stream, &device, round);
    }
    no_harm_done();
}

/// In the strictest mode every question about an event ruins the capture, on any thread that does
/// not say otherwise.
fn other_streams_work_on_during_a_capture() {
    let pool = pool(4096, 2);
    let (capturing, busy) = (stream(&pool), stream(&pool));
    let mut device = unwatched_memory(&capturing, 4096);
    let mut other = unwatched_memory(&busy, 4096);
    for round in 0..20_u8 {
        begin(&capturing, GLOBAL);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 0..10 {
                    let lease = filled(&pool, 4096, round.wrapping_mul(10).wrapping_add(at));
                    let flight = lease.upload(&busy, &mut other).expect("queued");
                    match at % 3 {
                        0 => drop(flight),
                        1 => drop(flight.wait().expect("copied")),
                        _ => while !flight.is_complete().expect("no fault") {},
                    }
                }
            });
        });
        capturing.memset_zeros(&mut device).expect("captured");
        end(&capturing).launch().expect("launched");
        capturing.synchronize().expect("idle");
        assert_filled(&busy, &other, round.wrapping_mul(10).wrapping_add(9));
    }
    all_home(&pool);
    no_harm_done();
}

/// A waiter makes the pool's thread ask, and a drop on the capturing thread asks too.
fn the_keeper_asks_on_during_a_capture() {
    let pool = pool(4096, 1);
    let (capturing, busy) = (stream(&pool), stream(&pool));
    let mut device = unwatched_memory(&capturing, 4096);
    let mut other = unwatched_memory(&busy, 4096);
    for round in 0..10 {
        let gate = Gate::close_now(&busy);
        let flight = filled(&pool, 4096, round).upload(&busy, &mut other).expect("queued");
        begin(&capturing, GLOBAL);
        drop(flight);
        assert!(pool.try_lease(1).is_err());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.lease_timeout(4096, HANG).expect("woken"));
            std::thread::sleep(std::time::Duration::from_millis(10));
            gate.open();
            drop(waiter.join().expect("no panic"));
        });
        capturing.memset_zeros(&mut device).expect("captured");
        drop(end(&capturing));
        assert_filled(&busy, &other, round);
    }
    no_harm_done();
}

/// cudarc captures the copy, and no event will ever tell when a launch of it runs.
fn a_plain_copy_into_a_capture() {
    let pool = pool(4096, 2);
    let stream = stream(&pool);
    let mut device = unwatched_memory(&stream, 4096);
    let lease = filled(&pool, 4096, 7);
    begin(&stream, RELAXED);
    let copied = stream.memcpy_htod(&lease, &mut device);
    drop(lease);
    assert!(copied.is_ok(), "{copied:?}");
    until("the slot is given up", || class(&pool).quarantined == 1);
    let graph = end(&stream);
    for _ in 0..100 {
        drop(filled(&pool, 4096, 0xff));
        assert_eq!(counts(&pool), (1, 0, 0, 1));
    }
    graph.launch().expect("launched");
    assert_filled(&stream, &device, 7);
    no_harm_done();
}
