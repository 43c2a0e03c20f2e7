//! What the driver has registered: addresses that come back, ranges that are somebody else's, ranges that
//! it keeps, and calls that are too long for it.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinpool::cuda::CudaPages;
use pinpool::cudarc::driver::{CudaContext, result, sys};
use pinpool::{
    BackendChoice, BackendKind, ClassConfig, Error, HugePages, MemoryCause, MemoryError,
    MemoryStep, Obtained, OnEmpty, PageLock, PageTier, Pinned, Pool, Region,
};

use crate::support::*;
use crate::{Check, check};

pub(crate) const ALL: &[Check] = &[
    check("an_address_that_comes_back_registers_again", an_address_that_comes_back),
    check("a_range_that_is_anothers_is_refused_by_name", a_range_that_is_anothers),
];

pub(crate) const ON_SOFTWARE: &[Check] = &[
    check("a_grown_slab_that_stays_registered_is_given_up", a_grown_slab_that_stays_registered),
    Check {
        name: "no_registration_is_longer_than_a_chunk",
        settings: &[("FAKECUDA_PIN_MAX", LONGEST)],
        run: no_registration_is_longer_than_a_chunk,
    },
];

const MIB: usize = 1 << 20;

/// Kind of fault: memory was unmapped while it was registered; the address came back, and the driver
/// said "already registered".
///
/// The same size again and again, with other mappings of that size in between, which take the address
/// and free it.
///
/// Case register-1.
fn an_address_that_comes_back() {
    const ROUNDS: usize = 200;
    const BYTES: usize = 4 * MIB;
    let mut seen = Vec::new();
    let (mut again, mut others_there) = (0, 0);
    // A context that goes and comes with each pool takes a real driver 0.2 s each time.
    let mut kept = None;
    for round in 0..ROUNDS {
        // Ordinary pages: regions for huge ones begin where a huge page does.
        let builder = Pool::builder().env(false).backend(BackendChoice::Cuda);
        let builder = builder.huge_pages(HugePages::Off).pin_chunk(MIB as u64);
        let pool = builder.class("c", MIB, BYTES / MIB).open().expect("nothing is registered");
        let lease = pool.try_lease(MIB).expect("a slot");
        let (address, context) = (lease.as_ptr().addr(), Arc::clone(context(&pool)));
        kept.get_or_insert_with(|| Arc::clone(&context));
        assert!(is_registered(&context, address), "round {round}");
        drop(lease);
        again += usize::from(seen.contains(&address));
        seen.push(address);
        let report = pool.close(HANG);
        assert!(report.is_complete(), "round {round}: {report}");
        drop(pool);
        assert!(!is_registered(&context, address), "round {round}: forgotten by the pool");
        let other = Mapping::new(BYTES);
        others_there += usize::from(other.holds(address));
        if round % 3 == 0 {
            other.fill(round as u8);
        }
        if let Some(driver) = software() {
            assert_eq!(driver.pinned_bytes(), 0, "round {round}");
            assert_eq!(driver.violations(), 0, "round {round}: unmapped before unregistering");
        }
    }
    println!("{again} of {ROUNDS} addresses came back, {others_there} through another mapping");
    assert!(again > ROUNDS / 4, "only {again} addresses came back: this tests nothing");
    no_harm_done();
}

/// A mapping of the application's own.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize) -> Self {
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the system's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, kind, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { start: NonNull::new(start.cast()).expect("not null"), bytes }
    }

    fn holds(&self, address: usize) -> bool {
        let start = self.start.addr().get();
        (start..start + self.bytes).contains(&address)
    }

    fn fill(&self, value: u8) {
        // SAFETY: the mapping is ours and so long.
        unsafe { self.start.write_bytes(value, self.bytes) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and used by nobody.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        assert_eq!(result, 0);
    }
}

pub(crate) fn is_registered(context: &Arc<CudaContext>, address: usize) -> bool {
    context.bind_to_thread().expect("binds");
    let mut flags = 0;
    // SAFETY: the driver looks the address up and writes one number.
    unsafe { sys::cuMemHostGetFlags(&raw mut flags, address as *mut _) }.result().is_ok()
}

/// CUDA memory of which somebody else registers a part before the pool comes to it.
#[derive(Debug)]
struct Contested {
    pages: CudaPages,
    /// The chunk that is contested, counted from 0.
    at: usize,
    /// The part of it that the other one registers: bytes left out at its start, and its length.
    part: (usize, usize),
    pins: AtomicUsize,
    /// Where the other one's range begins; 0 if there is none.
    others: AtomicUsize,
}

