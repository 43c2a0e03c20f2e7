//! For tests in Rust: find the library, put it in the loader's way, steer it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::codes::CuResult;

/// The version of the control functions; a [`Control`] refuses a library of another.
pub(crate) const INTERFACE_VERSION: u32 = 3;

/// The file that cargo builds from this package.
const LIBRARY: &str = "libfakecuda.so";

/// Names under which programs look for the driver. cudarc tries the plain one first, so a
/// toolkit's stub under that name must not win.
const DRIVER_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// Finds the built library: `FAKECUDA_LIB` if set, else beside the running program.
///
/// Tests run from `target/<profile>/deps`, examples from `target/<profile>/examples`; cargo puts
/// the library into `deps` and, for packages named on the command line, one folder above.
///
/// # Errors
///
/// `NotFound` when the library was not built.
pub fn library() -> io::Result<PathBuf> {
    if let Some(path) = std::env::var_os("FAKECUDA_LIB") {
        return std::fs::canonicalize(path);
    }
    let program = std::env::current_exe()?;
    let near = program.ancestors().skip(1).take(2);
    let folders = near.flat_map(|folder| [folder.to_path_buf(), folder.join("deps")]);
    // The same folder can hold an older copy, so the newest one counts.
    let built = folders.filter_map(|folder| {
        let path = folder.join(LIBRARY);
        let time = path.metadata().and_then(|file| file.modified()).ok()?;
        Some((time, path))
    });
    let newest = built.max().map(|(_, path)| path);
    let hint = "libfakecuda.so is not beside this program; build the package fakecuda first";
    newest.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, hint))
}

/// Makes `dir` a folder that holds the library under the driver's names, and returns it.
///
/// A process that is started with this folder first in `LD_LIBRARY_PATH` finds the fake driver in
/// place of a real one. The loader reads the variable only at process start; see [`child`].
///
/// # Errors
///
/// As [`library`], and when the folder cannot be written.
pub fn install(dir: &Path) -> io::Result<PathBuf> {
    let library = library()?;
    std::fs::create_dir_all(dir)?;
    let dir = std::fs::canonicalize(dir)?;
    for name in DRIVER_NAMES {
        let link = dir.join(name);
        if std::fs::read_link(&link).is_ok_and(|target| target == library) {
            continue;
        }
        // By renaming: another thread that installs at the same time must not find it half done.
        let fresh = dir.join(format!("{name}.{:?}", std::thread::current().id()));
        std::os::unix::fs::symlink(&library, &fresh)?;
        std::fs::rename(&fresh, &link)?;
    }
    Ok(dir)
}

/// A command that runs this program again, with the fake driver installed in `dir`.
///
/// The caller adds arguments (for a test: its name and `--exact`) and `FAKECUDA_*` variables.
///
/// # Errors
///
/// As [`install`].
pub fn child(dir: &Path) -> io::Result<Command> {
    let dir = install(dir)?;
    let mut command = Command::new(std::env::current_exe()?);
    let mut paths = vec![dir];
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH") {
        paths.extend(std::env::split_paths(&others));
    }
    let paths = std::env::join_paths(paths).map_err(io::Error::other)?;
    command.env("LD_LIBRARY_PATH", paths);
    Ok(command)
}

/// A handle on the fake driver that this process has loaded, or loads now as `libcuda.so.1`.
///
/// The same library as the one that cudarc finds, because the loader knows files by identity.
#[derive(Debug, Clone, Copy)]
pub struct Control {
    library: *mut c_void,
}

// SAFETY: the handle is only passed to dlsym, which any thread may call, and is never closed.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

/// Declares methods that call the control function of the same name.
macro_rules! controls {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident = $symbol:literal ($($arg:ident: $ty:ty),*) $(-> $result:ty)?;
    )*) => {
        $(
            $(#[$meta])*
            $vis fn $name(&self, $($arg: $ty),*) $(-> $result)? {
                type Function = extern "C" fn($($ty),*) $(-> $result)?;
                let symbol = self.symbol($symbol);
                // SAFETY: `symbol` is the exported function of that name in a library whose
                // interface version is ours, so it has this signature.
                let function = unsafe { std::mem::transmute::<*mut c_void, Function>(symbol) };
                function($($arg),*)
            }
        )*
    };
}

