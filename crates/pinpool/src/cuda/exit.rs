//! The end of the process: from the exit handlers on, the driver is going or gone, and no call that
//! comes by itself (from a keeper or a drop) is made to it any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;

use crate::process::Home;
use crate::sync::plain::{AtomicPtr, AtomicU32, Ordering};

/// The exit flag, and how many threads are inside a driver call: one word, so that each call comes
/// either before the flag and is waited for, or behind it and is not made.
static STATE: AtomicU32 = AtomicU32::new(0);
const EXITING: u32 = 1 << 31;

/// Whose exit it is: a forked child inherits the handler, and a count of threads that it lacks.
static HOME: AtomicPtr<Home> = AtomicPtr::new(std::ptr::null_mut());

/// Has the process's exit waited for. Called when the driver is initialised and a context is there, so
/// that the handler runs before all of the driver's, which were registered earlier.
pub(super) fn watch() -> Result<(), String> {
    if !HOME.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    let home =
        Home::here().map_err(|error| format!("no memory for the process's mark: {error}"))?;
    let home = Box::into_raw(Box::new(home));
    let (free, own) = (std::ptr::null_mut(), Ordering::AcqRel);
    if HOME.compare_exchange(free, home, own, Ordering::Acquire).is_err() {
        // SAFETY: made above, and not published.
        drop(unsafe { Box::from_raw(home) });
        return Ok(());
    }
    // SAFETY: the handler is safe to call at any time, and never unloaded before it ran.
    if unsafe { libc::atexit(at_exit) } == 0 {
        return Ok(());
    }
    // The next pool tries again. Another thread may look at the mark, which is therefore kept.
    HOME.store(std::ptr::null_mut(), Ordering::Release);
    Err("the C library takes no exit handler: it has no memory".to_owned())
}

/// Raises the flag and waits a moment for the calls that are being made.
extern "C" fn at_exit() {
    if crate::seeded::bug("driver-after-exit") {
        return;
    }
    let before = STATE.fetch_or(EXITING, Ordering::AcqRel);
    // SAFETY: published by `watch`, and never freed.
    let here = unsafe { HOME.load(Ordering::Acquire).as_ref() }.is_some_and(Home::is_here);
    if before & !EXITING == 0 || !here {
        return;
    }
    let start = Instant::now();
    while STATE.load(Ordering::Acquire) != EXITING && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// True once the process exits.
pub(crate) fn is_exiting() -> bool {
    STATE.load(Ordering::Acquire) & EXITING != 0
}

/// While it lives, the calling thread may call the driver.
#[derive(Debug)]
pub(super) struct Inside(());

/// Begins a driver call that nobody asked for at this moment; `None` once the process exits, and in a
/// forked child, where the driver is the parent's (I12).
pub(super) fn enter() -> Option<Inside> {
    let inside = Inside(());
    // `Acquire` and `Release` keep the call between entering and leaving.
    let runs = STATE.fetch_add(1, Ordering::AcqRel) & EXITING == 0;
    // SAFETY: published by `watch`, and never freed.
    let home = unsafe { HOME.load(Ordering::Acquire).as_ref() };
    (runs && home.is_none_or(Home::is_here)).then_some(inside)
}

impl Drop for Inside {
    fn drop(&mut self) {
        STATE.fetch_sub(1, Ordering::Release);
    }
}

/// Leaves a context to the end of the process: releasing the last reference calls the driver.
pub(super) fn leave(context: &Arc<CudaContext>) {
    std::mem::forget(Arc::clone(context));
}

/// A question to the driver takes microseconds; a call that takes longer is stuck.
const PATIENCE: Duration = Duration::from_millis(100);
