//! Streams that never go on, and a device that is lost: the pool answers, counts and closes.

use std::ffi::{CStr, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pinpool::cudarc::driver::{CudaStream, DevicePtr, result, sys};
use pinpool::{CloseReport, Error, Pool};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("a_stuck_stream_holds_up_no_other", a_stuck_stream_holds_up_no_other),
    check("closing_names_what_is_stuck", closing_names_what_is_stuck),
    check("closing_waits_for_copies_that_end_in_time", closing_waits_for_copies_that_end),
    check(LOSS, a_lost_device_ends_nothing_else),
];

const LOSS: &str = "a_lost_device_ends_nothing_else";
/// Set in a process that loses its device.
const LOSE_IT: &str = "GPU_TESTS_LOSE_THE_DEVICE";

/// Closes, and fails if that takes much longer than it may.
pub(crate) fn close_in_time(pool: &Pool, timeout: Duration) -> CloseReport {
    let start = Instant::now();
    let report = pool.close(timeout);
    let took = start.elapsed();
    assert!(took < timeout + Duration::from_secs(10), "closing took {took:?} of {timeout:?}");
    report
}

fn a_stuck_stream_holds_up_no_other() {
    let pool = pool(4096, 4);
    let [stuck, busy] = streams_apart(&pool);
    let mut devices = [device_memory(&stuck, 4096), device_memory(&busy, 4096)];
    let gate = Gate::close_now(&stuck);
    drop(filled(&pool, 4096, 0xaa).upload(&stuck, &mut devices[0]).expect("queued"));
    for round in 0..2000_u32 {
        drop(
            filled(&pool, 4096, (round % 256) as u8)
                .upload(&busy, &mut devices[1])
                .expect("queued"),
        );
    }
    assert_filled(&busy, &devices[1], 1999_u16 as u8);
    let class = class(&pool);
    assert!(class.in_flight >= 1 && class.leases_total == 2001, "{class:?}");
    let report = close_in_time(&pool, Duration::from_millis(500));
    assert_eq!(report.in_flight.len(), 1, "{report:?}");
    assert_eq!(report.in_flight[0].class, "c");
    assert!(report.in_flight[0].age >= Duration::from_millis(500), "{report:?}");
    assert!(!report.is_complete());
    gate.open();
    assert_filled(&stuck, &devices[0], 0xaa);
    no_harm_done();
}

fn closing_names_what_is_stuck() {
    let pool = pool(4096, 4);
    let stream = stream(&pool);
    let mut device = device_memory(&stream, 4096);
    let gate = Gate::close_now(&stream);
    let mut slots = Vec::new();
    for value in 1..=3 {
        let lease = filled(&pool, 4096, value);
        slots.push(lease.slot());
        drop(lease.upload(&stream, &mut device).expect("queued"));
    }
    let held = filled(&pool, 4096, 4);
    let report = close_in_time(&pool, Duration::from_millis(200));
    let mut named: Vec<_> = report.in_flight.iter().map(|stuck| stuck.slot).collect();
    slots.sort_unstable();
    named.sort_unstable();
    assert_eq!(named, slots, "{report:?}");
    assert_eq!(report.slabs_left, 1);
    let text = report.to_string();
    assert!(text.contains('c') && text.contains("in flight"), "{text}");
    assert_eq!(counts(&pool), (0, 1, 3, 0));
    assert!(held.as_slice().iter().all(|byte| *byte == 4));
    gate.open();
    stream.synchronize().expect("idle");
    drop(held);
    let report = close_in_time(&pool, HANG);
    assert!(report.is_complete(), "{report:?}");
    assert_filled(&stream, &device, 3);
    no_harm_done();
}

fn closing_waits_for_copies_that_end() {
    for round in 0..10 {
        let pool = pool(4096, 2);
        let stream = stream(&pool);
        let mut device = device_memory(&stream, 4096);
        let gate = Gate::close_now(&stream);
        drop(filled(&pool, 4096, round).upload(&stream, &mut device).expect("queued"));
        let opener = gate.open_soon();
        let report = close_in_time(&pool, HANG);
        assert!(report.is_complete(), "round {round}: {report:?}");
        opener.join().expect("no panic");
        assert_filled(&stream, &device, round);
    }
    if let Some(driver) = software() {
        assert_eq!(driver.pinned_bytes(), 0);
    }
    no_harm_done();
}