impl Control {
    /// Opens the library.
    ///
    /// # Errors
    ///
    /// `NotFound` if `libcuda.so.1` is absent, is a real driver, or is of another version.
    pub fn open() -> io::Result<Self> {
        let wrong = |text: &str| io::Error::new(io::ErrorKind::NotFound, text);
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: loads the library that the test installed; its constructors are Rust's own. If
        // it is a real driver, loading it is harmless too.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), flags) };
        if library.is_null() {
            return Err(wrong("libcuda.so.1 cannot be loaded: is the fake installed?"));
        }
        let control = Self { library };
        if control.find(c"fakecuda_version").is_none() {
            return Err(wrong("libcuda.so.1 is not the fake driver"));
        }
        if control.version() != INTERFACE_VERSION {
            return Err(wrong("the fake driver is of another version than this test"));
        }
        Ok(control)
    }

    controls! {
        /// The interface version of the library.
        pub fn version = c"fakecuda_version"() -> u32;
        /// Stops all streams before their next operation.
        pub fn hold = c"fakecuda_hold"();
        /// Lets all streams run again.
        pub fn release = c"fakecuda_release"();
        /// Stops one stream (a raw `CUstream`) before its next operation.
        pub fn hold_stream = c"fakecuda_hold_stream"(stream: usize) -> CuResult;
        /// Lets one stream run again, unless all are held.
        pub fn release_stream = c"fakecuda_release_stream"(stream: usize) -> CuResult;
        /// Lets a held stream run `count` operations, recordings and waits included.
        pub fn step = c"fakecuda_step"(stream: usize, count: u64) -> CuResult;
        /// Operations that a stream has not finished.
        pub fn pending = c"fakecuda_pending"(stream: usize) -> u64;
        /// How long each copy takes from now on.
        pub fn set_copy_delay_us = c"fakecuda_set_copy_delay_us"(micros: u64);
        /// Forgets all planned failures.
        pub fn clear_faults = c"fakecuda_clear_faults"();
        /// Loses the device: every call returns `code` from now on; 0 brings it back.
        pub fn poison = c"fakecuda_poison"(code: c_int);
        /// Sets calls, violations, overwrites and the like back to 0.
        pub fn reset_counters = c"fakecuda_reset_counters"();
        /// Memory that was taken away while a queued copy still used it. Must stay 0.
        pub fn violations = c"fakecuda_violations"() -> u64;
        /// Copies to the device whose host bytes changed between the call and the copying.
        pub fn overwrites = c"fakecuda_overwrites"() -> u64;
        /// Calls that named a stream or an event which was destroyed before.
        pub fn stale_handles = c"fakecuda_stale_handles"() -> u64;
        /// Driver calls made inside host functions, where none is allowed.
        pub fn callback_calls = c"fakecuda_callback_calls"() -> u64;
        /// Host bytes that are registered or were allocated by the driver.
        pub fn pinned_bytes = c"fakecuda_pinned_bytes"() -> u64;
        /// Host bytes that are registered and not mapped any more: memory that was given up under the driver.
        /// Must stay 0.
        pub fn lost_bytes = c"fakecuda_lost_bytes"() -> u64;
        /// Device bytes in use, on all devices.
        pub fn device_bytes = c"fakecuda_device_bytes"() -> u64;
        /// Events created and not destroyed.
        pub fn live_events = c"fakecuda_live_events"() -> u64;
        /// Streams created and not destroyed.
        pub fn live_streams = c"fakecuda_live_streams"() -> u64;
        /// Contexts that exist.
        pub fn live_contexts = c"fakecuda_live_contexts"() -> u64;
        /// [`Control::fail`] on the C side.
        fn fail_raw = c"fakecuda_fail"(plan: *const c_char) -> CuResult;
        /// [`Control::calls`] on the C side.
        fn calls_raw = c"fakecuda_calls"(name: *const c_char) -> u64;
    }

    /// Plans a fault (`"cuEventRecord:3:719"`, `"cuEventRecord:3:sleep=50"`), counted from now on.
    ///
    /// # Errors
    ///
    /// `InvalidInput` when the plan is malformed or names no function of the library.
    pub fn fail(&self, plan: &str) -> io::Result<()> {
        let plan = CString::new(plan).map_err(io::Error::other)?;
        match self.fail_raw(plan.as_ptr()) {
            0 => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the plan was refused")),
        }
    }

    /// Calls of one driver function since the start or the last reset.
    pub fn calls(&self, name: &str) -> u64 {
        CString::new(name).map_or(0, |name| self.calls_raw(name.as_ptr()))
    }

    /// Calls of all driver functions.
    pub fn all_calls(&self) -> u64 {
        self.calls_raw(std::ptr::null())
    }

    fn find(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle came from dlopen and is never closed; the name is a C string.
        let symbol = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }

    /// A function of this interface version, which `open` has checked.
    fn symbol(&self, name: &CStr) -> *mut c_void {
        let Some(symbol) = self.find(name) else {
            unreachable!("{name:?} belongs to interface version {INTERFACE_VERSION}");
        };
        symbol
    }
}
