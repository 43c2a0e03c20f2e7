//! Every driver call that a copy needs fails, once or from then on, and the device is lost at every
//! step: no panic, no hang, no slot in doubt given out, counts that balance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use pinpool::cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use pinpool::{BackendChoice, Lease, Pool};

use crate::Check;
use crate::lost::close_in_time;
use crate::support::*;

pub(crate) const ON_SOFTWARE: &[Check] = &[
    check("the_nth_call_of_every_kind_fails_once", || every_call_fails("")),
    check("every_kind_of_call_fails_from_the_nth_on", || every_call_fails("+")),
    check("the_nth_call_of_every_kind_is_late", every_call_is_late),
    check("a_copy_that_cannot_be_followed_costs_its_slot", a_copy_that_cannot_be_followed),
    check("the_device_is_lost_at_every_step", the_device_is_lost_at_every_step),
    check(GONE, the_driver_is_gone_at_every_step),
    check("the_device_is_lost_in_a_storm", the_device_is_lost_in_a_storm),
    check("a_copy_that_never_ends_is_never_over", a_copy_that_never_ends_is_never_over),
];

const fn check(name: &'static str, run: fn()) -> Check {
    Check { name, settings: &[("FAKECUDA_COPY_DELAY_US", "300")], run }
}

/// What a pool calls between its opening and its end.
const CALLS: &[&str] = &[
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamIsCapturing",
    "cuStreamGetId",
    "cuStreamSynchronize",
    "cuThreadExchangeStreamCaptureMode",
];

/// Questions are asked again and again, so that there is no last one: the first so many fail.
const NTH_MAX: u64 = 60;

const SLOTS: usize = 3;

/// What is there before anything fails.
struct Rig {
    context: Arc<CudaContext>,
    streams: [Arc<CudaStream>; 2],
    devices: Vec<CudaSlice<u8>>,
}

impl Rig {
    fn new() -> Self {
        let context = CudaContext::new(0).expect("a device");
        let streams = [(); 2].map(|()| context.new_stream().expect("a stream"));
        let devices = (0..4).map(|at| unwatched_memory(&streams[at % 2], 4096)).collect();
        Self { context, streams, devices }
    }

    /// The driver works again, and all that is queued runs.
    fn recover(&self) {
        driver().clear_faults();
        driver().poison(0);
        driver().release();
        let _ = self.context.check_err();
        for stream in &self.streams {
            stream.synchronize().expect("the driver works again");
        }
    }
}

fn open() -> Option<Pool> {
    let builder = Pool::builder().env(false).backend(BackendChoice::Cuda);
    builder.pin_chunk(4096).class("c", 4096, SLOTS).open().ok()
}

/// Takes what is free, and writes over it at once: a copy that still reads it is counted as
/// overwritten by the driver.
fn overwrite_what_is_free(pool: &Pool, value: u8) {
    let mut taken = Vec::new();
    while let Ok(mut lease) = pool.lease_timeout(4096, Duration::from_millis(5)) {
        lease.as_mut_slice().fill(value);
        taken.push(lease);
        assert!(taken.len() <= SLOTS);
    }
    class(pool);
}

/// Copies of every kind on two streams, all of which may fail; calls `step` in between.
fn copies(rig: &mut Rig, pool: &Pool, mut step: impl FnMut(&Pool)) {
    let Rig { streams: [one, two], devices, .. } = rig;
    let lease = |value: u8| -> Option<Lease> {
        let mut lease = pool.lease_timeout(4096, Duration::from_millis(5)).ok()?;
        lease.as_mut_slice().fill(value);
        Some(lease)
    };
    step(pool);
    if let Some(lease) = lease(1) {
        drop(lease.upload(one, &mut devices[0]));
    }
    step(pool);
    if let Some(lease) = lease(2) {
        // As cudarc does it; it tells the pool with an event.
        let _ = two.memcpy_htod(&lease, &mut devices[1]);
    }
    step(pool);
    let waited = lease(3).and_then(|lease| lease.upload(two, &mut devices[2]).ok());
    step(pool);
    let other = waited.and_then(|flight| flight.wait().ok());
    step(pool);
    let read = other.or_else(|| lease(4)).and_then(|lease| lease.download(&devices[3], one).ok());
    step(pool);
    drop(read);
    step(pool);
    if let Some(lease) = lease(5) {
        let shared = lease.share();
        let _ = shared.upload(one, &mut devices[0]);
        let _ = shared.upload(two, &mut devices[1]);
    }
    step(pool);
}

