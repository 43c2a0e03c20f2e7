//! Nobody writes to a slot that a copy still reads: the lease is gone.

use std::sync::Arc;

use pinpool::Lease;
use pinpool::cudarc::driver::{CudaSlice, CudaStream};

fn copy(mut lease: Lease, stream: &Arc<CudaStream>, device: &mut CudaSlice<u8>) {
    let flight = lease.upload(stream, device).unwrap();
    lease.as_mut_slice().fill(0);
    drop(flight);
}

fn main() {}
