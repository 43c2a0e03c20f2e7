//! The rules of the driver interface, asked through the C symbols of the built library.
//!
//! Nothing here uses the fake's own controls, so the same file can be held against a real driver:
//! `FAKECUDA_LIB=/path/to/libcuda.so.1 cargo test -p fakecuda --test driver_rules`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed unwrap is a failed test"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard};

use fakecuda::codes::{
    HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_CONTEXT, INVALID_HANDLE,
    INVALID_VALUE, NOT_FOUND, SUCCESS,
};

/// Declares the driver functions that the tests call, by symbol name.
macro_rules! driver {
    ($($name:ident = $symbol:literal ($($arg:ident: $ty:ty),*);)*) => {
        /// The loaded library's functions.
        struct Driver { $($name: extern "C" fn($($ty),*) -> c_int,)* }

        impl Driver {
            fn load() -> Self {
                let path = fakecuda::library().expect("the cdylib is built with the tests");
                // SAFETY: the library's constructors are those of Rust's runtime.
                let library = unsafe { libloading::Library::new(path) }.unwrap();
                let library: &'static libloading::Library = Box::leak(Box::new(library));
                Self {
                    // SAFETY: the signatures are those of the driver's header.
                    $($name: *unsafe { library.get($symbol) }.unwrap(),)*
                }
            }
        }
    };
}