/// One pool's life. The driver may fail in the middle of it.
fn life(rig: &mut Rig) {
    let Some(pool) = open() else { return };
    copies(rig, &pool, |pool| {
        class(pool);
    });
    overwrite_what_is_free(&pool, 0xff);
    let report = close_in_time(&pool, Duration::from_millis(40));
    let (free, leased, in_flight, quarantined) = counts(&pool);
    assert_eq!(leased, 0);
    assert!(
        !report.is_complete() || in_flight + quarantined == 0,
        "complete, yet {free} free, {in_flight} in flight, {quarantined} quarantined"
    );
    drop(pool);
}

fn every_call_fails(onwards: &str) {
    for code in [719, 700, 2] {
        befall(onwards, &code.to_string());
    }
}

fn every_call_is_late() {
    befall("", "sleep=3");
}

/// Lets `effect` befall the n-th call of every kind, n = 1, 2, ... until a life is over before.
fn befall(onwards: &str, effect: &str) {
    let mut rig = Rig::new();
    let mut faults = 0;
    for call in CALLS {
        let mut nth = 1;
        while nth <= NTH_MAX {
            let plan = format!("{call}:{nth}{onwards}:{effect}");
            let before = driver().calls(call);
            driver().fail(&plan).expect("a plan that the driver understands");
            life(&mut rig);
            let happened = driver().calls(call) - before >= nth;
            rig.recover();
            assert_eq!(driver().violations(), 0, "{plan}: memory given up under a copy");
            assert_eq!(driver().overwrites(), 0, "{plan}: memory written under a copy");
            assert_eq!(driver().stale_handles(), 0, "{plan}: a dead handle was named");
            if !happened {
                break;
            }
            faults += 1;
            nth += 1;
        }
        println!("{call}{onwards}: {effect} for {} calls", nth - 1);
    }
    assert!(faults > CALLS.len(), "only {faults} faults came to pass");
    println!("{faults} faults");
}

/// Neither an event nor the stream tells when the copy is over: nobody may have the slot again.
fn a_copy_that_cannot_be_followed() {
    let mut rig = Rig::new();
    let pool = open().expect("a pool");
    driver().set_copy_delay_us(50_000);
    driver().fail("cuEventRecord:1+:719").expect("a plan that the driver understands");
    driver().fail("cuStreamSynchronize:1+:719").expect("a plan that the driver understands");
    let lease = filled(&pool, 4096, 1);
    let slot = lease.slot();
    let refused = lease.upload(&rig.streams[0], &mut rig.devices[0]).expect_err("told to fail");
    assert!(refused.lease.is_none(), "the copy may run: nobody may have the lease");
    let lease = filled(&pool, 4096, 2);
    foreign_upload(&lease, &rig.streams[1], &mut rig.devices[1]);
    lease.record_use(&rig.streams[1]).expect_err("told to fail");
    drop(lease);
    until("two slots are given up", || counts(&pool) == (1, 0, 0, 2));
    for _ in 0..20 {
        assert_ne!(filled(&pool, 4096, 0xff).slot(), slot);
        assert_eq!(counts(&pool), (1, 0, 0, 2));
    }
    let report = close_in_time(&pool, Duration::from_millis(50));
    assert!(!report.is_complete(), "{report:?}");
    rig.recover();
    assert_filled(&rig.streams[0], &rig.devices[0], 1);
    assert_filled(&rig.streams[1], &rig.devices[1], 2);
    no_harm_done();
}

/// Codes that mean that nothing will ever work again in this context.
const LOST: &[i32] = &[700, 709, 719, 46, 214, 999];

/// Steps of `copies` at which a loss comes before the wait, which would not end while the streams
/// are held.
const STEPS_BEFORE_THE_WAIT: usize = 4;

fn the_device_is_lost_at_every_step() {
    for code in LOST {
        for at in 0..STEPS_BEFORE_THE_WAIT {
            lose(*code, at).recover();
        }
    }
    no_harm_done();
}

const GONE: &str = "the_driver_is_gone_at_every_step";
/// Set to the step at which it is gone.
const GONE_AT: &str = "GPU_TESTS_DRIVER_GONE_AT";

