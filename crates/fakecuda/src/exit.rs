//! The end of the process: a real driver tears itself down in an exit handler and is not to be called
//! any more. Here each later call is refused, or, on demand, ends the process with a message.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::abi::Res;
use crate::codes;
use crate::config::CallAtExit;
use crate::state::{self, State};

/// The driver's exit handler ran.
static GONE: AtomicBool = AtomicBool::new(false);
/// A call at exit aborts the process: `FAKECUDA_EXIT=strict`.
static STRICT: AtomicBool = AtomicBool::new(false);
/// Driver calls that are being made.
static INSIDE: AtomicU32 = AtomicU32::new(0);

/// How long the end takes in strict mode, so that threads which do not know of it are caught.
const LAST_MOMENT: Duration = Duration::from_millis(300);

/// A driver call that is being made.
pub(crate) struct Inside(());

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Begins the call of `name`.
pub(crate) fn enter(name: &str) -> Res<Inside> {
    INSIDE.fetch_add(1, Ordering::AcqRel);
    let inside = Inside(());
    if !GONE.load(Ordering::Acquire) {
        return Ok(inside);
    }
    if STRICT.load(Ordering::Acquire) {
        die(&format!("AT EXIT: {name} was called when the driver was gone"));
    }
    Err(codes::DEINITIALIZED)
}

/// Has the process's exit take the driver away. Called by `cuInit`.
pub(crate) fn watch(state: &State) {
    static WATCHED: Once = Once::new();
    STRICT.store(state.config.call_at_exit == CallAtExit::Aborts, Ordering::Release);
    WATCHED.call_once(|| {
        // SAFETY: the handler may run at any time.
        if unsafe { libc::atexit(at_exit) } != 0 {
            die("no memory for an exit handler");
        }
    });
}

extern "C" fn at_exit() {
    // The driver is its parent's.
    if state::is_forked_child() {
        return;
    }
    GONE.store(true, Ordering::Release);
    if !STRICT.load(Ordering::Acquire) {
        return;
    }
    if INSIDE.load(Ordering::Acquire) > 0 {
        die("AT EXIT: a call was being made when the driver went");
    }
    std::thread::sleep(LAST_MOMENT);
}

fn die(why: &str) -> ! {
    state::report(why);
    std::process::abort()
}
