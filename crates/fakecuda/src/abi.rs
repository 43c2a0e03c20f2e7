//! The C boundary: how a driver function is declared, entered, and hands results back.

use std::cell::Cell;
use std::ffi::{CStr, c_char};

use parking_lot::MutexGuard;

use crate::codes::{self, CuResult};
use crate::exit;
use crate::state::{self, Guard};

/// Success, or the code that the driver function returns.
pub(crate) type Res<T = ()> = Result<T, CuResult>;

/// What a function demands before its body runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    /// `cuInit` succeeded.
    Init,
    /// That, and no device was lost: the function works on streams, events or memory.
    Work,
    /// That, and a live context is current on the calling thread.
    Context,
}

/// One driver call: the whole driver state, locked, and the calling thread's context.
pub(crate) struct Call {
    pub(crate) state: Guard,
    /// The current context if there is one; sure to be live where [`Need::Context`] was asked.
    pub(crate) context: Option<usize>,
}

impl Call {
    /// The current context, for bodies behind [`Need::Context`].
    pub(crate) fn current(&self) -> Res<usize> {
        self.context.ok_or(codes::INVALID_CONTEXT)
    }
}

/// Counts the call, lets planned failures happen, checks the preconditions, runs the body.
pub(crate) fn enter(
    name: &'static str,
    need: Need,
    body: impl FnOnce(&mut Call) -> Res,
) -> CuResult {
    checked(name, need, body).err().unwrap_or(codes::SUCCESS)
}

fn checked(name: &'static str, need: Need, body: impl FnOnce(&mut Call) -> Res) -> Res {
    if IN_HOST_FUNCTION.get() {
        state::lock().callback_calls += 1;
        return Err(codes::NOT_PERMITTED);
    }
    // A forked child has the parent's state but none of its stream threads; the real driver gives
    // the same answer. Asked before the lock, which another thread may have held during the fork.
    if state::is_forked_child() {
        return Err(codes::NOT_INITIALIZED);
    }
    let _inside = exit::enter(name)?;
    let mut state = state::lock();
    state.count_call(name);
    let planned = state.trip(name);
    if !planned.sleep.is_zero() {
        // Only this call is late: the rest of the driver goes on.
        MutexGuard::unlocked(&mut state, || std::thread::sleep(planned.sleep));
    }
    if let Some(code) = planned.code {
        return Err(code);
    }
    if need != Need::Nothing && !state.initialised {
        return Err(codes::NOT_INITIALIZED);
    }
    let context = state::current_context();
    if need == Need::Context {
        let handle = context.ok_or(codes::INVALID_CONTEXT)?;
        if !state.contexts.contains_key(&handle) {
            return Err(codes::CONTEXT_IS_DESTROYED);
        }
    }
    if matches!(need, Need::Work | Need::Context)
        && let Some(code) = state.sticky
    {
        return Err(code);
    }
    body(&mut Call { state, context })
}

thread_local! {
    /// Set while a stream thread runs a caller's host function, where no driver call is allowed.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs `function` under the rule that it may make no driver call.
pub(crate) fn without_driver_calls(function: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    function();
    IN_HOST_FUNCTION.set(false);
}

/// An out-parameter of a driver function.
///
/// Only a C caller can make one (no constructor, private field), and by the driver's interface an
/// out-parameter is null or points to room for one value.
#[repr(transparent)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Writes the value; a null pointer is the caller's error.
    pub(crate) fn set(&self, value: T) -> Res {
        if self.0.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: not null, hence room for one `T` by the interface (see the type).
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// Writes the value unless the caller passed null, where the interface allows that.
    pub(crate) fn set_if_wanted(&self, value: T) {
        // Only null can fail here, and null means that the caller does not want the value.
        let _ = self.set(value);
    }
}

impl<T: Copy> Out<T> {
    /// Reads what the caller put there (parameters that go in and out).
    pub(crate) fn get(&self) -> Res<T> {
        if self.0.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: not null, hence one initialised `T` by the interface (see the type).
        Ok(unsafe { self.0.read() })
    }

    /// The `index`-th element, where the interface says that the parameter is an array.
    pub(crate) fn element(&self, index: usize) -> Out<T> {
        Out(self.0.wrapping_add(index))
    }
}

/// An untyped out-parameter, whose type another parameter tells (pointer attributes).
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct AnyOut(*mut u8);

impl AnyOut {
    pub(crate) fn typed<T>(self) -> Out<T> {
        Out(self.0.cast())
    }
}

/// A C string parameter: null, or valid up to its terminator, by the driver's interface.
#[repr(transparent)]
pub(crate) struct Text(*const c_char);

impl Text {
    pub(crate) fn get(&self) -> Res<&str> {
        if self.0.is_null() {
            return Err(codes::INVALID_VALUE);
        }
        // SAFETY: not null, hence a terminated string by the interface (see the type).
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| codes::INVALID_VALUE)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// A character buffer that the driver fills; comes with its length.
#[repr(transparent)]
pub(crate) struct TextOut(*mut u8);

impl TextOut {
    /// Writes the text and its terminator, cut to the buffer.
    pub(crate) fn set(&self, room: i32, text: &str) -> Res {
        let room = usize::try_from(room).map_err(|_| codes::INVALID_VALUE)?;
        if self.0.is_null() || room == 0 {
            return Err(codes::INVALID_VALUE);
        }
        let shown = text.len().min(room - 1);
        // SAFETY: the interface promises `room` bytes, and `shown` is less.
        unsafe { self.0.copy_from_nonoverlapping(text.as_ptr(), shown) };
        // SAFETY: as above.
        let end = unsafe { self.0.add(shown) };
        // SAFETY: as above; `shown` is the last byte at most.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// Declares exported driver functions: the C symbol, its precondition and its body.
///
/// The body sees the locked state as the first name in the parentheses and returns [`Res`]. The
/// macro also lists the functions in `EXPORTS`, for `cuGetProcAddress` and planned failures.
macro_rules! driver_api {
    ($(
        $(#[$meta:meta])*
        fn $name:ident [$need:ident] ($call:ident $(, $arg:ident: $ty:ty)* $(,)?) $body:block
    )*) => {
        $(
            $(#[$meta])*
            #[unsafe(no_mangle)]
            extern "C" fn $name($($arg: $ty),*) -> $crate::codes::CuResult {
                $crate::abi::enter(
                    stringify!($name),
                    $crate::abi::Need::$need,
                    |$call: &mut $crate::abi::Call| $body,
                )
            }
        )*

        /// The functions of this file by name.
        pub(super) const EXPORTS: &[(&str, *const ())] =
            &[$((stringify!($name), $name as *const ())),*];
    };
}
pub(crate) use driver_api;
