//! Hardened pools (`debug_checks`) over a device: addresses under a stride, copies that keep the rules, and
//! one that does not. Built with the Cargo feature `debug-checks` only.

use pinpool::cudarc::driver::{DevicePtr, result};
use pinpool::{BackendChoice, Lease, Pool};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("hardened_slots_have_addresses_under_the_stride", addresses_under_the_stride),
    check("hardened_copies_are_left_alone", copies_are_left_alone),
    check("hardened_slots_tell_of_a_device_that_writes_on", a_device_that_writes_on),
];

/// Two slots a registration at the most, none of them a power of two in size.
const SIZE: usize = 100_032;
const SLOTS: usize = 9;

fn hardened() -> Pool {
    Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .debug_checks(true)
        .pin_chunk(1)
        .class("c", SIZE, SLOTS)
        .open()
        .expect("a hardened cuda pool opens")
}

/// The device finds each slot where the pool says it is: what it copies from there is the slot's, from the
/// first byte to the last, whatever lies between two slots.
fn addresses_under_the_stride() {
    let pool = hardened();
    let stride = pool.plan().classes[0].stride_bytes;
    assert!(stride > SIZE, "a canary lies between");
    context(&pool).bind_to_thread().expect("binds");
    let stream = stream(&pool);
    let device = device_memory(&stream, SIZE);
    let mut leases: Vec<_> = (0..SLOTS).map(|_| pool.try_lease(SIZE).expect("a slot")).collect();
    leases.sort_by_key(Lease::slot);
    let start = leases[0].as_ptr() as usize;
    for (seed, lease) in leases.iter_mut().enumerate() {
        lease.as_mut_slice().copy_from_slice(&pattern(SIZE, seed as u8));
        assert_eq!(lease.as_ptr() as usize - start, seed * stride);
    }
    for (seed, lease) in leases.iter().enumerate() {
        let address = lease.device_ptr().expect("a GPU address");
        let (target, _recorded) = device.device_ptr(&stream);
        // SAFETY: both addresses are valid on the device for so many bytes.
        unsafe { result::memcpy_dtod_sync(target, address, SIZE) }.expect("a device-side copy");
        assert!(on_device(&stream, &device) == pattern(SIZE, seed as u8), "slot {seed}");
    }
    no_harm_done();
}

/// Uploads and downloads that are dropped in flight: the checks come after the copies, and find nothing.
fn copies_are_left_alone() {
    let pool = hardened();
    let stream = stream(&pool);
    let mut device = device_memory(&stream, SIZE);
    for round in 0..200_u32 {
        let seed = round as u8;
        let mut lease = pool.lease_timeout(SIZE, HANG).expect("a slot in time");
        assert!(lease.as_slice().iter().all(|byte| *byte == 0xdb), "poison, round {round}");
        lease.as_mut_slice().copy_from_slice(&pattern(SIZE, seed));
        drop(lease.upload(&stream, &mut device).expect("queued"));
        let lease = pool.lease_timeout(SIZE, HANG).expect("a slot in time");
        let flight = lease.download(&device, &stream).expect("queued");
        if round % 2 == 0 {
            let lease = flight.wait().expect("copied");
            assert!(lease.as_slice() == pattern(SIZE, seed), "round {round}");
        }
    }
    all_home(&pool);
    let class = class(&pool);
    assert_eq!((class.overruns_total, class.late_writes_total), (0, 0));
    no_harm_done();
}

/// A foreign copy from the device that is a few bytes too long, behind the pool's back but recorded: its
/// canary tells of it once the copy is over.
fn a_device_that_writes_on() {
    let pool = hardened();
    let stream = stream(&pool);
    let source = device_memory(&stream, SIZE + 64);
    let mut lease = pool.try_lease(SIZE).expect("a slot");
    let bytes = lease.as_mut_ptr();
    let end = lease.capacity();
    let gate = Gate::close_now(&stream);
    let (from, recorded) = source.device_ptr(&stream);
    // SAFETY: within the slab: the slot and a part of its canary, which is the fault.
    let target = unsafe { std::slice::from_raw_parts_mut(bytes, end + 8) };
    context(&pool).bind_to_thread().expect("binds");
    // SAFETY: both sides are valid until the stream passed the copy.
    unsafe { result::memcpy_dtoh_async(target, from, stream.cu_stream()) }.expect("queued");
    drop(recorded);
    lease.record_use(&stream).expect("recorded");
    drop(lease);
    assert_eq!(class(&pool).overruns_total, 0, "in flight");
    gate.open();
    until("it is found", || class(&pool).overruns_total == 1);
    all_home(&pool);
    no_harm_done();
}