driver! {
    init = b"cuInit"(flags: c_uint);
    error_name = b"cuGetErrorName"(code: c_int, name: *mut *const c_char);
    proc_address = b"cuGetProcAddress_v2"(
        name: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64,
        status: *mut c_int
    );
    context_retain = b"cuDevicePrimaryCtxRetain"(context: *mut usize, device: c_int);
    context_create = b"cuCtxCreate_v2"(context: *mut usize, flags: c_uint, device: c_int);
    context_destroy = b"cuCtxDestroy_v2"(context: usize);
    context_set = b"cuCtxSetCurrent"(context: usize);
    context_get = b"cuCtxGetCurrent"(context: *mut usize);
    register = b"cuMemHostRegister_v2"(pointer: *mut c_void, bytes: usize, flags: c_uint);
    unregister = b"cuMemHostUnregister"(pointer: *mut c_void);
    host_alloc = b"cuMemHostAlloc"(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    host_free = b"cuMemFreeHost"(pointer: *mut c_void);
    pointer_attribute = b"cuPointerGetAttribute"(value: *mut c_uint, which: c_int, at: u64);
    alloc = b"cuMemAlloc_v2"(address: *mut u64, bytes: usize);
    free = b"cuMemFree_v2"(address: u64);
    fill = b"cuMemsetD8_v2"(address: u64, value: u8, bytes: usize);
    upload = b"cuMemcpyHtoDAsync_v2"(to: u64, from: *const c_void, bytes: usize, stream: usize);
    download = b"cuMemcpyDtoH_v2"(to: *mut c_void, from: u64, bytes: usize);
    between = b"cuMemcpyDtoD_v2"(to: u64, from: u64, bytes: usize);
    stream_create = b"cuStreamCreate"(stream: *mut usize, flags: c_uint);
    stream_destroy = b"cuStreamDestroy_v2"(stream: usize);
    stream_wait = b"cuStreamSynchronize"(stream: usize);
    event_create = b"cuEventCreate"(event: *mut usize, flags: c_uint);
    event_destroy = b"cuEventDestroy_v2"(event: usize);
    event_record = b"cuEventRecord"(event: usize, stream: usize);
    event_query = b"cuEventQuery"(event: usize);
    event_wait = b"cuEventSynchronize"(event: usize);
}

static DRIVER: LazyLock<Driver> = LazyLock::new(Driver::load);
/// The driver is one per process; the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Initialises, makes the primary context current, and holds the turn.
fn begin() -> (&'static Driver, MutexGuard<'static, ()>) {
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let driver = &*DRIVER;
    assert_eq!((driver.init)(0), SUCCESS);
    let mut context = 0;
    assert_eq!((driver.context_retain)(&raw mut context, 0), SUCCESS);
    assert_eq!((driver.context_set)(context), SUCCESS);
    (driver, turn)
}

/// Anonymous pages that the test owns.
struct Pages {
    at: *mut c_void,
    len: usize,
}

impl Pages {
    fn new(pages: usize) -> Self {
        let len = pages * 4096;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping touches nothing else.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self { at, len }
    }

    fn byte(&self, offset: usize) -> *mut c_void {
        self.at.wrapping_byte_add(offset)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no copy uses it any more.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

#[test]
fn registration_is_checked() {
    let (cuda, _turn) = begin();
    let pages = Pages::new(4);
    assert_eq!((cuda.register)(pages.at, 0, 0), INVALID_VALUE);
    assert_eq!((cuda.register)(pages.at, 8192, 1 << 9), INVALID_VALUE, "unknown flag");
    assert_eq!((cuda.register)(pages.at, 8192, 3), SUCCESS);
    assert_eq!((cuda.register)(pages.at, 8192, 3), HOST_MEMORY_ALREADY_REGISTERED);
    assert_eq!((cuda.register)(pages.byte(4096), 8192, 3), HOST_MEMORY_ALREADY_REGISTERED);
    assert_eq!((cuda.register)(pages.byte(8192), 8192, 3), SUCCESS, "the next page is free");
    assert_eq!((cuda.unregister)(pages.byte(8192)), SUCCESS);
    assert_eq!((cuda.unregister)(pages.byte(8192)), HOST_MEMORY_NOT_REGISTERED);
    assert_eq!((cuda.unregister)(pages.at), SUCCESS);
}

#[test]
fn host_allocations_are_pinned_and_freed_once() {
    let (cuda, _turn) = begin();
    let mut pointer = std::ptr::null_mut();
    assert_eq!((cuda.host_alloc)(&raw mut pointer, 0, 0), INVALID_VALUE);
    assert_eq!((cuda.host_alloc)(&raw mut pointer, 5000, 1), SUCCESS);
    let mut kind = 0;
    let address = pointer.addr() as u64;
    assert_eq!((cuda.pointer_attribute)(&raw mut kind, 2, address), SUCCESS);
    assert_eq!(kind, 1, "CU_MEMORYTYPE_HOST");
    assert_eq!((cuda.host_free)(pointer), SUCCESS);
    assert_eq!((cuda.host_free)(pointer), INVALID_VALUE);
    let pageable = [0_u8; 16];
    let address = pageable.as_ptr().addr() as u64;
    assert_eq!((cuda.pointer_attribute)(&raw mut kind, 2, address), INVALID_VALUE);
}

#[test]
fn a_thread_without_context_is_refused() {
    let (cuda, _turn) = begin();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let pages = Pages::new(1);
            let (mut pointer, mut event) = (std::ptr::null_mut(), 0);
            assert_eq!((cuda.register)(pages.at, 4096, 1), INVALID_CONTEXT);
            assert_eq!((cuda.host_alloc)(&raw mut pointer, 4096, 1), INVALID_CONTEXT);
            assert_eq!((cuda.event_create)(&raw mut event, 2), INVALID_CONTEXT);
            assert_eq!((cuda.event_record)(event, 0), INVALID_CONTEXT);
        });
    });
}

#[test]
fn bytes_survive_every_kind_of_copy() {
    let (cuda, _turn) = begin();
    let source: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    let (mut one, mut two) = (0, 0);
    assert_eq!((cuda.alloc)(&raw mut one, source.len()), SUCCESS);
    assert_eq!((cuda.alloc)(&raw mut two, source.len()), SUCCESS);
    let mut back = vec![0_u8; source.len()];
    assert_eq!((cuda.upload)(one, source.as_ptr().cast(), source.len(), 0), SUCCESS);
    assert_eq!((cuda.fill)(two, 7, source.len()), SUCCESS);
    assert_eq!((cuda.between)(two + 100, one + 50, 300), SUCCESS);
    assert_eq!((cuda.download)(back.as_mut_ptr().cast(), two, back.len()), SUCCESS);
    assert!(back[..100].iter().chain(&back[400..]).all(|byte| *byte == 7));
    assert_eq!(back[100..400], source[50..350]);
    assert_eq!((cuda.free)(one), SUCCESS);
    assert_eq!((cuda.free)(two), SUCCESS);
    assert_eq!((cuda.free)(two), INVALID_VALUE, "freed twice");
}

