//! Copies and fills.

use std::ffi::{c_uchar, c_uint, c_ushort, c_void};

use super::Handle;
use crate::abi::driver_api;
use crate::copies::{End, Kind, Mode};

/// Synchronous calls run on the null stream.
const NULL_STREAM: Handle = 0;

fn host(pointer: *const c_void) -> End {
    (Kind::Host, pointer.expose_provenance() as u64)
}

fn device(address: u64) -> End {
    (Kind::Device, address)
}

fn either(address: u64) -> End {
    (Kind::Either, address)
}

driver_api! {
    fn cuMemcpyHtoD_v2[Context](call, to: u64, from: *const c_void, bytes: usize) {
        call.copy(device(to), host(from), bytes, NULL_STREAM, Mode::Sync)
    }

    fn cuMemcpyHtoDAsync_v2[Context](
        call,
        to: u64,
        from: *const c_void,
        bytes: usize,
        stream: Handle,
    ) {
        call.copy(device(to), host(from), bytes, stream, Mode::Async)
    }

    fn cuMemcpyDtoH_v2[Context](call, to: *mut c_void, from: u64, bytes: usize) {
        call.copy(host(to), device(from), bytes, NULL_STREAM, Mode::Sync)
    }

    fn cuMemcpyDtoHAsync_v2[Context](
        call,
        to: *mut c_void,
        from: u64,
        bytes: usize,
        stream: Handle,
    ) {
        call.copy(host(to), device(from), bytes, stream, Mode::Async)
    }

    fn cuMemcpyDtoD_v2[Context](call, to: u64, from: u64, bytes: usize) {
        call.copy(device(to), device(from), bytes, NULL_STREAM, Mode::Sync)
    }

    fn cuMemcpyDtoDAsync_v2[Context](call, to: u64, from: u64, bytes: usize, stream: Handle) {
        call.copy(device(to), device(from), bytes, stream, Mode::Async)
    }

    fn cuMemcpy[Context](call, to: u64, from: u64, bytes: usize) {
        call.copy(either(to), either(from), bytes, NULL_STREAM, Mode::Sync)
    }

    fn cuMemcpyAsync[Context](call, to: u64, from: u64, bytes: usize, stream: Handle) {
        call.copy(either(to), either(from), bytes, stream, Mode::Async)
    }

    fn cuMemcpyPeerAsync[Context](
        call,
        to: u64,
        _to_context: Handle,
        from: u64,
        _from_context: Handle,
        bytes: usize,
        stream: Handle,
    ) {
        call.copy(device(to), device(from), bytes, stream, Mode::Async)
    }

    fn cuMemsetD8_v2[Context](call, to: u64, value: c_uchar, count: usize) {
        call.fill(to, c_uint::from(value), 1, count, NULL_STREAM, Mode::Sync)
    }

    fn cuMemsetD8Async[Context](call, to: u64, value: c_uchar, count: usize, stream: Handle) {
        call.fill(to, c_uint::from(value), 1, count, stream, Mode::Async)
    }

    fn cuMemsetD16_v2[Context](call, to: u64, value: c_ushort, count: usize) {
        call.fill(to, c_uint::from(value), 2, count, NULL_STREAM, Mode::Sync)
    }

    fn cuMemsetD16Async[Context](call, to: u64, value: c_ushort, count: usize, stream: Handle) {
        call.fill(to, c_uint::from(value), 2, count, stream, Mode::Async)
    }

    fn cuMemsetD32_v2[Context](call, to: u64, value: c_uint, count: usize) {
        call.fill(to, value, 4, count, NULL_STREAM, Mode::Sync)
    }

    fn cuMemsetD32Async[Context](call, to: u64, value: c_uint, count: usize, stream: Handle) {
        call.fill(to, value, 4, count, stream, Mode::Async)
    }
}
