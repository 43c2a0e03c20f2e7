//! A copy's other side is memory of the device that outlives the copy, and says so.

use std::sync::Arc;

use pinpool::Lease;
use pinpool::cudarc::driver::{CudaStream, DevicePtrMut};

fn copy<D: DevicePtrMut<u8>>(lease: Lease, stream: &Arc<CudaStream>, target: &mut D) {
    let _ = lease.upload(stream, target);
}

fn main() {}
