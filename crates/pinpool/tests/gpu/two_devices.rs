//! One pool and two devices: portable memory, each stream with its own device's events.

use std::path::Path;
use std::sync::Arc;

use pinpool::cudarc::driver::{CudaContext, CudaStream, sys};
use pinpool::placement::{node_of, nodes_with_memory};
use pinpool::{BackendChoice, ClassConfig, Error, OnEmpty, Pool, Stager};
use pinpool_testkit::stamp;

use crate::Check;
use crate::support::*;

const TWO: &[(&str, &str)] = &[("FAKECUDA_DEVICES", "2")];

pub(crate) const ALL: &[Check] = &[
    check("one_pool_serves_two_devices", one_pool_serves_two_devices),
    check("a_slot_waits_for_the_other_devices_copy", a_slot_waits_for_the_other_devices_copy),
    check("a_shared_buffer_goes_to_both_devices", a_shared_buffer_goes_to_both_devices),
    check("a_pool_of_one_device_wakes_no_other", a_pool_of_one_device_wakes_no_other),
    check("memory_of_another_device_is_refused", memory_of_another_device_is_refused),
    check("a_pool_may_name_all_devices_that_use_it", a_pool_may_name_all_devices_that_use_it),
    check("each_device_has_classes_of_its_own", each_device_has_classes_of_its_own),
    check("each_device_has_a_stager_of_its_own", each_device_has_a_stager_of_its_own),
];

pub(crate) const ON_SOFTWARE: &[Check] =
    &[check("a_lost_recording_on_the_other_device", a_lost_recording_on_the_other_device)];

const fn check(name: &'static str, run: fn()) -> Check {
    Check { name, settings: TWO, run }
}

/// Case device-4, as far as one machine goes: the nodes of fake topologies are in `memory/numa/tests.rs`.
fn a_pool_may_name_all_devices_that_use_it() {
    let pool = |others: &[u32]| {
        Pool::builder()
            .env(false)
            .backend(BackendChoice::Cuda)
            .devices(0, others.iter().copied())
            .class("c", 4 << 20, 2)
            .open()
    };
    let open = pool(&[1]).expect("both devices are there");
    let mut target = device_memory(&other_device(), 4 << 20);
    let lease = filled(&open, 4 << 20, 9);
    let copy = lease.upload(&other_device(), &mut target).expect("queued");
    drop(copy.wait().expect("copied"));
    assert_filled(&other_device(), &target, 9);
    let slabs = &open.startup().slabs;
    assert!(slabs.len() == 1 && slabs[0].bytes >= 8 << 20, "{slabs:?}");
    println!("{slabs:?}, {:?}", open.startup().notes);
    let Err(Error::BackendUnavailable { reason, .. }) = pool(&[1, 99]) else {
        panic!("device 99 does not exist")
    };
    assert!(reason.contains("device 99 does not exist"), "{reason}");
}

/// Frames of one size on both devices, each uploaded by its own; slabs lie near their device, as far as the
/// system tells.
/// Buffers near the device, and the device's own context from its handle.
fn each_device_has_a_stager_of_its_own() {
    const CHUNK: usize = 64 << 10;
    let class = |name, device| ClassConfig::new(name, CHUNK, 4).device(device);
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .devices(0, [1])
        .class_config(class("stage-0", 0))
        .class_config(class("stage-1", 1))
        .stage_threads(2)
        .stage_chunk(CHUNK as u64)
        .open()
        .expect("both devices are there");
    assert!(pool.plan().notes.is_empty(), "{:?}", pool.plan().notes);
    for device in [0, 1] {
        let handle = pool.on(device).expect("it serves both");
        let context = handle.cuda_context().expect("a context");
        assert_eq!(context.ordinal(), device as usize);
        let stream = context.new_stream().expect("a stream");
        let stager = Stager::builder(&handle).straight_bytes(0).build().expect("a stager");
        let class = format!("stage-{device}");
        assert_eq!(pool.stats().class(&class).map(|class| class.leased), Some(4));
        let source = pattern(20 * CHUNK + 9, device as u8);
        let mut target = device_memory(&stream, source.len());
        stager.upload(&source, &stream, &mut target).expect("uploaded").wait().expect("there");
        assert!(on_device(&stream, &target) == source);
        // The crew serves the other device, too.
        let other = pool.on(1 - device).expect("it serves both");
        let far = other.cuda_context().expect("a context").new_stream().expect("a stream");
        let mut target = device_memory(&far, source.len());
        stager.upload(&source, &far, &mut target).expect("uploaded").wait().expect("there");
        assert!(on_device(&far, &target) == source);
        stager.close();
    }
    all_home(&pool);
    no_harm_done();
}

