//! Device memory: ordinary host bytes behind addresses that no host pointer can have.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::abi::Res;
use crate::codes;

/// First device address. It lies above every user-space address of x86-64 and 64-bit Arm, so a
/// host that dereferences a device pointer crashes.
const BASE: u64 = 0x00fa_0000_0000_0000;
/// Room between the first addresses of two devices.
const PER_DEVICE: u64 = 1 << 48;
/// Distance between allocations: real drivers align to 256 bytes or more, and the gap makes an
/// overrun miss the neighbour. Addresses are never used twice, so a stale one is always noticed.
const GRANULE: u64 = 4096;
/// What fresh memory holds, so that reading it before writing shows.
const FRESH: u8 = 0xa5;

/// The bytes of one allocation; copies that are under way keep them alive.
pub(crate) struct DeviceBuffer {
    bytes: Mutex<Box<[u8]>>,
}

impl DeviceBuffer {
    /// Runs `work` on `len` bytes from `offset` on; nothing happens outside the buffer.
    pub(crate) fn with<R>(
        &self,
        offset: usize,
        len: usize,
        work: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        self.bytes.lock().get_mut(offset..offset.checked_add(len)?).map(work)
    }
}

/// A live allocation.
pub(crate) struct Allocation {
    pub(crate) len: usize,
    pub(crate) device: i32,
    pub(crate) context: usize,
    pub(crate) buffer: Arc<DeviceBuffer>,
}

/// The allocations of every device, by address.
pub(crate) struct DeviceMemory {
    allocations: BTreeMap<u64, Allocation>,
    /// Bytes in use and the next free address, by device.
    used: BTreeMap<i32, (u64, u64)>,
}

impl DeviceMemory {
    pub(crate) const fn new() -> Self {
        Self { allocations: BTreeMap::new(), used: BTreeMap::new() }
    }

    pub(crate) fn used_bytes(&self, device: i32) -> u64 {
        self.used.get(&device).map_or(0, |(bytes, _)| *bytes)
    }

    pub(crate) fn total_used_bytes(&self) -> u64 {
        self.used.values().map(|(bytes, _)| bytes).sum()
    }

    /// Allocates; the address is the device pointer.
    pub(crate) fn allocate(
        &mut self,
        device: i32,
        context: usize,
        len: usize,
        capacity: u64,
    ) -> Res<u64> {
        let first = BASE + u64::from(device.unsigned_abs()) * PER_DEVICE;
        let (bytes, next) = self.used.entry(device).or_insert((0, first));
        let after = bytes.checked_add(len as u64).ok_or(codes::OUT_OF_MEMORY)?;
        if after > capacity {
            return Err(codes::OUT_OF_MEMORY);
        }
        *bytes = after;
        let address = *next;
        *next += (len as u64).next_multiple_of(GRANULE) + GRANULE;
        let buffer =
            Arc::new(DeviceBuffer { bytes: Mutex::new(vec![FRESH; len].into_boxed_slice()) });
        self.allocations.insert(address, Allocation { len, device, context, buffer });
        Ok(address)
    }

    /// Ends an allocation; its bytes count until [`DeviceMemory::give_back`].
    pub(crate) fn remove(&mut self, address: u64) -> Option<Allocation> {
        self.allocations.remove(&address)
    }

    pub(crate) fn give_back(&mut self, device: i32, len: usize) {
        if let Some((bytes, _)) = self.used.get_mut(&device) {
            *bytes -= len as u64;
        }
    }

    pub(crate) fn at(&self, address: u64) -> Option<&Allocation> {
        self.allocations.get(&address)
    }

    /// The live allocation that holds `address`, and its first address.
    pub(crate) fn holding(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (&base, allocation) = self.allocations.range(..=address).next_back()?;
        (address - base < allocation.len as u64).then_some((base, allocation))
    }

    /// The buffer and offset of a range that lies whole inside one live allocation.
    pub(crate) fn find(&self, address: u64, len: usize) -> Res<(Arc<DeviceBuffer>, usize)> {
        let (base, allocation) = self.holding(address).ok_or(codes::INVALID_VALUE)?;
        let offset = usize::try_from(address - base).map_err(|_| codes::INVALID_VALUE)?;
        if len > allocation.len - offset {
            return Err(codes::INVALID_VALUE);
        }
        Ok((Arc::clone(&allocation.buffer), offset))
    }

    pub(crate) fn of_context(&self, context: usize) -> Vec<u64> {
        let mine = |(&at, one): (&u64, &Allocation)| (one.context == context).then_some(at);
        self.allocations.iter().filter_map(mine).collect()
    }
}

/// Whether the number is one that only this library's device memory uses.
pub(crate) fn is_device_address(address: u64) -> bool {
    address >= BASE
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use super::*;

    #[test]
    fn ranges_are_checked_and_addresses_not_reused() {
        let mut memory = DeviceMemory::new();
        let one = memory.allocate(0, 1, 100, 1000).unwrap();
        let two = memory.allocate(0, 1, 100, 1000).unwrap();
        assert!(memory.find(one, 100).is_ok());
        assert!(memory.find(one + 99, 1).is_ok());
        assert!(memory.find(one, 101).is_err());
        assert!(memory.find(one + 100, 1).is_err());
        assert!(memory.find(one - 1, 1).is_err());
        let gone = memory.remove(one).unwrap();
        memory.give_back(0, gone.len);
        assert!(memory.find(one, 1).is_err(), "use after free");
        assert_eq!(memory.used_bytes(0), 100);
        let three = memory.allocate(0, 1, 100, 1000).unwrap();
        assert!(three > two);
        assert!(matches!(memory.allocate(0, 1, 801, 1000), Err(codes::OUT_OF_MEMORY)));
    }
}
