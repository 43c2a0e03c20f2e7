//! What the children's tests share: starting a child, a bare pinned buffer, short names.

pub(crate) use std::ffi::c_void;
pub(crate) use std::sync::Arc;
pub(crate) use std::time::{Duration, Instant};

pub(crate) use cudarc::driver::sys::{self, CUresult};
pub(crate) use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError, result};
pub(crate) use fakecuda::Control;

/// Flags of a graph. The type is an enumeration or a bit set, depending on the CUDA version.
pub(crate) const GRAPH_FLAGS: sys::CUgraphInstantiate_flags =
    sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

/// Set in children only.
const CHILD: &str = "FAKECUDA_TEST_CHILD";

/// Runs `body` in a child process with `variables` set; `module` and `name` are the calling test's.
pub(crate) fn in_child(
    module: &str,
    name: &str,
    variables: &[(&str, &str)],
    body: impl FnOnce(Control),
) {
    if std::env::var_os(CHILD).is_some() {
        return body(Control::open().unwrap());
    }
    // libtest names a test by its path below the crate.
    let name =
        module.split_once("::").map_or(name.to_owned(), |(_, path)| format!("{path}::{name}"));
    let dir = tempfile::tempdir().unwrap();
    let mut command = fakecuda::child(dir.path()).unwrap();
    command.args([name.as_str(), "--exact", "--nocapture"]).env(CHILD, "1");
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    assert!(text.contains("1 passed"), "the child ran another test than {name}:\n{text}");
}

/// A pinned buffer of the driver that nothing protects, unlike cudarc's own type.
pub(crate) struct Pinned {
    pub(crate) at: *mut c_void,
    pub(crate) len: usize,
}

impl Pinned {
    pub(crate) fn new(byte: u8, len: usize) -> Self {
        // SAFETY: a plain allocation, freed by the test.
        let at = unsafe { result::malloc_host(len, sys::CU_MEMHOSTALLOC_PORTABLE) }.unwrap();
        let mut pinned = Self { at, len };
        pinned.set(byte);
        pinned
    }

    pub(crate) fn set(&mut self, byte: u8) {
        // SAFETY: the allocation is `len` bytes long.
        unsafe { self.at.cast::<u8>().write_bytes(byte, self.len) };
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation is `len` initialised bytes long; tests synchronise first.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.len) }
    }

    pub(crate) fn free(self) -> Result<(), DriverError> {
        // SAFETY: the last use of the allocation by the host.
        unsafe { result::free_host(self.at) }
    }
}

/// A context with an owned stream.
pub(crate) fn open() -> (Arc<CudaContext>, Arc<CudaStream>) {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    (context, stream)
}

pub(crate) fn handle(stream: &CudaStream) -> usize {
    stream.cu_stream().addr()
}

pub(crate) fn code<T>(result: Result<T, DriverError>) -> CUresult {
    result.map_or_else(|error| error.0, |_| CUresult::CUDA_SUCCESS)
}

pub(crate) fn device_bytes(stream: &Arc<CudaStream>, slice: &CudaSlice<u8>) -> Vec<u8> {
    stream.clone_dtoh(slice).unwrap()
}

/// The address of a slice's device memory.
pub(crate) fn raw(slice: &CudaSlice<u8>, stream: &CudaStream) -> sys::CUdeviceptr {
    use cudarc::driver::DevicePtr;
    slice.device_ptr(stream).0
}

/// Calls a driver function that cudarc declares for newer CUDA versions only.
pub(crate) fn newer<F: Copy>(symbol: &str) -> F {
    // SAFETY: the fake driver is loaded already, and this counts a use of it.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }.unwrap();
    // SAFETY: each caller gives the signature of the driver's header.
    let function = *unsafe { library.get::<F>(symbol.as_bytes()) }.unwrap();
    std::mem::forget(library);
    function
}

/// What `cuStreamGetId` says: a result code, and the number.
pub(crate) fn ask_stream_id(stream: &CudaStream) -> (i32, u64) {
    let get = newer::<extern "C" fn(usize, *mut u64) -> i32>("cuStreamGetId");
    let mut id = 0;
    (get(handle(stream), &raw mut id), id)
}

pub(crate) fn stream_id(stream: &CudaStream) -> u64 {
    let (code, id) = ask_stream_id(stream);
    assert_eq!(code, 0);
    id
}
