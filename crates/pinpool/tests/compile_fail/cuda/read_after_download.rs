//! Nobody reads a slot that a copy still writes: the lease is gone, and what is left has no bytes.

use std::sync::Arc;

use pinpool::Lease;
use pinpool::cudarc::driver::{CudaSlice, CudaStream};

fn copy(lease: Lease, stream: &Arc<CudaStream>, device: &CudaSlice<u8>) -> u8 {
    let flight = lease.download(device, stream).unwrap();
    flight.as_slice()[0]
}

fn main() {}
