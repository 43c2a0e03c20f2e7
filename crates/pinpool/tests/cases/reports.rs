//! What a lease says it is, and what an error says happened.

use std::ptr::NonNull;

use pinpool::{
    BackendChoice, BackendKind, Error, LockMode, MemoryCause, MemoryError, MemoryStep, PageLock,
    Pinned, Pool, Region,
};
use pinpool_testkit::proc;
use pinpool_testkit::scripted::{Counted, Fault, Faulty};
use rustix::mm::{MapFlags, ProtFlags};
use tracing::Level;

use crate::support::{alone, not_run};
use crate::{builder, log};

fn assert_words(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is missing: {text}");
    }
}

/// Asserts what a pool and its leases say of their memory.
fn assert_is(pool: &Pool, backend: BackendKind, pinned: bool, device_accessible: bool) {
    let stats = pool.stats();
    assert_eq!((pool.backend(), stats.backend), (backend, backend));
    assert_eq!((pool.is_pinned(), stats.pinned), (pinned, pinned));
    assert_eq!(pool.is_device_accessible(), device_accessible);
    assert_eq!(stats.device_accessible, device_accessible);
    for class in &stats.classes {
        let lease = pool.try_lease(class.slot_bytes).unwrap();
        assert_eq!(lease.backend(), backend);
        assert_eq!((lease.is_pinned(), lease.is_device_accessible()), (pinned, device_accessible));
        assert_eq!(lease.device_ptr().is_some(), device_accessible);
    }
    let device = if device_accessible { ", GPU-accessible" } else { "not GPU-accessible" };
    assert_words(&stats.to_string(), &[&format!("backend {backend}"), device]);
}

/// Kind of fault: memory locked with `mlock` was taken for memory that a GPU copies from at full
/// speed, which only the driver's own registration gives.
///
/// Case stats-4.
#[test]
fn locked_memory_is_not_called_accessible_to_a_gpu() {
    let pool = || builder().class("a", 4096, 2).class("b", 100, 3);
    let mode = proc::lock_mode_for(3 * 4096);
    if mode == LockMode::Try {
        not_run("what locked memory says it is: the locked-memory limit is too small");
    }
    let locked = mode == LockMode::Require;
    assert_is(&pool().lock(mode).open().unwrap(), BackendKind::Host, locked, false);
    assert_is(&pool().lock(LockMode::Off).open().unwrap(), BackendKind::Host, false, false);
}

/// Nobody could tell from a log on which pages and nodes the memory of a pool lay.
#[test]
fn the_line_of_an_open_pool_says_what_its_memory_lies_on() {
    log::listen();
    let pool = builder().class("logged-slab", 4096, 2).lock(LockMode::Off).open().unwrap();
    let [slab] = &pool.startup().slabs[..] else { panic!("one class, one slab") };
    assert_eq!((slab.class.as_str(), slab.bytes, slab.huge_bytes), ("logged-slab", 8192, 0));
    let lines = log::lines(Level::INFO, "logged-slab");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let node = slab.node.map_or(String::new(), |node| format!(" on node {node}"));
    assert_words(line, &[&format!("slabs=\"logged-slab base{node}\"")]);
    assert_eq!(slab.to_string(), format!("logged-slab base{node}"));
}

/// Case stats-4, with a driver beside it: the host backend stays what it is.
#[cfg(feature = "cuda")]
#[test]
fn only_memory_of_the_driver_is_called_accessible_to_a_gpu() {
    software_driver("only_memory_of_the_driver_is_called_accessible_to_a_gpu", &[], || {
        let pool = || builder().class("a", 4096, 2).class("b", 100, 3);
        let mode = proc::lock_mode_for(3 * 4096);
        let locked = mode == LockMode::Require;
        assert_is(&pool().lock(mode).open().unwrap(), BackendKind::Host, locked, false);
        let cuda = pool().backend(BackendChoice::Cuda).open().unwrap();
        assert_is(&cuda, BackendKind::Cuda, true, true);
    });
}

/// Runs `body` in a child of its own on the software driver.
#[cfg(feature = "cuda")]
fn software_driver(test: &str, variables: &[(&str, &str)], body: impl FnOnce()) {
    use pinpool_testkit::child;
    if child::in_child() {
        return body();
    }
    let dir = tempfile::tempdir().unwrap();
    match fakecuda::install(dir.path()) {
        Err(error) => not_run(&format!("{test}: {error}")),
        Ok(dir) => {
            let mut command = child::command(&format!("reports::{test}"), variables);
            command.env("LD_LIBRARY_PATH", dir);
            crate::support::finish(command);
        }
    }
}