/// A driver that was shut down answers so to everything, and never comes back in this process.
fn the_driver_is_gone_at_every_step() {
    if let Ok(at) = std::env::var(GONE_AT) {
        drop(lose(4, at.parse().expect("a number")));
        return;
    }
    for at in 0..STEPS_BEFORE_THE_WAIT {
        once_more(GONE, GONE_AT, &at.to_string());
    }
}

/// Loses the device at the given step. Copies are held, so that all that were queued before are in
/// doubt for ever.
fn lose(code: i32, at: usize) -> Rig {
    let mut rig = Rig::new();
    let (pool, spare) = (open().expect("a pool"), open().expect("a second pool"));
    let wanted = pattern(4096, at as u8);
    let mut held = spare.try_lease(4096).expect("a slot");
    held.as_mut_slice().copy_from_slice(&wanted);
    driver().hold();
    let (mut steps, mut in_doubt) = (0, 0);
    copies(&mut rig, &pool, |pool| {
        if steps == at {
            in_doubt = counts(pool).2;
            driver().poison(code);
        }
        steps += 1;
        class(pool);
    });
    assert!(steps > at, "the device was not lost");
    // A class that is empty asks its fences. Whatever is free was never in doubt.
    overwrite_what_is_free(&pool, 0xff);
    let (free, leased, in_flight, quarantined) = counts(&pool);
    println!("{code} at {at}: {free} free, {in_flight} in flight, {quarantined} quarantined");
    assert_eq!(leased, 0);
    assert!(in_flight + quarantined >= in_doubt, "{in_doubt} were in doubt at the loss");
    assert_eq!(held.as_slice(), wanted, "a lease in hand stays readable");
    drop(held);
    close_in_time(&pool, Duration::from_millis(30));
    close_in_time(&spare, Duration::from_millis(30));
    rig
}

/// Threads copy on while it happens; each sees errors, and none hangs.
fn the_device_is_lost_in_a_storm() {
    for code in LOST {
        let rig = Rig::new();
        let pool = open().expect("a pool");
        let over = AtomicBool::new(false);
        let (copied, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (pool, over, copied, failed) = (&pool, &over, &copied, &failed);
                let stream = &rig.streams[thread % 2];
                let mut device = unwatched_memory(stream, 4096);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        let lease = pool.lease_timeout(4096, Duration::from_millis(2));
                        let Ok(mut lease) = lease else { continue };
                        lease.as_mut_slice().fill(thread as u8);
                        match lease.upload(stream, &mut device) {
                            Ok(flight) => drop(flight),
                            Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                        }
                        copied.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            driver().poison(*code);
            std::thread::sleep(Duration::from_millis(20));
            over.store(true, Ordering::Relaxed);
        });
        let (copied, failed) = (copied.into_inner(), failed.into_inner());
        println!("{code}: {copied} copies, {failed} failed, {:?}", counts(&pool));
        assert!(copied > failed, "nothing went well before the loss");
        assert_eq!(counts(&pool).1, 0);
        overwrite_what_is_free(&pool, 0xff);
        close_in_time(&pool, Duration::from_millis(30));
        rig.recover();
        no_harm_done();
    }
}

/// No fault, and never an end: nothing is given out, and nothing waits for ever.
fn a_copy_that_never_ends_is_never_over() {
    let mut rig = Rig::new();
    let pool = open().expect("a pool");
    driver().hold();
    for value in 0..3 {
        let lease = filled(&pool, 4096, value);
        drop(lease.upload(&rig.streams[0], &mut rig.devices[0]).expect("queued"));
    }
    for _ in 0..20 {
        assert!(pool.lease_timeout(4096, Duration::from_millis(5)).is_err());
    }
    assert_eq!(counts(&pool), (0, 0, 3, 0));
    let report = close_in_time(&pool, Duration::from_millis(100));
    assert_eq!(report.in_flight.len(), 3, "{report:?}");
    assert_eq!(report.slabs_left, 1);
    assert_eq!(driver().pinned_bytes(), 3 * 4096, "memory in flight stays pinned");
    drop(pool);
    assert_eq!(driver().pinned_bytes(), 3 * 4096, "memory in flight stays pinned");
    rig.recover();
    assert_filled(&rig.streams[0], &rig.devices[0], 2);
    no_harm_done();
}
