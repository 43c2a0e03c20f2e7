//! Copies and fills as callers ask for them: both ends resolved and checked, then queued.

use std::ffi::c_uint;
use std::sync::Arc;

use crate::abi::{Call, Res};
use crate::codes;
use crate::device_memory::is_device_address;
use crate::host_memory::is_mapped;
use crate::state;
use crate::streams::StreamId;
use crate::work::{Copy, Op, Side, fingerprint, read_host};

/// What kind of address the function's name promises.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Host,
    /// Device memory, or pinned host memory through its device address.
    Device,
    Either,
}

/// An address and its promised kind.
pub(crate) type End = (Kind, u64);

/// Whether the caller waits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Sync,
    Async,
}

/// Where an address lies.
enum Place {
    Fixed(Side),
    Pageable(usize),
}

impl Call {
    /// Queues a copy; waits for it in synchronous calls, and where pageable memory is written.
    pub(crate) fn copy(
        &mut self,
        to: End,
        from: End,
        len: usize,
        stream: usize,
        mode: Mode,
    ) -> Res {
        let id = self.state.stream(stream, self.context)?;
        if mode == Mode::Sync {
            self.state.refuse_during_capture()?;
        }
        if len == 0 {
            return Ok(());
        }
        let context = self.state.stream_ref(id)?.context;
        let capturing = self.state.stream_ref(id)?.capture.is_some();
        let from = self.place(from, len, context)?;
        let to = self.place(to, len, context)?;
        let mut wait = mode == Mode::Sync;
        let from = match from {
            Place::Fixed(side) => side,
            // A graph reads pageable memory anew at each launch.
            Place::Pageable(address) if capturing => Side::Host(address),
            Place::Pageable(address) => Side::Staged(read_host(address, len).into()),
        };
        let to = match to {
            Place::Fixed(side) => side,
            Place::Pageable(address) => {
                wait |= !capturing;
                Side::Host(address)
            }
        };
        let fingerprint = self.fingerprint(&from, len, capturing);
        self.state.enqueue(id, Op::Copy(Copy { to, from, len, fingerprint }))?;
        self.finish(id, wait)
    }

    /// Queues a fill of `count` elements of `width` bytes.
    pub(crate) fn fill(
        &mut self,
        to: u64,
        value: c_uint,
        width: usize,
        count: usize,
        stream: usize,
        mode: Mode,
    ) -> Res {
        let id = self.state.stream(stream, self.context)?;
        if !to.is_multiple_of(width as u64) {
            return Err(codes::INVALID_VALUE);
        }
        let len = count.checked_mul(width).ok_or(codes::INVALID_VALUE)?;
        if len == 0 {
            return Ok(());
        }
        let context = self.state.stream_ref(id)?.context;
        let Place::Fixed(to) = self.place((Kind::Device, to), len, context)? else {
            return Err(codes::INVALID_VALUE);
        };
        let bytes = value.to_le_bytes();
        let pattern = std::array::from_fn(|at| bytes[at % width]);
        self.state.enqueue(id, Op::Fill { to, pattern, len })?;
        self.finish(id, mode == Mode::Sync)
    }

    fn finish(&mut self, id: StreamId, wait: bool) -> Res {
        if !wait {
            return Ok(());
        }
        let mark = self.state.mark(id)?;
        state::wait_until(&mut self.state, |_| mark.is_done())
    }

    fn place(&self, (kind, address): End, len: usize, context: usize) -> Res<Place> {
        if is_device_address(address) {
            if kind == Kind::Host {
                return Err(codes::INVALID_VALUE);
            }
            let (buffer, offset) = self.state.device.find(address, len)?;
            return Ok(Place::Fixed(Side::Device(buffer, offset)));
        }
        let address = usize::try_from(address).map_err(|_| codes::INVALID_VALUE)?;
        match self.state.host.find(address, len)? {
            Some(region) if region.pinned_for(context) => Ok(Place::Fixed(Side::Host(address))),
            None if kind == Kind::Device => Err(codes::INVALID_VALUE),
            // Reading what is not mapped would kill the process here instead of failing the call.
            _ if !is_mapped(address, len) => Err(codes::INVALID_VALUE),
            _ => Ok(Place::Pageable(address)),
        }
    }

    /// The source's present contents, where nothing queued is going to change them rightly.
    fn fingerprint(&self, from: &Side, len: usize, capturing: bool) -> Option<u64> {
        let Side::Host(address) = *from else { return None };
        if capturing || self.state.host_written(&(address..address + len)) {
            return None;
        }
        is_mapped(address, len).then(|| fingerprint(address, len))
    }

    /// Waits until no queued work uses a device allocation, as `cuMemFree` does.
    pub(crate) fn free_device(&mut self, address: u64) -> Res {
        if address == 0 {
            return Ok(());
        }
        let buffer = Arc::clone(&self.state.device.at(address).ok_or(codes::INVALID_VALUE)?.buffer);
        state::wait_until(&mut self.state, |state| !state.buffer_in_use(&buffer))?;
        let gone = self.state.device.remove(address).ok_or(codes::INVALID_VALUE)?;
        self.state.device.give_back(gone.device, gone.len);
        Ok(())
    }

    /// Ends a device allocation in stream order; its address is invalid from now on.
    pub(crate) fn free_device_on(&mut self, address: u64, stream: usize) -> Res {
        let id = self.state.stream(stream, self.context)?;
        if address == 0 {
            return Ok(());
        }
        self.state.refuse_if_capturing(id)?;
        let gone = self.state.device.remove(address).ok_or(codes::INVALID_VALUE)?;
        let (buffer, device, len) = (gone.buffer, gone.device, gone.len);
        self.state.enqueue(id, Op::Free { buffer, device, len })
    }
}