impl Contested {
    fn registered(&self, chunk: Region) {
        let (skip, bytes) = self.part;
        let start = chunk.start.as_ptr().wrapping_add(skip);
        self.pages.context().bind_to_thread().expect("binds");
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the range lies within the chunk, which is mapped.
        let done = unsafe { sys::cuMemHostRegister_v2(start.cast(), bytes, flags) }.result();
        done.expect("nobody has registered it before");
        self.others.store(start.addr(), Ordering::Release);
    }

    /// The other one's range is still registered, and goes.
    fn unregistered(&self) {
        let address = self.others.swap(0, Ordering::AcqRel);
        if address == 0 {
            return;
        }
        self.pages.context().bind_to_thread().expect("binds");
        // SAFETY: registered in `registered`, and used by no copy.
        let done = unsafe { sys::cuMemHostUnregister(address as *mut _) }.result();
        done.expect("the pool did not take what is not its own");
    }
}

// SAFETY: every duty is the CUDA memory's; what is registered beside it goes before the region does.
unsafe impl PageLock for Contested {
    fn kind(&self) -> BackendKind {
        self.pages.kind()
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        self.pages.reserve(bytes)
    }

    fn tiers(&self, bytes: usize) -> Vec<PageTier> {
        self.pages.tiers(bytes)
    }

    fn reserve_as(&self, bytes: usize, tier: PageTier) -> Result<NonNull<u8>, MemoryError> {
        self.pages.reserve_as(bytes, tier)
    }

    unsafe fn obtained(&self, region: Region, tier: PageTier) -> Obtained {
        // SAFETY: the caller's duty is the same.
        unsafe { self.pages.obtained(region, tier) }
    }

    unsafe fn populate(&self, part: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.pages.populate(part) }
    }

    unsafe fn pin(&self, chunk: Region) -> Result<Pinned, MemoryError> {
        if self.pins.fetch_add(1, Ordering::AcqRel) == self.at {
            self.registered(chunk);
        }
        // SAFETY: the caller's duty is the same.
        unsafe { self.pages.pin(chunk) }
    }

    unsafe fn unpin(&self, chunk: Region) -> Result<(), MemoryError> {
        // SAFETY: the caller's duty is the same.
        unsafe { self.pages.unpin(chunk) }
    }

    unsafe fn forgo(&self, part: Region) {
        // SAFETY: the caller's duty is the same.
        unsafe { self.pages.forgo(part) };
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        self.unregistered();
        // SAFETY: the caller's duty is the same.
        unsafe { self.pages.release(region) }
    }

    fn as_any(&self) -> Option<&dyn Any> {
        self.pages.as_any()
    }
}