/// Each loss in a process of its own, which must end well.
fn a_lost_device_ends_nothing_else() {
    if std::env::var_os(LOSE_IT).is_some() {
        return lose_the_device();
    }
    for round in 1..=5 {
        once_more(LOSS, LOSE_IT, &round.to_string());
    }
}

fn lose_the_device() {
    const LEASES: u32 = 64;
    let pool = pool(64 << 10, 66);
    let wanted = pattern(64 << 10, 1);
    let mut held = pool.try_lease(64 << 10).expect("a slot");
    held.as_mut_slice().copy_from_slice(&wanted);
    let [stream, other] = streams_apart(&pool);
    let mut device = unwatched_memory(&stream, 64 << 10);
    // Before the stream stands still: loading it waits for the device.
    let weapon = Weapon::load(&other);
    let gate = Gate::close_now(&stream);
    let mut flights: Vec<_> = (0..LEASES)
        .map(|at| {
            let lease = filled(&pool, 64 << 10, at as u8);
            lease.upload(&stream, &mut device).expect("queued")
        })
        .collect();
    let kept = flights.pop().expect("one of them");
    drop(flights);
    assert_eq!(counts(&pool), (1, 1, LEASES, 0));
    weapon.fire(&other);
    assert_eq!(counts(&pool).0, 1, "a slot in doubt came home");
    gate.open();
    let error = kept.wait().expect_err("the device is lost");
    assert!(matches!(error, Error::Driver { .. }), "{error}");
    println!("{error}");
    until("all slots in flight are quarantined", || {
        // The last slot is free memory as good as any; then the class is empty, which asks.
        let last = pool.try_lease(1);
        assert!(pool.try_lease(1).is_err(), "a slot in doubt was given out");
        drop(last);
        counts(&pool) == (1, 1, 0, LEASES)
    });
    assert_eq!(held.as_slice(), wanted, "a lease in hand stays readable");
    held.as_mut_slice().fill(3);
    let refused = pool.try_lease(1).expect("a slot").upload(&stream, &mut device);
    println!("{}", refused.expect_err("the device is lost").error);
    let report = close_in_time(&pool, Duration::from_millis(300));
    println!("{report}");
    assert!(!report.is_complete());
    assert!(held.as_slice().iter().all(|byte| *byte == 3));
    drop(held);
}

/// What loses the device, so that every later call in its context fails: on a real one a kernel that
/// writes where no memory is.
struct Weapon {
    kernel: Option<sys::CUfunction>,
}

/// Writes a number to the address that it is given.
const WRITE: &CStr = c".version 7.0
.target sm_75
.address_size 64
.visible .entry write(.param .u64 address)
{
    .reg .u64 %rd<2>;
    .reg .u32 %r<2>;
    ld.param.u64 %rd1, [address];
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

impl Weapon {
    /// Loads the kernel and runs it once where it does no harm.
    fn load(stream: &Arc<CudaStream>) -> Self {
        if software().is_some() {
            return Self { kernel: None };
        }
        stream.context().bind_to_thread().expect("binds");
        // SAFETY: the text is a module that the driver compiles, and ends in a zero.
        let module = unsafe { result::module::load_data(WRITE.as_ptr().cast::<c_void>()) };
        let module = module.expect("the module compiles");
        // SAFETY: the module was loaded above.
        let kernel = unsafe { result::module::get_function(module, c"write".to_owned()) };
        let weapon = Self { kernel: Some(kernel.expect("the kernel is in it")) };
        let room = device_memory(stream, 4096);
        let (address, _recorded) = room.device_ptr(stream);
        weapon.write(stream, address);
        stream.synchronize().expect("it wrote into our memory");
        weapon
    }

    fn write(&self, stream: &Arc<CudaStream>, mut address: u64) {
        let kernel = self.kernel.expect("a real device");
        let once = (1, 1, 1);
        let parameters = &mut [(&raw mut address).cast::<c_void>()];
        // SAFETY: the kernel takes one address. A wrong one harms nothing but this process's context.
        let launched =
            unsafe { result::launch_kernel(kernel, once, once, 0, stream.cu_stream(), parameters) };
        launched.expect("launched");
    }

    fn fire(&self, stream: &Arc<CudaStream>) {
        if let Some(driver) = software() {
            return driver.poison(fakecuda::codes::ILLEGAL_ADDRESS);
        }
        self.write(stream, 64);
        let lost = stream.synchronize().expect_err("the kernel wrote where nothing is");
        println!("{:?}", lost.0);
    }
}