#[test]
fn copies_stay_inside_one_allocation_and_one_registration() {
    let (cuda, _turn) = begin();
    let pages = Pages::new(2);
    let mut device = 0;
    assert_eq!((cuda.alloc)(&raw mut device, 4096), SUCCESS);
    assert_eq!((cuda.register)(pages.at, 4096, 1), SUCCESS);
    assert_eq!((cuda.register)(pages.byte(4096), 4096, 1), SUCCESS);
    assert_eq!((cuda.upload)(device, pages.at, 4096, 0), SUCCESS);
    assert_eq!((cuda.upload)(device, pages.byte(2048), 4096, 0), INVALID_VALUE, "spans two");
    assert_eq!((cuda.upload)(0x10_0000, pages.at, 4096, 0), INVALID_VALUE, "no device memory");
    assert_eq!((cuda.stream_wait)(0), SUCCESS);
    assert_eq!((cuda.unregister)(pages.at), SUCCESS);
    assert_eq!((cuda.unregister)(pages.byte(4096)), SUCCESS);
    assert_eq!((cuda.free)(device), SUCCESS);
    assert_eq!((cuda.upload)(device, pages.at, 4096, 0), INVALID_VALUE, "use after free");
}

#[test]
fn events_follow_their_stream_and_stay_in_their_context() {
    let (cuda, _turn) = begin();
    let (mut primary, mut other) = (0, 0);
    assert_eq!((cuda.context_get)(&raw mut primary), SUCCESS);
    let (mut event, mut stream, mut foreign) = (0, 0, 0);
    assert_eq!((cuda.event_create)(&raw mut event, 2), SUCCESS);
    assert_eq!((cuda.event_query)(event), SUCCESS, "never recorded counts as complete");
    assert_eq!((cuda.stream_create)(&raw mut stream, 1), SUCCESS);
    assert_eq!((cuda.event_record)(event, stream), SUCCESS);
    assert_eq!((cuda.event_wait)(event), SUCCESS);
    assert_eq!((cuda.event_query)(event), SUCCESS);
    // A context made by hand becomes current; its streams do not take the first one's events.
    assert_eq!((cuda.context_create)(&raw mut other, 0, 0), SUCCESS);
    assert_eq!((cuda.stream_create)(&raw mut foreign, 1), SUCCESS);
    assert_eq!((cuda.event_record)(event, foreign), INVALID_HANDLE);
    assert_eq!((cuda.stream_destroy)(foreign), SUCCESS);
    assert_eq!((cuda.context_destroy)(other), SUCCESS);
    assert_eq!((cuda.context_set)(primary), SUCCESS);
    assert_eq!((cuda.event_destroy)(event), SUCCESS);
    assert_eq!((cuda.stream_destroy)(stream), SUCCESS);
}

#[test]
fn errors_have_names_and_functions_are_found() {
    let (cuda, _turn) = begin();
    let mut name = std::ptr::null();
    assert_eq!((cuda.error_name)(712, &raw mut name), SUCCESS);
    // SAFETY: the driver gave a static C string.
    let name = unsafe { CStr::from_ptr(name) };
    assert_eq!(name.to_str().unwrap(), "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
    let find = |name: &str| {
        let (name, mut function, mut status) =
            (CString::new(name).unwrap(), std::ptr::null_mut(), -1);
        let code =
            (cuda.proc_address)(name.as_ptr(), &raw mut function, 13_000, 0, &raw mut status);
        (code, function)
    };
    let (code, function) = find("cuMemHostRegister");
    assert_eq!(code, SUCCESS);
    assert_eq!(function.addr(), cuda.register as *const () as usize);
    assert_eq!(find("cuNoSuchFunction"), (NOT_FOUND, std::ptr::null_mut()));
}
