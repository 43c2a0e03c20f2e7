//! The exported C functions, one file per chapter of the driver's manual.

mod context;
mod control;
mod copy;
mod event;
mod graph;
mod init;
mod memory;
mod stream;
mod unsupported;

use crate::codes::CuResult;

/// The driver functions of all files.
fn exports() -> impl Iterator<Item = (&'static str, *const ())> {
    [
        context::EXPORTS,
        copy::EXPORTS,
        event::EXPORTS,
        graph::EXPORTS,
        init::EXPORTS,
        memory::EXPORTS,
        stream::EXPORTS,
        unsupported::EXPORTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// The address of an exported driver function.
fn find_export(name: &str) -> Option<*const ()> {
    exports().find(|(known, _)| *known == name).map(|(_, address)| address)
}

/// Whether the library has a driver function of that name.
pub(crate) fn is_exported(name: &str) -> bool {
    find_export(name).is_some()
}

/// A driver handle or device pointer, as wide as a pointer in the C interface.
type Handle = usize;

/// A flag word with no bits beyond `known`.
fn known_flags(flags: u32, known: u32) -> Result<u32, CuResult> {
    if flags & !known == 0 { Ok(flags) } else { Err(crate::codes::INVALID_VALUE) }
}