fn each_device_has_classes_of_its_own() {
    const BYTES: usize = 1 << 20;
    let class = |name, device| ClassConfig::new(name, BYTES, 2).device(device);
    let grows = class("frame-1", 1).on_empty(OnEmpty::Grow).grow_by(2).grow_max(2);
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .devices(0, [1])
        .max_pinned(64 << 20)
        .class_config(class("frame-0", 0))
        .class_config(grows)
        .class("shared", 4096, 2)
        .open()
        .expect("both devices are there");
    let streams = [stream(&pool), other_device()];
    for (device, stream) in (0..).zip(&streams) {
        let handle = pool.on(device).expect("it serves both");
        // With more than it opened with, device 1's class uploads of a grown slab as well.
        let count = if device == 1 { 4 } else { 2 };
        let mut targets: Vec<_> = (0..count).map(|_| device_memory(stream, BYTES)).collect();
        for round in 1..=20_u8 {
            let copies: Vec<_> = (0..)
                .zip(&mut targets)
                .map(|(at, target)| {
                    let mut lease = handle.lease_timeout(BYTES, HANG).expect("a slot in time");
                    assert_eq!(lease.class_name(), format!("frame-{device}").as_str());
                    assert!(lease.device_ptr().is_some());
                    lease.as_mut_slice().fill(round + at);
                    lease.upload(stream, target).expect("queued")
                })
                .collect();
            for copy in copies {
                drop(copy.wait().expect("copied"));
            }
            for (at, target) in (0..).zip(&targets) {
                assert_filled(stream, target, round + at);
            }
        }
        let more = pool.stats().class("frame-1").map(|class| class.grown);
        assert_eq!(more, Some(if device == 1 { 2 } else { 0 }));
        drop(handle.lease_timeout(4096, HANG).expect("of the shared class"));
    }
    assert_near(&pool);
    all_home(&pool);
    assert!(pool.on(1).expect("it serves both").close(HANG).is_complete());
    no_harm_done();
}

/// Each slab of a device's class lies on the node that the system says is near that device.
fn assert_near(pool: &Pool) {
    let sys = Path::new("/sys");
    let nodes = nodes_with_memory(sys);
    let report = pool.startup();
    println!("{:?}, {:?}, nodes {nodes:?}", report.slabs, report.notes);
    if nodes.len() < 2 || !report.notes.is_empty() {
        println!("not run: one node, or memory cannot be placed here");
        return;
    }
    let devices = pinpool::cuda::probe().expect("a driver").devices;
    for (device, info) in devices.iter().enumerate().take(2) {
        let wanted = info.pci_address.as_ref().and_then(|address| node_of(address, sys));
        let name = format!("frame-{device}");
        let own = report.slabs.iter().find(|one| one.class == name.as_str());
        let found = own.expect("it is reported").node;
        println!("device {device} is near node {wanted:?}, its slab on {found:?}");
        if let (Some(wanted), Some(found)) = (wanted, found) {
            assert_eq!(found, wanted, "device {device}");
        }
    }
}

fn other_device() -> Arc<CudaStream> {
    CudaContext::new(1).expect("a second device").new_stream().expect("a stream")
}

fn one_pool_serves_two_devices() {
    const BYTES: usize = 16 << 10;
    const RING: usize = 4;
    let pool = pool(BYTES, 4);
    let streams = [stream(&pool), other_device()];
    let mut rings = streams
        .each_ref()
        .map(|stream| (0..RING).map(|_| device_memory(stream, BYTES)).collect::<Vec<_>>());
    let mut owner = 0;
    for _ in 0..rounds(10_000, 10_000) / (2 * RING) {
        let first = owner;
        let [home, away] = &mut rings;
        for (near, far) in home.iter_mut().zip(away) {
            for (stream, target) in streams.iter().zip([near, far]) {
                owner += 1;
                let mut lease = pool.lease_timeout(BYTES, HANG).expect("a slot in time");
                stamp::write_slot(&mut lease, owner);
                drop(lease.upload(stream, target).expect("queued"));
            }
        }
        owner = first;
        let [home, away] = &rings;
        for (near, far) in home.iter().zip(away) {
            for (stream, target) in streams.iter().zip([near, far]) {
                owner += 1;
                stamp::verify(&on_device(stream, target), owner);
            }
        }
    }
    all_home(&pool);
    no_harm_done();
}