/// Kind of fault: registering what was registered already failed, and the error that was left over ended
/// an unrelated call with a message that misled.
///
/// The first, a middle and the last of four chunks, as a whole, without its first page, and one page of it.
/// The pool keeps its hands off a range that is not its own.
///
/// Case register-2.
fn a_range_that_is_anothers() {
    const CHUNK: usize = 64 << 10;
    let context = CudaContext::new(0).expect("a device");
    let stream = context.new_stream().expect("a stream");
    for at in [0, 2, 3] {
        for part in [(0, CHUNK), (4096, CHUNK - 4096), (CHUNK - 4096, 4096)] {
            let pages = CudaPages::open(0).expect("a device");
            let (pins, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let memory = Contested { pages, at, part, pins, others };
            let builder = Pool::builder().env(false).pin_chunk(CHUNK as u64);
            let opened = builder.class("c", CHUNK, 4).memory(memory).open();
            let error = opened.expect_err("one chunk is somebody else's");
            let Error::Memory { class, offset, pinned, source, .. } = &error else {
                panic!("{error}")
            };
            let name = "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
            assert_eq!(source.cause, MemoryCause::Driver(name.into()), "{at}, {part:?}");
            assert_eq!((source.step, source.bytes), (MemoryStep::Pin, CHUNK));
            assert_eq!((class.as_str(), *offset), ("c", (at * CHUNK) as u64));
            assert_eq!(*pinned, (at * CHUNK) as u64);
            assert!(error.to_string().contains(name), "{error}");
            // Nothing is left over: neither memory nor an error for the next call.
            context.check_err().expect("no error is parked");
            let mut device = device_memory(&stream, CHUNK);
            let next = pool(CHUNK, 4);
            let copy = filled(&next, CHUNK, at as u8).upload(&stream, &mut device);
            drop(copy.expect("queued").wait().expect("copied"));
            assert_filled(&stream, &device, at as u8);
            drop(next);
            if let Some(driver) = software() {
                assert_eq!(driver.pinned_bytes(), 0, "{at}, {part:?}: left registered");
            }
        }
    }
    result::ctx::synchronize().expect("the context is sound");
    no_harm_done();
}

/// Kind of fault: unregistering failed, yet the region was forgotten, its bytes refunded, and its address
/// given to others.
///
/// Case register-3, at a trim; at a close: `an_unregister_that_fails_keeps_the_memory`.
fn a_grown_slab_that_stays_registered() {
    let class = ClassConfig::new("c", MIB, 2).on_empty(OnEmpty::Grow).grow_by(2).grow_max(2);
    // Room for what grows once, not for twice as much.
    let pool = Pool::builder()
        .env(false)
        .backend(BackendChoice::Cuda)
        .max_pinned(5 * MIB as u64)
        .class_config(class.grow_at(0))
        .open()
        .expect("a pool");
    let mut held: Vec<_> =
        (0..4).map(|_| pool.lease_timeout(MIB, HANG).expect("it grows")).collect();
    let grown = held.iter_mut().find(|lease| lease.slot() >= 2).expect("of the grown slab");
    let address = grown.as_mut_ptr();
    drop(held);
    assert_eq!(driver().pinned_bytes(), 4 * MIB as u64);
    driver().fail("cuMemHostUnregister:1:1").expect("a plan that the driver understands");
    until("the slab that grew goes", || {
        pool.trim();
        class_of(&pool).grown == 0
    });
    let stats = pool.stats();
    assert_eq!((stats.stuck_bytes, stats.pinned_bytes), (2 * MIB as u64, 4 * MIB as u64));
    assert_eq!(driver().pinned_bytes(), 4 * MIB as u64);
    assert_eq!(driver().lost_bytes(), 0, "registered memory was unmapped");
    // SAFETY: what could not be unregistered is not unmapped; nobody else uses it.
    unsafe { address.write_volatile(1) };
    // It is not used again, and its bytes are not there for others.
    let held: Vec<_> = (0..2).map(|_| pool.try_lease(MIB).expect("the first slab")).collect();
    assert!(held.iter().all(|lease| lease.as_ptr() != address.cast_const()));
    assert!(pool.lease_timeout(MIB, std::time::Duration::from_millis(50)).is_err());
    assert_eq!((class_of(&pool).grown, pool.stats().pinned_bytes), (0, 4 * MIB as u64));
    drop(held);
    let report = pool.close(HANG);
    assert_eq!((report.stuck_bytes, report.is_complete()), (2 * MIB as u64, false), "{report}");
    assert_eq!(driver().pinned_bytes(), 2 * MIB as u64, "the first slab is gone, the other stays");
    drop(pool);
    assert_eq!(driver().lost_bytes(), 0, "registered memory was unmapped");
}

fn class_of(pool: &Pool) -> pinpool::ClassStats {
    pool.stats().classes[0].clone()
}

/// One byte less than 64 MiB.
const LONGEST: &str = "67108863";

/// Kind of fault: a registration past the driver's limit always fails.
///
/// Case size-3, through the driver: the GPU's address of each slot is its own.
fn no_registration_is_longer_than_a_chunk() {
    const SLOT: usize = 3 * MIB;
    const SLOTS: usize = 200 / 3;
    let pool = pool(SLOT, SLOTS);
    let chunk = pool.plan().classes[0].chunk_bytes;
    let calls = driver().calls("cuMemHostRegister_v2");
    assert_eq!(calls as usize, (SLOT * SLOTS).div_ceil(chunk));
    let stream = stream(&pool);
    let mut device = device_memory(&stream, SLOT);
    let leases: Vec<_> = (0..SLOTS).map(|at| filled(&pool, SLOT, at as u8)).collect();
    for (at, lease) in leases.into_iter().enumerate() {
        let (start, end) = (lease.as_ptr().addr(), lease.as_ptr().addr() + SLOT - 1);
        assert_eq!(lease.device_ptr(), Some(start as u64), "mapped where it is");
        assert!(is_registered(stream.context(), start) && is_registered(stream.context(), end));
        // A copy that spans two registrations is refused.
        drop(lease.upload(&stream, &mut device).expect("queued").wait().expect("copied"));
        assert_filled(&stream, &device, at as u8);
    }
    drop(device);
    assert!(pool.close(HANG).is_complete());
    // Too long a chunk is an error that names what the driver said, and leaves nothing.
    let builder = Pool::builder().env(false).backend(BackendChoice::Cuda).pin_chunk(128 << 20);
    let error = builder.class("c", SLOT, SLOTS).open().expect_err("one call is too long");
    assert!(error.to_string().contains("CUDA_ERROR_INVALID_VALUE"), "{error}");
    assert_eq!(driver().pinned_bytes(), 0);
    no_harm_done();
}