/// Kind of fault: a failed pin of host memory read 'out of memory' and sent people to the GPU, while
/// a default of the configuration was the cause.
///
/// Case stats-5.
#[test]
fn a_failed_pin_says_host_memory_how_much_and_which_key_to_change() {
    let chunk = 256 << 20;
    let (counted, ledger) = Counted::new(Lazy(BackendKind::Custom("lazy")));
    let fault = Fault::nth(20).of(MemoryStep::Pin).os(libc::ENOMEM);
    let (memory, _log) = Faulty::new(counted, fault);
    let error = builder().class("frame", 64 << 20, 128).memory(memory).open().unwrap_err();
    let text = error.to_string();
    let Error::Memory { class, pinned, total, source } = &error else {
        panic!("another error: {text}");
    };
    if source.step == MemoryStep::Reserve {
        not_run("a failed pin of 8 GiB: this system reserves no address space without memory");
        return;
    }
    assert_eq!((class.as_str(), *pinned, *total), ("frame", 19 * chunk as u64, 8 << 30));
    assert_eq!((source.step, source.bytes), (MemoryStep::Pin, chunk));
    assert_eq!(source.cause, MemoryCause::Os(libc::ENOMEM));
    assert_words(
        &text,
        &[
            "class 'frame'",
            "pin 268435456 bytes",
            "Cannot allocate memory",
            "5100273664 of 8589934592 bytes of host RAM",
            "not GPU memory",
            "`count` or `size`",
            "`max_pinned`",
        ],
    );
    assert_eq!(ledger.calls(MemoryStep::Unpin), 19, "and all of it was given back");
    ledger.assert_clean();
}

/// Case stats-5: a limit that is the cause is named with its numbers and the key to change.
#[test]
fn a_failed_lock_names_the_limit_and_the_key() {
    const NAME: &str = "a_failed_lock_names_the_limit_and_the_key";
    alone(&format!("reports::{NAME}"), &[], || {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit =
            Rlimit { current: Some(8 << 20), maximum: getrlimit(Resource::Memlock).maximum };
        if setrlimit(Resource::Memlock, limit).is_err() {
            return not_run(&format!("{NAME}: the limit cannot be set to 8 MiB"));
        }
        // What the kernel answers to a process that the limit binds, which root is not.
        let (memory, _log) = Faulty::new(
            Lazy(BackendKind::Host),
            Fault::nth(3).of(MemoryStep::Pin).os(libc::ENOMEM),
        );
        let pool = builder().class("frame", 4 << 20, 16).pin_chunk(4 << 20).memory(memory);
        let error = pool.open().unwrap_err();
        assert!(matches!(error, Error::MemlockLimit { .. }), "{error}");
        assert_words(
            &error.to_string(),
            &[
                "67108864 bytes of host memory",
                "8388608 of them were locked",
                "RLIMIT_MEMLOCK is 8388608 bytes soft",
                "lock = \"try\"",
            ],
        );
    });
}

/// Case stats-5, with the driver's own 'out of memory'.
#[cfg(feature = "cuda")]
#[test]
fn the_drivers_out_of_memory_is_said_to_be_host_memory() {
    let name = "the_drivers_out_of_memory_is_said_to_be_host_memory";
    software_driver(name, &[("FAKECUDA_PIN_LIMIT", "1048576")], || {
        let pool = builder().backend(BackendChoice::Cuda).pin_chunk(256 << 10);
        let error = pool.class("frame", 64 << 10, 64).open().unwrap_err();
        let Error::Memory { pinned: 1_048_576, total: 4_194_304, .. } = error else {
            panic!("{error:?}");
        };
        assert_words(
            &error.to_string(),
            &[
                "class 'frame'",
                "pin 262144 bytes",
                "CUDA_ERROR_OUT_OF_MEMORY",
                "1048576 of 4194304 bytes of host RAM",
                "not GPU memory",
                "`count` or `size`",
            ],
        );
        let control = fakecuda::Control::open().unwrap();
        assert_eq!(control.pinned_bytes(), 0, "everything was rolled back");
        assert_eq!(control.violations(), 0);
    });
}

/// Address space without memory behind it, which claims to be pinned: for sizes that this machine
/// does not have. It calls itself what it is told.
#[derive(Debug)]
struct Lazy(BackendKind);

// SAFETY: B1 an anonymous mapping reads as zeroes and is private; B2 and B3 the other steps do
// nothing; B4 is waived, these tests only open pools that fail; B5 no device address is claimed; B6
// nothing here unwinds or calls the pool.
unsafe impl PageLock for Lazy {
    fn kind(&self) -> BackendKind {
        self.0
    }

    fn takes_system_memory(&self) -> bool {
        false
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, MemoryError> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) };
        let mapped = mapped.map_err(|error| MemoryError::os(MemoryStep::Reserve, bytes, error))?;
        Ok(NonNull::new(mapped.cast()).unwrap())
    }

    unsafe fn populate(&self, _: Region) -> Result<(), MemoryError> {
        Ok(())
    }

    unsafe fn pin(&self, _: Region) -> Result<Pinned, MemoryError> {
        Ok(Pinned { locked: true, device_base: None })
    }

    unsafe fn unpin(&self, _: Region) -> Result<(), MemoryError> {
        Ok(())
    }

    unsafe fn release(&self, region: Region) -> Result<(), MemoryError> {
        // SAFETY: the region is exactly one mapping of `reserve` (caller).
        unsafe { rustix::mm::munmap(region.start.as_ptr().cast(), region.bytes) }
            .map_err(|error| MemoryError::os(MemoryStep::Release, region.bytes, error))
    }
}