fn a_slot_waits_for_the_other_devices_copy() {
    let pool = pool(4096, 1);
    let (home, away) = (stream(&pool), other_device());
    let mut device = device_memory(&away, 4096);
    for round in 0..20 {
        let gate = Gate::close_now(&away);
        drop(filled(&pool, 4096, round).upload(&away, &mut device).expect("queued"));
        home.synchronize().expect("idle");
        assert_eq!(counts(&pool), (0, 0, 1, 0));
        assert!(pool.try_lease(1).is_err());
        gate.open();
        drop(filled(&pool, 4096, 0xff));
        assert_filled(&away, &device, round);
        let lease = pool.try_lease(4096).expect("free").download(&device, &away).expect("queued");
        let lease = lease.wait().expect("copied");
        assert!(lease.as_slice().iter().all(|byte| *byte == round));
        drop(lease);
    }
    drop((device, away, home));
    assert!(pool.close(HANG).is_complete());
    no_harm_done();
}

fn a_shared_buffer_goes_to_both_devices() {
    let pool = pool(4096, 1);
    let streams = [stream(&pool), other_device()];
    let mut targets: Vec<_> = streams.iter().map(|one| device_memory(one, 4096)).collect();
    for round in 0..50 {
        let shared = filled(&pool, 4096, round).share();
        for (stream, target) in streams.iter().zip(&mut targets) {
            shared.upload(stream, target).expect("queued");
        }
        drop(shared);
        drop(filled(&pool, 4096, 0xff));
        for (stream, target) in streams.iter().zip(&targets) {
            assert_filled(stream, target, round);
        }
    }
    no_harm_done();
}

/// A context costs hundreds of megabytes on its device, and nobody asked for one there.
///
/// Case start-3.
fn a_pool_of_one_device_wakes_no_other() {
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .device(1)
        .class("c", 4096, 2)
        .open()
        .expect("a pool on the second device");
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    for round in 0..10 {
        let flight = filled(&pool, 4096, round).upload(&stream, &mut device).expect("queued");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(flight);
                drop(pool.lease_timeout(4096, HANG).expect("a slot in time"));
            });
        });
    }
    all_home(&pool);
    assert!(!is_active(0), "the first device has a context");
    assert!(is_active(1));
    if let Some(driver) = software() {
        assert_eq!(driver.live_contexts(), 1);
    }
    assert!(pool.close(HANG).is_complete());
    assert!(!is_active(0), "closing made a context on the first device");
}

/// Whether a device has a primary context.
fn is_active(device: i32) -> bool {
    let (mut flags, mut active) = (0, -1);
    // SAFETY: the driver writes two numbers.
    let asked = unsafe { sys::cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active) };
    asked.result().expect("the driver answers");
    active != 0
}

/// The copy is queued and nothing tells its end: wait for the stream, or give the slot up.
fn a_lost_recording_on_the_other_device() {
    let pool = pool(4096, 2);
    let away = other_device();
    let mut device = unwatched_memory(&away, 4096);
    driver().set_copy_delay_us(20_000);
    for round in 0..10 {
        driver().fail("cuEventRecord:1:719").expect("a plan that the driver understands");
        let result = filled(&pool, 4096, round).upload(&away, &mut device);
        drop(result.expect_err("the driver was told to fail"));
        driver().clear_faults();
        let (free, leased, in_flight, quarantined) = counts(&pool);
        println!("round {round}: {free} free, {in_flight} in flight, {quarantined} quarantined");
        assert_eq!(leased, 0);
        if quarantined == 2 {
            assert!(pool.try_lease(1).is_err(), "both are given up");
            break;
        }
        drop(filled(&pool, 4096, 0xff));
        assert_filled(&away, &device, round);
    }
    away.synchronize().expect("idle");
    no_harm_done();
}

/// cudarc gives device memory back behind the work of its own device, and of no other.
fn memory_of_another_device_is_refused() {
    let pool = pool(4096, 1);
    let (home, away) = (stream(&pool), other_device());
    let mut device = device_memory(&home, 4096);
    let refused = filled(&pool, 4096, 1).upload(&away, &mut device).expect_err("two contexts");
    assert!(matches!(refused.error, Error::OtherContext), "{}", refused.error);
    let lease = refused.lease.expect("nothing was queued");
    let refused = lease.download(&device, &away).expect_err("two contexts");
    assert!(matches!(refused.error, Error::OtherContext), "{}", refused.error);
    drop(refused);
    assert_eq!(counts(&pool), (1, 0, 0, 0));
    no_harm_done();
}
